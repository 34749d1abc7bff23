import numpy as np
import pytest
from fake_run import config, fake_run

from seedlab.analysis.frames import load_arms
from seedlab.analysis.statistics import mean_interval
from seedlab.analysis.tables import evaluation_table, gate_histogram, learning_curves, skills_by_outcome, tie_rates, token_frame


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return load_arms({
        "SEED": [fake_run(root / f"seed-{s}", config("seed", seed=s), success=0.5 + 0.25 * s) for s in range(2)],
        "GRPO": [fake_run(root / "grpo", config("grpo", "base"))],
    })


@pytest.fixture(scope="module")
def run(arms):
    return arms[0].runs[0]


def test_learning_curves_are_long_and_leave_gaps_out(arms):
    frame = learning_curves(arms, "opd/gate_mean")  # GRPO has none
    assert [*frame.columns] == ["arm", "seed", "update", "value"]
    assert frame[["arm", "seed", "update"]].values.tolist() == [["SEED", s, u] for s in (0, 1) for u in (0, 1)]
    assert frame["value"].tolist() == [arms[0].metrics(s)["opd/gate_mean"][u] for s in (0, 1) for u in (0, 1)]
    assert learning_curves(arms, "no/such").empty


def test_tie_rates_have_the_chance_at_the_same_success(arms):
    frame = tie_rates(arms)
    assert len(frame) == 6 and (frame["tied"] == 0.5).all()
    assert frame["chance"].tolist() == pytest.approx((frame["success"] ** 4 + (1 - frame["success"]) ** 4).tolist())


def test_gate_histogram_counts_tokens_with_a_teacher(run, arms):
    tokens = run.tokens(update=1)
    gate = tokens.loc[tokens["mask_opd"], "gate"]
    frame = gate_histogram(run, 1, bins=4)
    assert frame["tokens"].tolist() == [((gate >= lo) & (gate < lo + 0.25)).sum() for lo in (0, 0.25, 0.5, 0.75)]
    assert frame["share"].sum() == pytest.approx(1.0) and frame["tokens"].sum() == len(gate) < len(tokens)
    assert gate_histogram(arms[1].runs[0], 1).empty


def test_skills_stand_beside_their_outcomes(run):
    frame, played = skills_by_outcome(run, 1), run.trajectories(1).set_index("id")
    assert len(frame) == 8 and frame["reason"].tolist() == ["ok", "ok", "ok", "too_short"] * 2
    assert frame["success"].tolist() == played.loc[frame["trajectory"], "success"].tolist() and frame["success"].sum() == 2


def test_token_frame_is_in_order_with_observations(run, arms):
    name = run.trajectories(1)["id"].iloc[0]
    frame = token_frame(run, name)
    assert frame[["step", "position"]].values.tolist() == sorted(frame[["step", "position"]].values.tolist())
    assert frame.groupby("step")["observation"].unique().map(list).tolist() == [["you look at shelf 0"], ["you look at shelf 1"]]
    assert len(frame) == (run.tokens(update=1)["trajectory"] == name).sum()


def test_evaluation_table_keeps_macro_and_micro_apart(arms):
    frame = evaluation_table(arms).set_index(["arm", "panel", "measure"])
    i = mean_interval([0.5, 0.75])
    assert frame.loc[("SEED", "seen", "micro")].tolist() == [i.estimate, i.low, i.high, 2, 8]
    single = frame.loc[("GRPO", "unseen", "macro")]
    assert single["mean"] == 0.5 and np.isnan(single["low"]) and single["seeds"] == 1
    assert len(frame) == 8
