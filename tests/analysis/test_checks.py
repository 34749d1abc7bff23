import numpy as np
import pytest
from fake_run import GROUP, PANELS, config, fake_run

from seedlab.analysis.check_records import expected_advantages
from seedlab.analysis.checks import check_run
from seedlab.cli.main import main


def states(path):
    return {r.name: r for r in check_run(path)}


def test_a_sound_run_passes_everything(tmp_path):
    results = states(fake_run(tmp_path / "run"))
    assert {r.state for r in results.values()} == {"passed"}, [r for r in results.values() if r.state != "passed"]
    assert "8 of them in tied groups" in results["advantages"].detail


def spoil(table, change):
    """Apply `change` to a copy of that table of update 1 (or of the evaluation)."""

    def apply(name, update, frame):
        if name != table or update == 0:
            return frame
        frame = frame.copy()
        changed = change(frame)
        return frame if changed is None else changed

    return apply


def put(column, value, where=lambda f: f.index[0]):
    def change(frame):
        at = where(frame)
        frame.at[at, column] = value(frame.at[at, column])

    return change


taught = lambda f: f.index[f["mask_opd"]][0]
untied = lambda f: f.index[~f["tied"]][0]
tied = lambda f: f.index[f["tied"]][0]


@pytest.mark.parametrize(
    "table, change, failing, says",
    [
        ("tokens", put("gate", lambda g: g + 0.01, taught), "gate = sigmoid(beta Δ)", "not sigmoid(5 Δ)"),
        ("tokens", put("gate", lambda g: np.nan, taught), "gate = sigmoid(beta Δ)", "1 of"),
        ("tokens", put("delta", lambda d: d + 0.1, taught), "gate = sigmoid(beta Δ)", "position 0"),
        ("tokens", put("token_id", lambda t: t + 1), "token ids as sampled", "was sampled"),
        ("tokens", lambda f: f.iloc[1:], "token ids as sampled", "is not among the tokens"),
        ("tokens", put("logp_rollout", lambda p: p - 0.01), "sampled = scored log-probs", "when scored"),
        ("tokens", put("logp_student", lambda p: np.nan), "sampled = scored log-probs", "nan when scored"),
        ("tokens", put("mask_policy", lambda m: False, lambda f: f.index[~f["mask_opd"]][0]), "masks", "is masked out of the policy term (1 such"),
        ("tokens", put("mask_policy", lambda m: False, taught), "masks", "is masked out of the policy term"),
        ("tokens", put("mask_opd", lambda m: True, lambda f: f.index[~f["mask_opd"]][0]), "masks", "has no accepted skill (1 such"),
        ("tokens", put("trajectory", lambda t: "u1/nowhere/n0"), "masks", "not among the trajectories"),
        ("trajectories", put("infra_failure", lambda m: "worker killed"), "masks", "although the infrastructure failed"),
        ("trajectories", put("advantage", lambda a: a * 1.01, untied), "advantages", "returns give"),
        ("trajectories", put("advantage", lambda a: 1e-7, tied), "advantages", "not exactly 0"),
        ("trajectories", put("tied", lambda t: False, tied), "advantages", "`tied` is wrong"),
        ("trajectories", put("task", lambda t: PANELS["seen"][0]), "panels are disjoint and hashed", "not in the train panel"),
        ("episodes", lambda f: f.iloc[1:], "every panel task evaluated once", "was not evaluated"),
        ("episodes", lambda f: f.assign(task=[f["task"].iloc[1], *f["task"].iloc[1:]]), "every panel task evaluated once", "was not evaluated"),
    ],
)
def test_each_spoilt_record_is_found(tmp_path, table, change, failing, says):
    results = states(fake_run(tmp_path / "run", change=spoil(table, change)))
    assert results[failing].state == "failed" and says in results[failing].detail, results[failing]


def test_a_teacher_that_ignores_its_context_is_found(tmp_path):
    def blind(name, update, frame):
        if name == "tokens":
            frame = frame.assign(logp_teacher=frame["logp_student"].where(frame["mask_opd"]), delta=np.where(frame["mask_opd"], 0.0, np.nan))
            frame["gate"] = np.where(frame["mask_opd"], 0.5, np.nan)
        return frame

    results = states(fake_run(tmp_path / "run", change=blind))
    assert results["skills change log-probs"].state == "failed"
    assert results["gate = sigmoid(beta Δ)"].state == "passed"


def test_a_skill_in_a_prompt_is_found(tmp_path):
    # Every fake prompt begins with "put mug in cabinet then".
    leak = states(fake_run(tmp_path / "run", skill="put mug first cabinet then open"))["no skill in a rollout prompt"]
    assert leak.state == "passed"
    leak = states(fake_run(tmp_path / "leak", skill="put mug in cabinet then open"))["no skill in a rollout prompt"]
    assert leak.state == "failed" and "'put mug in cabinet then open'" in leak.detail


