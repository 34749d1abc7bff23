import math

import numpy as np
import pandas as pd
import pytest
from fake_run import config, fake_run

from seedlab import analysis
from seedlab.analysis.curves import cost_table
from seedlab.analysis.statistics import mean_interval
from seedlab.errors import UserError
from seedlab.store.errors import RunError


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        fake_run(root / f"seed-s{seed}", config("seed", seed=seed), success=0.5 + 0.25 * seed)
        fake_run(root / f"grpo-s{seed}", config("seed/no-opd", seed=seed), success=0.25)
    return root


@pytest.fixture(scope="module")
def arms(root):
    return analysis.load(root)


SEED, GRPO = "SEED from θ_sft", "GRPO from θ_sft"


def test_folders_and_arms_are_taken_alike(root, arms):
    assert {arm.name: sorted(arm.runs) for arm in arms} == {SEED: [0, 1], GRPO: [0, 1]}
    for given in (root, str(root), [root], [root / "seed-s0", root / "seed-s1", root / "grpo-s0", root / "grpo-s1"]):
        pd.testing.assert_frame_equal(
            analysis.curve_bands(given).sort_values(["arm", "update"], ignore_index=True),
            analysis.curve_bands(arms).sort_values(["arm", "update"], ignore_index=True),
        )
    with pytest.raises(RunError, match="nowhere"):
        analysis.load(root / "nowhere")


def test_every_name_of_the_room_exists():
    assert all(callable(getattr(analysis, name)) for name in analysis.__all__)
    with pytest.raises(AttributeError, match="no attribute 'curve_band'"):
        analysis.curve_band


def test_bands_are_t_intervals_of_smoothed_seeds(arms):
    frame = analysis.curve_bands(arms, "rollout/success", window=2).set_index(["arm", "update"])
    values = [arms_metric(arms, SEED, seed, "rollout/success") for seed in (0, 1)]
    i = mean_interval([v.mean() for v in values])
    assert frame.loc[(SEED, 1)].tolist() == pytest.approx([i.estimate, i.low, i.high, 2])
    first = mean_interval([v.iloc[0] for v in values])
    assert frame.loc[(SEED, 0), "mean"] == pytest.approx(first.estimate)
    assert analysis.curve_bands(arms, "opd/gate_mean")["arm"].unique().tolist() == [SEED]


def arms_metric(arms, name, seed, metric):
    return next(a for a in arms if a.name == name).metrics(seed)[metric]


def test_what_was_spent_is_counted_up_to_the_rollout(arms):
    frame = analysis.sample_efficiency(arms).set_index(["arm", "seed", "update"])
    # fake runs: 2 tasks x 4 rollouts; rollout 1 s, student .5, analyzer .4, teacher .3, of 1e9 FLOP in the rollout
    assert frame.loc[(SEED, 0), "trajectories"].tolist() == [8, 16]
    assert frame.loc[(SEED, 0), "seconds"].tolist() == pytest.approx([1.0, 2.2 + 1.0])
    assert frame.loc[(GRPO, 1), "seconds"].tolist() == pytest.approx([1.0, 1.5 + 1.0])
    assert frame.loc[(GRPO, 1), "flops"].tolist() == pytest.approx([1e9, 2e9])
    assert frame.loc[(GRPO, 1), "value"].tolist() == arms_metric(arms, GRPO, 1, "rollout/success").tolist()


def test_a_run_that_never_got_there_stays_in_the_table(arms):
    frame = analysis.first_reached(arms, 0.26, window=1).set_index(["arm", "seed"])
    curve = arms_metric(arms, SEED, 1, "rollout/success")
    expected = next(u for u in curve.index if curve[u] >= 0.26)
    assert bool(frame.loc[(SEED, 1), "reached"]) and frame.loc[(SEED, 1), "update"] == expected
    nowhere = analysis.first_reached(arms, 2.0, window=1)
    assert len(nowhere) == 4 and not nowhere["reached"].any() and nowhere["update"].isna().all()
    assert nowhere["best"].tolist() == [max(arms_metric(arms, a, s, "rollout/success")) for a, s in zip(nowhere["arm"], nowhere["seed"])]
    assert not analysis.first_reached(arms, 0.0, window=3)["reached"].any()  # two updates never fill a window of three


