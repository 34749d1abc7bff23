from fake_run import config, fake_run

from seedlab.analysis.frames import arm_name, load_arms

FOUR = {"updates": 4, "tasks_per_update": 2, "group_size": 4}


def arm(tmp_path, *lengths):
    """One run per entry: as many rows of metrics as it says, of four planned; KL is 1, 2, 3, 4."""
    folders = []
    for seed, rows in enumerate(lengths):
        run = fake_run(tmp_path / f"s{seed}", config(seed=seed, stage2=FOUR), evaluated=False)
        lines = (run / "metrics.jsonl").read_text().splitlines()[:rows]
        lines = [line.replace('"policy/kl": 0.0', f'"policy/kl": {seed * 10 + u + 1}') for u, line in enumerate(lines)]
        (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
        folders.append(run)
    return load_arms({"a": folders})[0]


def test_quarters_of_whole_runs(tmp_path):
    found = arm(tmp_path, 4, 4)
    assert found.unfinished == []
    assert found.early_mean("policy/kl") == {0: 1.0, 1: 11.0} and found.late_mean("policy/kl") == {0: 4.0, 1: 14.0}
    assert found.late_mean("policy/kl", 0.5) == {0: 3.5, 1: 13.5}


def test_an_unfinished_run_has_no_last_quarter_beside_a_finished_one(tmp_path):
    found = arm(tmp_path, 4, 2)
    assert found.unfinished == [1] and found.curve("policy/kl")[1].dropna().tolist() == [11.0, 12.0]
    assert found.late_mean("policy/kl") == {0: 4.0} and found.early_mean("policy/kl") == {0: 1.0}


def test_where_nothing_is_finished_what_there_is_counts(tmp_path):
    found = arm(tmp_path, 2, 3)
    assert found.unfinished == [0, 1] and found.late_mean("policy/kl") == {0: 2.0, 1: 13.0}


def test_an_absent_metric_has_no_mean(tmp_path):
    found = arm(tmp_path, 4)
    assert found.curve("policy/absent").empty and found.late_mean("policy/absent") == {}


def test_an_arm_with_skills_in_prompts_or_another_distillation_goes_by_its_method():
    def name(method, start="base"):
        return arm_name(config(method, start))

    assert (name("grpo"), name("seed", "stage1")) == ("GRPO from base", "SEED from θ_sft")
    for method in ("skill-grpo", "skill-grpo*", "skill-prompt", "skill-sd", "skill-sd/own", "sdar"):
        assert name(method) == f"{method} from base"
