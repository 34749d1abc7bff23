import json

import pytest
from fake_run import config, fake_run

from seedlab.analysis.compare import comparison_text, differing_settings, main_pair, questions, verdict
from seedlab.analysis.frames import group_runs, load_arms, role_of
from seedlab.store.errors import RunError


def arms_of(root, seed_success, grpo_success, **options):
    runs = {"SEED": [], "GRPO": []}
    for s, (a, b) in enumerate(zip(seed_success, grpo_success)):
        runs["SEED"].append(fake_run(root / f"seed-{s}", config("seed", "stage1", s), success=a, **options))
        runs["GRPO"].append(fake_run(root / f"grpo-{s}", config("seed/no-opd", "stage1", s), success=b, **options))
    return load_arms(runs)


def test_roles_come_from_the_settings():
    assert role_of(config("grpo", "base")) == "grpo-base"
    assert role_of(config("seed/no-opd")) == "grpo-sft"
    assert role_of(config("grpo", "stage1", stage1={"enabled": True})) == "grpo-sft"
    assert role_of(config("seed")) == "seed-sft" and role_of(config("seed/shuffled")) == "shuffled"


def test_what_stage_2_changed_is_told_against_the_policy_it_started_from(tmp_path):
    arms = arms_of(tmp_path, (0.5, 0.75), (0.5, 0.25))
    start = load_arms({"start": [fake_run(tmp_path / "start", config("vanilla", "stage1", 0, stage1={"enabled": True}, stage2={"updates": 0}), success=0.25)]})
    other = load_arms({"base": [fake_run(tmp_path / "base", config("vanilla", "base", 0, stage2={"updates": 0}), success=0.0)]})
    assert (start[0].role, other[0].role) == ("start-sft", "start-base")
    lines = verdict([*other, *arms, *start])
    assert any(line.startswith("Stage 2 changed micro success from start to SEED by: seen +0.375 [") for line in lines)
    assert any(line.startswith("Stage 2 changed micro success from start to GRPO by: seen +0.125 [") for line in lines)
    assert not any("different numbers of updates" in line for line in lines)
    assert not any(line.startswith("Stage 2 changed") for line in verdict([*other, *arms]))


def test_equal_arms_give_no_claim(tmp_path):
    lines = verdict(arms_of(tmp_path, (0.5, 0.75, 0.5), (0.5, 0.5, 0.75)))
    assert lines[0].startswith("SEED does not beat GRPO here: every interval of the difference contains 0.")
    assert "+0.000 [" in lines[0] and "does not show that the two are equal" in lines[0]
    assert any("|Δ| < 0.02" in line for line in lines[1:])


def test_a_constant_gain_on_every_panel_is_called_higher_and_a_loss_is_not_hidden(tmp_path):
    assert verdict(arms_of(tmp_path / "up", (0.75, 1.0), (0.5, 0.75)))[0].startswith("SEED scored higher than GRPO on every panel")
    lines = verdict(arms_of(tmp_path / "down", (0.25, 0.5), (0.5, 0.75)))
    assert lines[0].startswith("SEED does not beat GRPO here; it scored lower on every panel")


def test_one_seed_claims_nothing_however_large_the_gap(tmp_path):
    lines = verdict(arms_of(tmp_path, (1.0,), (0.0,)))
    assert lines[0].startswith("One common seed") and "nothing can be claimed" in lines[0]


def test_equal_means_are_one_comparison_in_the_verdict(tmp_path):
    """Two tasks of each type: macro and micro are the same number, and chance has two draws here, not four."""
    lines = verdict(arms_of(tmp_path, (0.75, 1.0, 0.5), (0.5, 0.5, 0.5)))
    assert lines[0].count("macro = micro") == 2 and lines[0].count("seen macro = micro +0.250 [") == 2, lines[0]
    one = verdict(arms_of(tmp_path / "one", (1.0,), (0.0,)))
    assert "is seen macro = micro +1.000; unseen macro = micro +1.000." in one[0]


def test_quick_claims_nothing(tmp_path):
    lines = verdict(arms_of(tmp_path, (1.0, 1.0), (0.0, 0.0)), quick=True)
    assert "no claim on learning" in lines[1] and not any("higher" in line or "beat" in line for line in lines)


def test_without_grpo_or_evaluation_there_is_no_verdict(tmp_path):
    only_seed = load_arms({"SEED": [fake_run(tmp_path / "a")]})
    assert verdict(only_seed) == ["There is no verdict on SEED against GRPO: no arm of GRPO that could be compared was given or could be read."]
    assert verdict(arms_of(tmp_path / "b", (0.5,), (0.5,), evaluated=False))[0].startswith("There is no verdict yet")