def test_zero_opd_gradient_with_a_teacher_fails_and_without_one_is_not_checked(tmp_path):
    bad = states(fake_run(tmp_path / "bad", metric_values={"optim/grad_norm_opd": 0.0}))
    assert bad["OPD gradient"].state == "failed" and "is 0 at updates [0, 1]" in bad["OPD gradient"].detail
    infinite = states(fake_run(tmp_path / "inf", metric_values={"optim/grad_norm_opd": float("inf")}))
    assert infinite["OPD gradient"].state == "failed" and infinite["no metric is infinite"].state == "failed"
    missing = states(fake_run(tmp_path / "nan", metric_values={"optim/grad_norm_opd": float("nan")}))
    assert missing["OPD gradient"].state == "failed"
    verl = states(fake_run(tmp_path / "verl", config(engine="verl"), metric_values={"optim/grad_norm_opd": float("nan")}))
    assert verl["OPD gradient"].state == "not checked" and "engine=verl" in verl["OPD gradient"].detail
    none = states(fake_run(tmp_path / "none", accepted=False))
    assert none["OPD gradient"].state == "not checked" and none["gate = sigmoid(beta Δ)"].state == "not checked"


def test_grpo_says_what_it_did_not_check(tmp_path):
    results = states(fake_run(tmp_path / "run", config("grpo", "base"), evaluated=False))
    assert {n for n, r in results.items() if r.state == "not checked"} == {
        "OPD gradient", "gate = sigmoid(beta Δ)", "skills change log-probs", "no skill in a rollout prompt", "skills in prompts as recorded",
        "every panel task evaluated once",
    }
    assert not any(r.state == "failed" for r in results.values())


def test_a_damaged_table_fails_without_stopping_the_other_checks(tmp_path):
    path = fake_run(tmp_path / "run")
    (path / "updates" / "000001" / "tokens.parquet").write_bytes(b"PAR1 no more")
    results = states(path)
    assert results["every file can be read"].state == "failed" and "tokens.parquet" in results["every file can be read"].detail
    assert results["panels are disjoint and hashed"].state == "passed"


def test_command_exits_with_1_on_a_failure_and_0_on_a_sound_run(tmp_path, capsys):
    assert main(["check", str(fake_run(tmp_path / "ok"))]) == 0
    assert "16 checks, 0 failed, 0 not made" in capsys.readouterr().out
    bad = fake_run(tmp_path / "bad", change=spoil("tokens", put("gate", lambda g: 0.1, taught)))
    assert main(["check", str(bad)]) == 1
    assert "failed      gate" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize(
    "changes",
    [{}, {"advantage_ddof": 1}, {"advantage_scale": "mean"}, {"advantage": "rloo"}, {"invalid_penalty": 0.1},
     {"invalid_penalty": 0.1, "group_statistics": "steps"}, {"group_of_one": "identity"}],
)  # fmt: skip
def test_advantages_agree_with_the_objective_for_every_reading(changes):
    import pandas as pd
    import torch

    from seedlab.objective.advantages import group_advantages

    cfg = config(objective=changes).objective
    rng = np.random.default_rng(5)
    sizes, groups = [GROUP, GROUP, 1], []
    for g, size in enumerate(sizes):
        groups += [f"t{g}"] * size
    returns = np.r_[rng.integers(0, 2, GROUP), np.ones(GROUP), 1.0].astype(float)
    names = [f"n{i}" for i in range(len(groups))]
    played = pd.DataFrame({"id": names, "task": groups, "return": returns, "infra_failure": [""] * (len(groups) - 1) + [""]})
    played.loc[1, "infra_failure"] = "worker died"
    steps = pd.DataFrame([{"trajectory": n, "parsed": bool(rng.integers(0, 2))} for n in names for _ in range(3)])
    invalid = [int((~steps.loc[steps["trajectory"] == n, "parsed"]).sum()) for n in names]
    expected = group_advantages(
        torch.tensor(returns), torch.tensor([int(g[1:]) for g in groups]), invalid_steps_T=torch.tensor(invalid),
        steps_T=torch.tensor([3] * len(names)), scored_T=torch.tensor([n != "n1" for n in names]), cfg=cfg,
    )
    got = expected_advantages(played, steps, cfg)
    assert got.advantage == pytest.approx(expected.advantage_T.double().numpy(), abs=1e-5)
    assert got.tied.tolist() == expected.tied_T.tolist()


