"""Whole runs of preset micro whose advantages or weights of the distillation term are others: trained, checked, resumed."""

import pytest

from seedlab.analysis.checks import check_run
from seedlab.skills import OwnAnalyzer, RawSkill
from seedlab.train.run import train

RLSD = ("method=grpo", "objective.skill_advantage=scaled", "objective.scale_updates=2", "objective.teacher=once", "objective.skill_from=scripted")
RUNS = {
    "gigpo": ("method=gigpo", "objective.step_weight=0.7"),
    "gigpo-steps": ("method=gigpo", "objective.group_statistics=steps", "env.layout=step", "env.history_window=2"),
    "gspo": ("method=gspo", "env.layout=step", "env.history_window=2"),
    "rlsd": RLSD,
    "rlsd-live": (*RLSD, "objective.teacher=live", "env.layout=step", "env.history_window=2"),
    "opid": ("method=opid",),
    "opid-live": ("method=opid", "objective.teacher=live", "env.layout=step", "env.history_window=2", "objective.step_coef=0.5"),
    "ramp": ("method=seed/no-stage1", "objective.schedule=ramp", "objective.schedule_updates=4"),
    "stop": ("method=seed/no-stage1", "objective.schedule=stop", "objective.schedule_updates=1"),
}  # fmt: skip
FAST = ("gigpo", "gspo", "rlsd", "opid")
SHORT = ("evaluation.panels=[dev]", "env.panel_limits.dev=1")


# the untrained policy's own skills are never usable, so that no neighbour could be given one
DICTATED = ("mate", "sibling", "average-mates", "average-own", "full", "baseline-mate")
WORDS = ("cabinet", "shelf", "fridge", "desk", "drawer")


class Dictated(OwnAnalyzer):
    """Skills that differ by key, in place of the policy's own."""

    async def analyze(self, trajectory, prompt, key):
        text = f"open the {WORDS[key % 5]} {key // 5 % 9} before you look into the {WORDS[key // 50 % 5]}"
        return RawSkill(text, "stop", len(prompt.ids), 12, "own")


@pytest.fixture(scope="module")
def runs(finished, micro, tmp_path_factory):
    """runs(name): that run, trained once; `finished` has left the base policy in the cache."""
    folder, made = tmp_path_factory.mktemp("credit"), {}

    def get(name):
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                if name in DICTATED:
                    patch.setattr("seedlab.train.loop.OwnAnalyzer", Dictated)
                made[name] = train(micro(*RUNS[name], *SHORT), folder / name)
        return made[name]

    return get


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.full) for n in RUNS])
def test_every_check_of_a_whole_run_passes(runs, name):
    failed = [r for r in check_run(runs(name).path) if r.state == "failed"]
    assert failed == []
    assert (runs(name).metrics["optim/steps"] == 2).all()


def test_gigpo_compares_steps_that_start_alike(runs):
    metrics, tokens = runs("gigpo").metrics, runs("gigpo").tokens(update=0)
    assert (metrics["credit/steps_shared"] > 0.3).all()  # every attempt at a task begins with the same observation
    assert (metrics["credit/step_advantage_abs"] > 0).all()
    within = tokens.groupby("trajectory")["advantage"].nunique()
    assert (within > 1).any()


def test_rlsd_changes_sizes_and_never_signs(runs):
    run = runs("rlsd")
    assert run.metrics["credit/scale_share"].tolist() == [0.5, 0.25]
    tokens = run.tokens(update=0).merge(run.trajectories(0)[["id", "advantage"]], left_on="trajectory", right_on="id", suffixes=("", "_group"))
    taught = tokens[tokens["mask_opd"] & (tokens["advantage_group"] != 0)]
    factor = taught["advantage"] / taught["advantage_group"]
    assert len(taught) and (factor > 0).all() and factor.between(0.9 - 1e-6, 1.1 + 1e-6).all() and factor.std() > 0
    assert taught["gate"].isna().all() and taught["delta"].notna().all()


def test_opid_reads_a_steps_own_skill_at_critical_steps_alone(runs):
    run = runs("opid")
    told, tokens, skills = run.step_skills(0), run.tokens(update=0), run.skills(0)
    used = told[told["accepted"]]
    assert len(used) and used.groupby("trajectory").size().max() <= 5 and set(skills["analyzer"]) == {"scripted"}
    critical = set(zip(used["trajectory"], used["step"]))
    own = [pair in critical for pair in zip(tokens["trajectory"], tokens["step"])]
    assert 0 < sum(own) < len(own)
    assert run.metrics["credit/step_skill_tokens"].iloc[0] == pytest.approx(sum(own) / tokens["mask_opd"].sum())
    assert (run.metrics["credit/added_abs"] > 0).all()