def test_a_different_start_is_said_and_never_called_the_distillation_term(tmp_path):
    arms = load_arms({
        "SEED": [fake_run(tmp_path / f"s{s}", config("seed", "stage1", s)) for s in (0, 1)],
        "GRPO": [fake_run(tmp_path / f"g{s}", config("grpo", "base", s)) for s in (0, 1)],
    })
    assert [what for what, _, _ in questions(arms)] == ["the whole method, both stages"]
    assert "Stage 1 is part of this difference" in verdict(arms)[1]


def test_theta_sft_asked_for_with_stage1_off_is_warned_of(tmp_path):
    arms = load_arms({
        "SEED": [fake_run(tmp_path / f"s{s}", config("seed", "stage1", s)) for s in (0, 1)],
        "GRPO from θ_sft": [fake_run(tmp_path / f"g{s}", config("grpo", "stage1", s, stage1={"enabled": False})) for s in (0, 1)],
    })
    assert main_pair(arms)[1].role == "grpo-base"
    assert any(line.startswith("Warning: GRPO from θ_sft has initial=stage1") for line in verdict(arms))


def test_settings_that_differ_leave_the_seed_out(tmp_path):
    frame = differing_settings(arms_of(tmp_path, (0.5, 0.5), (0.5, 0.5)))
    assert set(frame.index) == {"method", "objective.opd_coef"}
    assert frame.loc["objective.opd_coef"].to_dict() == {"SEED": "0.01", "GRPO": "0.0"}


def test_a_folder_of_runs_is_grouped_by_what_the_runs_do(tmp_path):
    arms_of(tmp_path, (0.5, 0.5), (0.5, 0.5))
    grouped = group_runs([tmp_path])
    assert {name: [p.name for p in paths] for name, paths in grouped.items()} == {
        "GRPO from θ_sft": ["grpo-0", "grpo-1"], "SEED from θ_sft": ["seed-0", "seed-1"],
    }


def test_runs_with_other_settings_do_not_share_an_arm(tmp_path):
    a = fake_run(tmp_path / "a", config("seed", "stage1", 0))
    b = fake_run(tmp_path / "b", config("seed", "stage1", 1, objective={"opd_coef": 0.3}))
    names = list(group_runs([a, b]))
    assert len(names) == 2 and all(name.startswith("SEED from θ_sft [") for name in names)


def test_two_runs_of_one_seed_and_a_foreign_folder_become_problems(tmp_path):
    a, b = fake_run(tmp_path / "a"), fake_run(tmp_path / "b")
    (tmp_path / "empty").mkdir()
    arm = load_arms({"SEED": [a, b, tmp_path / "empty"]})[0]
    assert list(arm.runs) == [0] and "one run per seed" in arm.problems[0] and "config.json" in arm.problems[1]
    with pytest.raises(RunError):
        group_runs([tmp_path / "empty"])


def test_comparison_text_has_scores_and_settings(tmp_path):
    text = comparison_text(arms_of(tmp_path, (0.5, 0.75), (0.5, 0.5)))
    assert "micro  0.625" in text and "seed 1 0.750" in text and "objective.opd_coef: SEED = 0.01; GRPO = 0.0" in text


def test_two_means_that_are_one_by_construction_are_printed_once(tmp_path):
    equal, unequal = fake_run(tmp_path / "equal"), fake_run(tmp_path / "unequal")
    assert comparison_text(load_arms(group_runs([equal]))).count("macro = micro") == 2
    summary = unequal / "eval" / "000002" / "summary.json"
    content = json.loads(summary.read_text())
    for entry in content["panels"].values():
        next(iter(entry["by_type"].values()))["episodes"] += 1
    summary.write_text(json.dumps(content))
    text = comparison_text(load_arms(group_runs([unequal])))
    assert "macro = micro" not in text and text.count("  macro  ") == text.count("  micro  ") == 2, text


def test_methods_without_a_role_are_compared_with_the_first_of_them(tmp_path):
    arms = load_arms({name: [fake_run(tmp_path / name, config(name, "base"))] for name in ("gigpo", "rloo")})
    assert [(what, a.name, b.name) for what, a, b in questions(arms)] == [("all settings in which they differ", "rloo", "gigpo")]
    assert "further down" in verdict(arms)[0]