def test_distillation_outside_its_place_is_found(tmp_path):
    # The fake run distils every trajectory with an accepted skill, whatever the configuration says.
    for where, state in (("all", "passed"), ("tied", "failed"), ("successes", "failed"), ("failures", "failed")):
        result = states(fake_run(tmp_path / where, config(objective={"where": where})))["masks"]
        assert result.state == state and (state == "passed" or f"objective.where={where}" in result.detail)


def test_distillation_in_a_method_without_it_is_found(tmp_path):
    found = states(fake_run(tmp_path / "run", config("grpo"), change=spoil("tokens", put("mask_opd", lambda m: True))))["masks"]
    assert found.state == "failed" and "by a method without distillation (1 such" in found.detail


def test_a_gradient_that_jumps_is_found(tmp_path):
    cfg = config(stage2={"updates": 3, "tasks_per_update": 2, "group_size": GROUP, "log_gradient_terms_every": 1})
    run = fake_run(tmp_path / "run", cfg)
    assert "stable (0.2 to 0.2) at 3 of 3 measured updates" in states(run)["OPD gradient"].detail
    text = (run / "metrics.jsonl").read_text().replace('"optim/grad_norm_opd": 0.2', '"optim/grad_norm_opd": 21.0', 1)
    (run / "metrics.jsonl").write_text(text)
    found = states(run)["OPD gradient"]
    assert found.state == "failed" and "jumps to 21 at update 0" in found.detail


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    "old, new, says",
    [
        ('"rollout/success": 0.25', '"rollout/success": 0.5', "rollout/success is 0.5, the update's tables give 0.25"),
        ('"rollout/return": 0.25', '"rollout/return": 2.5', "rollout/return is 2.5"),
        ('"rollout/tie_rate": 0.5, ', "", "rollout/tie_rate is missing, the update's tables give 0.5"),
        ('"rollout/truncated"', '"rollout/episode_length_x": 1, "rollout/truncated"', None),
        ('"rollout/episode_length_failure": 2.0', '"rollout/episode_length_failure": 3', "rollout/episode_length_failure is 3"),
        ('"analyzer/accepted": 0.75', '"analyzer/accepted": 1.0', "analyzer/accepted is 1, the update's tables give 0.75"),
        ('"policy/entropy": 0.5', '"policy/entropy": 0.4', "policy/entropy is 0.4"),
        ('"update": 1', '"update": 7', "no line for update 1"),
    ],
)
def test_an_edited_line_of_metrics_is_found(tmp_path, old, new, says):
    run = fake_run(tmp_path / "run")
    edit(run / "metrics.jsonl", old, new)
    found = states(run)["metrics = tables"]
    assert found.state == ("passed" if says is None else "failed") and (says or "") in found.detail, found


def test_a_line_of_metrics_that_is_gone_is_found(tmp_path):
    run = fake_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().splitlines(keepends=True)[0])
    assert "no line for update 1" in states(run)["metrics = tables"].detail
    # as a run that was killed between the tables and the line leaves it
    edit(run / "status.json", '"succeeded"', '"failed"')
    assert states(run)["metrics = tables"].state == "passed"


def test_steps_that_do_not_fit_their_trajectory_are_found(tmp_path):
    run = fake_run(tmp_path / "run", change=spoil("trajectories", put("steps", lambda n: n + 1)))
    assert "has 3 steps, but steps.parquet has 2 of it" in states(run)["metrics = tables"].detail


@pytest.mark.parametrize("old, new, says", [('"seed": 0', '"seed": 5', "seed=5"), ('"group_size": 4', '"group_size": 8', "a setting was edited")])
def test_an_edited_configuration_is_found(tmp_path, old, new, says):
    run = fake_run(tmp_path / "run")
    text = (run / "config.json").read_text()
    key = "\n  " + old if old.startswith('"seed"') else old  # the run's own seed, not a section's
    assert key in text
    (run / "config.json").write_text(text.replace(key, "\n  " + new if old.startswith('"seed"') else new, 1))
    found = states(run)["settings as recorded"]
    assert found.state == "failed" and says in found.detail


@pytest.mark.parametrize("old, new", [('"success_macro": 0.5', '"success_macro": 0.75'), ('"successes": 1', '"successes": 2'), ('"episodes": 4', '"episodes": 40')])
def test_an_edited_summary_is_found(tmp_path, old, new):
    run = fake_run(tmp_path / "run")
    edit(next(run.glob("eval/*/summary.json")), old, new)
    found = states(run)["every panel task evaluated once"]
    assert found.state == "failed" and "the summary says" in found.detail, found


def test_a_panel_that_is_not_the_one_of_its_hash_is_found(tmp_path):
    run = fake_run(tmp_path / "run")
    (run / "manifest.json").write_text((run / "manifest.json").read_text().replace(PANELS["dev"][0], "household/other"))
    found = states(run)["panels are disjoint and hashed"]
    assert found.state == "failed" and "gives panel dev the hash" in found.detail