def test_lengths_by_outcome_are_means_over_trajectories(arms):
    frame = analysis.episode_lengths(arms)
    run = next(a for a in arms if a.name == SEED).runs[1]
    played = run.trajectories(1)
    row = frame[(frame["arm"] == SEED) & (frame["seed"] == 1) & (frame["update"] == 1) & (frame["outcome"] == "success")].iloc[0]
    assert row["steps"] == played.loc[played["success"], "steps"].mean() and row["episodes"] == played["success"].sum()
    assert frame["episodes"].sum() == 2 * 2 * 2 * 8


def test_gates_are_quantiles_of_tokens_with_a_teacher(arms):
    frame = analysis.gates(arms)
    assert set(frame["arm"]) == {SEED} and len(frame) == 4
    tokens = next(a for a in arms if a.name == SEED).runs[0].tokens(update=1)
    gate = tokens.loc[tokens["mask_opd"], "gate"].astype(float)
    row = frame[(frame["seed"] == 0) & (frame["update"] == 1)].iloc[0]
    assert row["tokens"] == len(gate) < len(tokens)
    assert row[["mean", "q25", "q95"]].tolist() == pytest.approx([gate.mean(), gate.quantile(0.25), gate.quantile(0.95)])
    parts = analysis.gates(arms, by_outcome=True)
    assert parts.groupby(["seed", "update"])["tokens"].sum().tolist() == frame["tokens"].tolist()


def test_skill_quality_has_a_row_per_measure(arms):
    frame = analysis.skill_quality(arms)
    assert set(frame["measure"]) == {"accepted", "exact", "location", "distinct", "skill_words"} and set(frame["arm"]) == {SEED}
    assert frame[frame["measure"] == "exact"]["value"].tolist() == [0.4] * 4


def test_costs_are_means_over_updates_and_seeds(arms):
    frame = analysis.cost_per_update(arms).set_index(["arm", "phase"])
    assert frame.loc[(SEED, "analyzer"), "seconds"] == 0.4 and (GRPO, "analyzer") not in frame.index
    assert frame.loc[(GRPO, "rollout"), "flops"] == 1e9 and math.isnan(frame.loc[(GRPO, "update"), "flops"])
    assert cost_table(arms[0]) == frame.loc[arms[0].name, "seconds"].to_dict()


def test_task_types_are_pooled_over_seeds(arms):
    frame = analysis.by_task_type(arms).set_index(["arm", "panel", "task_type"])
    runs = next(a for a in arms if a.name == SEED).runs.values()
    episodes = pd.concat([run.episodes(2) for run in runs])
    part = episodes[(episodes["panel"] == "seen") & (episodes["task_type"] == "pick_and_place_simple")]
    row = frame.loc[(SEED, "seen", "pick_and_place_simple")]
    assert (row["successes"], row["episodes"]) == (part["success"].sum(), len(part)) and row["low"] < row["share"] < row["high"] + 1e-12


def test_differences_are_paired_and_names_are_checked(arms):
    frame = analysis.paired_differences(arms)
    assert frame["arm"].unique().tolist() == [SEED] and frame["baseline"].unique().tolist() == [GRPO]
    row = frame[(frame["panel"] == "seen") & (frame["measure"] == "micro")].iloc[0]
    i = mean_interval([0.5 - 0.25, 0.75 - 0.25])
    assert row[["difference", "low", "high", "pairs"]].tolist() == pytest.approx([i.estimate, i.low, i.high, 2])
    backwards = analysis.paired_differences(arms, GRPO, SEED)
    assert np.allclose(backwards["difference"], -frame["difference"])
    with pytest.raises(UserError, match="did you mean 'SEED from θ_sft'"):
        analysis.paired_differences(arms, "SEED from θ_stf", GRPO)
    assert analysis.paired_differences([a for a in arms if a.name == SEED]).empty


def test_the_runs_are_listed_with_their_state(arms, root):
    frame = analysis.runs_frame(arms)
    assert len(frame) == 4 and set(frame["state"]) == {"succeeded"} and frame["updates"].tolist() == frame["planned"].tolist() == [2] * 4
    assert set(frame["folder"]) == {str(p) for p in root.iterdir()}


def test_settings_say_what_they_mean_and_where_they_differ(arms):
    run = arms[0].runs[0]
    frame = analysis.settings_frame(run, "objective", "seed")
    assert frame.loc["objective.beta", "value"] == 5.0 and "gate" in frame.loc["objective.beta", "meaning"]
    assert all(name == "seed" or name.startswith("objective.") for name in frame.index)
    differences = analysis.paper_differences(run)
    assert differences.loc["stage2.updates", ["here", "reason"]].tolist() == [2, "own setting"]
    assert differences.loc["model.path", "here"] == "tiny" and differences.loc["model.path", "reason"] != "own setting"