@pytest.mark.full
def test_a_ramp_sets_the_coefficient_of_each_update(runs):
    assert runs("ramp").metrics["opd/coefficient"].tolist() == pytest.approx([0.0025, 0.005])


@pytest.mark.full
def test_after_a_stop_nobody_writes_what_nobody_reads(runs):
    stop = runs("stop").metrics
    assert stop["opd/coefficient"].tolist() == [0.01, 0.0]
    assert stop["opd/mask_coverage"].tolist()[1] == 0 and runs("stop").skills(1).empty


@pytest.mark.parametrize("name", ["rlsd", *(pytest.param(n, marks=pytest.mark.full) for n in ("ramp", "gigpo"))])
def test_a_stopped_and_resumed_run_repeats_every_bit(runs, micro, tmp_path, same_run, stopped_and_resumed, name):
    same_run(stopped_and_resumed(micro(*RUNS[name], *SHORT), tmp_path / "run"), runs(name))


VARIANTS = {
    "mate": ("objective.skill_from=mate",),
    "sibling": ("objective.skill_from=sibling", "stage2.tasks_per_update=6", "stage2.group_size=2"),
    "baseline": ("objective.skill_from=scripted", "objective.baseline=mean", "objective.opd_coef=0.5"),
    "average-mates": ("objective.skill_from=mate", "objective.average_skills=2", "objective.baseline=mean", "objective.opd_coef=0.5"),
    "context": ("objective.skill_from=scripted", "objective.baseline=context", "objective.opd_coef=0.5"),
    "full": ("objective.skill_from=mate", "objective.support=full", "objective.opd_coef=0.5"),
    "topk": ("objective.skill_from=scripted", "objective.support=topk", "objective.support_k=4", "env.layout=step", "env.history_window=2"),
    "average-own": ("objective.average_skills=2", "analyzer.temperature=1.0", "env.layout=step", "env.history_window=2"),
    "baseline-mate": ("objective.skill_from=mate", "objective.baseline=mean", "objective.opd_coef=0.5", "env.layout=step", "env.history_window=2"),
}  # fmt: skip
RUNS |= {name: ("method=seed/no-stage1", *settings) for name, settings in VARIANTS.items()}


@pytest.mark.parametrize("name", [n if n in ("mate", "average-mates", "full") else pytest.param(n, marks=pytest.mark.full) for n in VARIANTS])
def test_every_check_of_a_variant_passes(runs, name):
    assert [r for r in check_run(runs(name).path) if r.state == "failed"] == []


@pytest.mark.full
def test_the_gradient_of_a_token_is_its_gate_less_the_baseline(runs):
    run = runs("baseline")
    assert run.metrics["opd/baseline_mean"].between(0.3, 0.7).all()
    tokens = run.tokens(update=0)
    taught = tokens[tokens["mask_opd"]]
    policy = (taught["ratio"] * taught["advantage"]).where(~taught["clipped"], 0.0)
    baseline = taught["gate"] - (taught["net_coefficient"] - policy) / 0.5
    assert (baseline.groupby([taught["trajectory"], taught["minibatch"]]).std() < 1e-4).all()  # one number per row
    assert baseline.mean() == pytest.approx(run.metrics["opd/baseline_mean"][0], abs=1e-4)


def test_the_gates_of_two_mates_are_averaged(runs):
    run = runs("average-mates")
    assert (run.metrics["opd/skills_read"] > 1.5).all()
    first, other = run.prompt_skills(0), run.more_skills(0)
    both = first.merge(other, on="trajectory")
    assert len(both) and (both["source"] != both["analyzer"]).all()  # two different mates
    tokens = run.tokens(update=0)
    taught = tokens[tokens["mask_opd"] & (tokens["minibatch"] == 0)]
    alone = taught["logp_teacher"] - taught["logp_student"]
    assert (taught["delta"] - alone).abs().max() > 1e-4  # the mean over two skills is not the first one's


@pytest.mark.full
def test_own_skills_are_drawn_anew(runs):
    run = runs("average-own")
    both = run.skills(0).merge(run.more_skills(0), on="trajectory", suffixes=("", "_more"))
    assert len(both) and (both["text"] != both["text_more"]).any()


def test_mates_read_one_anothers_skills(runs):
    read = runs("mate").prompt_skills(0)
    assert len(read) and read["source"].str.startswith("mate:").all()
    giver = read["source"].str.partition(":")[2]
    task = lambda name: name.rsplit("/n", 1)[0]  # noqa: E731
    assert (giver.map(task) == read["trajectory"].map(task)).all() and (giver != read["trajectory"]).all()
