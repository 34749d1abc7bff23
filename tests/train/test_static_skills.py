"""Static skills through whole runs: each method, what stands in which prompt, and the controls that must be exact."""

import json
import shutil

import pytest
from compare_runs import weights_hash

from seedlab.analysis.checks import check_run
from seedlab.cli.main import main
from seedlab.envs import make_family
from seedlab.episodes.play import Episode
from seedlab.errors import UserError
from seedlab.skills.library import SkillLibrary
from seedlab.store import RunError, RunWriter
from seedlab.store.layout import LIBRARY
from seedlab.train.evaluate import SkillLeak, SkillMissing, evaluate, refuse_leaks, require_skills
from seedlab.train.library import library_for, library_of, run_library, snapshot_library
from seedlab.train.run import train

SHORT = (
    "stage2.updates=1", "stage2.group_size=2", "env.panel_limits.seen=1", "env.panel_limits.unseen=1", "env.max_steps=3",
    "stage2.log_gradient_terms_every=0", "skills.snapshot_tries=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory, micro):
    """made(method, *overrides): a finished short run, made once."""
    root, runs = tmp_path_factory.mktemp("runs"), {}

    def make(method, *overrides):
        key = (method, *overrides)
        if key not in runs:
            runs[key] = train(micro(f"method={method}", *SHORT, *overrides), root / f"run{len(runs)}")
        return runs[key]

    return make


def places(run, update=0):
    frame = run.prompt_skills(update)
    return {(place, source) for place, source in zip(frame["place"], frame["source"])}


TEACHERS = {
    "sdar": "static", "opsd": "static", "grpo+opsd": "static", "opsd-kl": "static", "grpo+opsd-kl": "static", "skill-sd": "static",
    "skill-sd/own": "own", "seed/static": "static",
}  # fmt: skip
FAST = ("sdar", "seed/static")


@pytest.mark.parametrize("method", [m if m in FAST else pytest.param(m, marks=pytest.mark.full) for m in TEACHERS])
def test_a_teacher_reads_the_skill_and_no_prompt_has_it(made, method):
    run = made(method)
    results = {r.name: r for r in check_run(run.path)}
    assert not [r for r in results.values() if r.state == "failed"]
    assert results["skills in prompts as recorded"].state == results["skills change log-probs"].state == "passed"
    assert places(run) == {("teacher", TEACHERS[method])}
    assert (run.trajectories(0)["prompt_skill"] == "").all()
    assert all(run.summary(1)[panel]["prompts_without_skill"] for panel in ("seen", "unseen"))
    assert run.metrics["optim/steps"].iloc[0] > 0
    if TEACHERS[method] == "static":
        frame, library = run.prompt_skills(0), SkillLibrary.load(run.path / LIBRARY, run.config.skills.retrieve)
        assert frame["text"].tolist() == [library.text_for(kind) for kind in frame["task_type"]]


def test_both_layouts(made):
    run = made("sdar", "env.layout=step", "env.history_window=2")
    frame = run.prompt_skills(0)
    assert frame["prompts"].sum() == run.trajectories(0)["steps"].sum() == frame["found"].sum()  # a row per step, each with its own teacher
    assert (made("sdar").prompt_skills(0)["prompts"] == 1).all()
    assert not [r for r in check_run(run.path) if r.state == "failed"]


@pytest.mark.parametrize("method", ["skill-grpo*", pytest.param("skill-grpo", marks=pytest.mark.full)])
def test_skills_in_training_prompts(made, method):
    run = made(method)
    assert not [r for r in check_run(run.path) if r.state == "failed"]
    assert places(run) == {("prompt", "library")}
    played, library = run.trajectories(0), SkillLibrary.load(run.path / LIBRARY, "both")
    assert played["prompt_skill"].tolist() == [library.text_for(kind) for kind in played["task_type"]]
    told = method.endswith("*")
    for panel, entry in run.summary(1).items():
        assert entry["prompts_without_skill"] != told
        assert entry.get("skill", {}).get("library") == (library.hash if told else None)
    assert len(run.prompt_skills(1, "eval")) == (2 if told else 0)


def test_a_frozen_policy_is_evaluated_with_the_skill(made):
    run = made("skill-prompt", "stage2.updates=0")
    assert run.updates == [] and (run.path / LIBRARY).exists()
    frame = run.prompt_skills(0, "eval")
    assert set(frame["place"]) == {"prompt"} and (frame["found"] == frame["prompts"]).all() and len(frame) == 2
    assert next(r for r in check_run(run.path) if r.name == "skills in prompts as recorded").state == "passed"


def test_an_existing_run_is_evaluated_with_its_own_skills(made, tmp_path, capsys):
    run = made("skill-grpo*")
    options = ["--model", str(run.path), "--panel", "seen", "--out", str(tmp_path / "a.json")]
    assert main(["evaluate", "micro", *SHORT, "evaluation.skill=library", *options]) == 0
    entry = json.loads((tmp_path / "a.json").read_text())["panels"]["seen"]
    assert entry["skill"] == run.summary(1)["seen"]["skill"]
    assert (entry["success_micro"], entry["mean_steps"]) == (run.summary(1)["seen"]["success_micro"], run.summary(1)["seen"]["mean_steps"])
    assert f"skills of library {entry['skill']['library']}" in capsys.readouterr().out
    assert main(["evaluate", "micro", *SHORT, *options]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["panels"]["seen"]["prompts_without_skill"] is True
    assert main(["evaluate", "micro", *SHORT, "evaluation.skill=library", "skills.library=snapshot", "skills.retrieve=task_type", *options]) == 2
    assert "is written by a run's first snapshot" in capsys.readouterr().err


def test_a_run_s_library_is_found_from_its_checkpoints_and_whatever_else_is_set(made, micro):
    run = made("skill-grpo*")
    own = SkillLibrary.load(run.path / LIBRARY, "both")
    checkpoint = next(folder for folder in (run.path / "checkpoints").iterdir() if folder.is_dir())
    for model in (run.path, checkpoint):
        found = library_for(run.config, str(model), wanted=True, overrides=["skills.snapshot_tries=2"])
        assert found.texts == own.texts and found.retrieve == run.config.skills.retrieve
    chosen = micro("method=skill-grpo*", "skills.retrieve=task_type")
    found = library_for(chosen, str(run.path), wanted=True, overrides=["skills.retrieve=task_type"])
    assert found.texts == own.texts and found.retrieve == "task_type"
    other = library_for(run.config, str(run.path), wanted=True, overrides=["skills.library=builtin"])
    assert other is not None and library_for(run.config, "no/run", wanted=False, overrides=[]) is None


def test_one_rollout_has_the_skill_too(made, capsys):
    run = made("skill-grpo*")
    task = run.trajectories(0)["task"].iloc[0]
    overrides = [part for text in (*SHORT, "method=skill-grpo") for part in ("--set", text)]
    assert main(["rollout", task, *overrides, "--preset", "micro", "--model", str(run.path)]) == 0
    assert f"skill in the prompt: {run.trajectories(0)['prompt_skill'].iloc[0]}\n" in capsys.readouterr().out


# ---- controls that must be exact


def test_lambda_0_is_grpo_to_the_bit(made):
    runs = made("grpo"), made("sdar", "objective.opd_coef=0")
    assert weights_hash(runs[0]) == weights_hash(runs[1]) != weights_hash(made("sdar"))


@pytest.mark.full
def test_beta_0_learns_the_same_from_any_skill(made, tmp_path):
    other = {kind: f"look at bed {n} and then look at sofa {n}" for n, kind in enumerate(SkillLibrary.builtin("household", "both").texts)}
    (tmp_path / "other.json").write_text(json.dumps(other))
    runs = made("grpo+opsd"), made("grpo+opsd", f"skills.library={tmp_path / 'other.json'}")
    assert set(runs[0].prompt_skills(0)["hash"]).isdisjoint(runs[1].prompt_skills(0)["hash"])
    assert weights_hash(runs[0]) == weights_hash(runs[1])
    assert set(runs[0].tokens(update=0)["gate"]) == {0.5}


@pytest.mark.full
def test_an_empty_skill_leaves_delta_0(made):
    run = made("sdar", "objective.skill_from=empty")
    tokens = run.tokens(update=0)
    assert tokens["mask_opd"].all() and not tokens.loc[tokens["minibatch"] == 0, "delta"].abs().max() > 1e-5
    assert places(run) == {("teacher", "empty")}
    assert not [r for r in check_run(run.path) if r.state == "failed"]


# ---- the library of a run


def test_a_run_goes_on_with_the_library_in_its_folder(made, micro, make_session, tmp_path):
    cfg = micro("method=sdar", *SHORT)
    session = make_session(cfg)
    with pytest.raises(RunError, match="library.jsonl is gone, which the run's first 1 updates used"):
        run_library(cfg, tmp_path / "none", session, None, next_update=1)
    shutil.copytree(made("sdar").path, tmp_path / "run")
    texts = {kind: text + " now" for kind, text in SkillLibrary.load(tmp_path / "run" / LIBRARY).texts.items()}
    SkillLibrary.of(texts).save(tmp_path / "run" / LIBRARY)
    assert dict(run_library(cfg, tmp_path / "run", session, None, next_update=1).texts) == texts


def test_what_a_library_lacks_is_said_before_a_folder_is_made(micro, tmp_path):
    (tmp_path / "general.jsonl").write_text('{"task_type": "general", "text": "look around first"}\n')
    with pytest.raises(UserError, match="general.jsonl has no skill for task type 'pick_and_place_simple'"):
        train(micro("method=sdar", f"skills.library={tmp_path / 'general.jsonl'}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert library_of(micro("method=grpo", "skills.library=/nowhere"), make_family(micro().env)) is None


def test_the_snapshot_writes_a_skill_per_task_type(made, micro, make_session):
    first, again = (snapshot_library(cfg := micro("method=seed/static", *SHORT), make_session(cfg)) for _ in range(2))
    assert first == again and set(first.texts) == set(make_family(micro().env).task_types)
    with pytest.raises(UserError, match="no usable skill for task type 'pick_and_place_simple' in 1 episodes .*raise skills.snapshot_tries"):
        snapshot_library(cfg := micro("method=seed/static", *SHORT, "analyzer.drop_unusable=true", "analyzer.min_words=150"), make_session(cfg))
    with pytest.raises(UserError, match="no general one, which skills.retrieve=both asks for; set skills.retrieve=task_type"):
        micro("method=seed/static", *SHORT, "skills.retrieve=both")


# ---- proofs in evaluation


def test_an_evaluation_prompt_without_its_skill_is_an_error(micro, make_session, monkeypatch):
    cfg = micro("method=skill-prompt", *SHORT)
    session = make_session(cfg)
    library = library_of(cfg, session.family)
    evaluate(session, update=0, panels=("seen",), library=library)
    with pytest.raises(UserError, match="evaluation.skill=library needs a skill library"):
        evaluate(session, update=0, panels=("seen",))
    fit = type(session.prompts).fit
    monkeypatch.setattr(type(session.prompts), "fit", lambda self, render, history, limit, *, skill="": fit(self, render, history, limit))
    with pytest.raises(SkillMissing, match="of 3 prompts contain the skill"):
        evaluate(session, update=0, panels=("seen",), library=library)


def test_with_its_own_skill_a_prompt_may_not_have_another(micro, make_session):
    session = make_session(micro(*SHORT))
    task = session.panels["seen"].task_ids[0]

    def play(skill):
        return session.play([Episode(task, 0, skill)], phase="x", update=0, seed=0, temperature=1.0)

    [played] = play("look around first . open the bed now")
    refuse_leaks(session, [played], ("look around first", "close the sofa"), told=True)
    played.prompt_skill = "look around first ."
    with pytest.raises(SkillLeak, match="'open the bed now'"):
        refuse_leaks(session, [played], ("look around first", "open the bed now"), told=True)
    with pytest.raises(SkillMissing, match="played without a skill"):
        require_skills(session, play(""))
