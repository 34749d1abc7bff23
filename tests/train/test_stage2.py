"""Stage 2's loop: where skills may stand (C10), C8 through the whole loop, snapshots, and stopping in this process."""

import pytest
import torch
from compare_runs import weights_hash

from seedlab.episodes.records import Skill
from seedlab.skills import SkillBatch
from seedlab.store import RunWriter, open_run
from seedlab.train.evaluate import evaluate
from seedlab.train.run import _last_skills, train
from seedlab.train.stage2 import Stage2

CANARY = "canary seven two nine eleven"


@pytest.fixture
def stage2(finished, micro, tmp_path):
    """stage2(*overrides): a Stage 2 of its own that starts from the finished run's theta_sft."""
    writers = []

    def make(*overrides):
        cfg = micro(*overrides)
        folder = tmp_path / f"run{len(writers)}"
        writers.append(RunWriter.create(folder, cfg))
        return Stage2(cfg, folder, writers[-1], finished.path / "checkpoints" / "reference")

    yield make
    for writer in writers:
        writer.release()


def test_a_separate_snapshot_is_taken_anew_after_a_kill_before_the_second_checkpoint(finished, micro, tmp_path):
    cfg = micro("objective.refresh_every=3", "stage2.checkpoint_every=8")
    writer = RunWriter.create(tmp_path / "run", cfg)
    loop = Stage2(cfg, tmp_path / "run", writer, finished.path / "checkpoints" / "reference")
    loop.save(0)
    again = Stage2(cfg, tmp_path / "run", writer, finished.path / "checkpoints" / "reference")
    writer.release()
    assert (again.next_update, again.snapshot) == (0, None)


# ---- where a skill may stand


@pytest.mark.parametrize("teacher", ["live", "once"])
def test_a_canary_in_every_skill_stands_in_teacher_inputs_alone(stage2, monkeypatch, teacher):
    loop = stage2(f"objective.teacher={teacher}")
    decode = loop.policy.tokenizer.decode

    def canaries(trajectories, *args, **options):
        skills = [Skill(f"{t.id}/skill", t.id, CANARY, True, "ok", "own", 0, 5, CANARY) for t in trajectories]
        return SkillBatch(skills, 0, 0, {})

    monkeypatch.setattr("seedlab.train.loop.write_skills", canaries)
    asked, seen = [], {"teacher": [], "student": [], "reference": []}
    generate = loop.session.generator.generate

    async def noted(prompt_ids, sampling, *, trajectory_id, images=()):
        asked.append(decode(prompt_ids))
        return await generate(prompt_ids, sampling, trajectory_id=trajectory_id)

    scorer, forward = loop.updater._score, loop.updater._forward
    monkeypatch.setattr(loop.session.generator, "generate", noted)
    monkeypatch.setattr(
        loop.updater, "_score",
        lambda policy, rows: seen["reference" if policy is loop.updater.reference else "teacher"].extend(decode(r.ids) for r in rows) or scorer(policy, rows),
    )  # fmt: skip
    monkeypatch.setattr(
        loop.updater, "_forward",
        lambda batch, indices: seen["student"].extend(decode(batch.rows[i].ids) for i in indices) or forward(batch, indices),
    )  # fmt: skip
    loop.one_update(0)
    loop.one_update(1)
    assert _last_skills(loop.run) == (CANARY,) * 8
    result = evaluate(loop.session, update=2, skills=_last_skills(loop.run))
    assert len(asked) > 16 and len(seen["teacher"]) >= 8
    assert not [text for text in [*asked, *seen["student"], *seen["reference"]] if CANARY in text]
    assert {text.count(CANARY) for text in seen["teacher"]} == {1}
    assert CANARY not in result.episodes.to_json()
    run = open_run(loop.run)
    for update in (0, 1):
        assert CANARY not in run.steps(update).to_json()
        assert set(run.skills(update)["text"]) == {CANARY}


# ---- nothing to learn


@pytest.mark.parametrize("method", ["grpo", "seed"])
def test_updates_without_advantage_and_skill_leave_the_weights_as_they_are(stage2, method):
    """Preset micro's own settings: nothing is won and no skill is usable, so every group is tied (C8)."""
    loop = stage2(
        f"method={method}", "objective.invalid_penalty=0", "analyzer.drop_unusable=true", "objective.entropy_coef=0", "objective.kl_coef=0",
        *(["objective.opd_coef=0"] if method == "grpo" else []),
    )  # fmt: skip
    before = {k: v.clone() for k, v in loop.policy.model.state_dict().items()}
    loop.one_update(0)
    loop.one_update(1)
    assert all(torch.equal(v, before[k]) for k, v in loop.policy.model.state_dict().items())
    metrics = open_run(loop.run).metrics
    assert (metrics["optim/steps"] == 0).all()
    assert (metrics["rollout/tie_rate"] == 1).all()
    assert ("analyzer/accepted" in metrics.columns) == (method == "seed")


# ---- the analyzer's weights


def test_the_snapshot_is_the_rollout_policy_of_its_update(stage2):
    loop = stage2("objective.refresh_every=2", "stage2.updates=4")
    generators, taken = zip(*(loop._analyzer(0), loop._analyzer(1)))
    assert taken == (0, 0)
    assert generators[0].model is generators[1].model is not loop.policy.model
    loop.one_update(0)
    old = loop._analyzer(1)
    assert old[1] == 0
    weight = "model.embed_tokens.weight"
    assert not torch.equal(old[0].model.state_dict()[weight], loop.policy.model.state_dict()[weight])
    fresh = loop._analyzer(2)
    assert fresh[1] == 2
    assert torch.equal(fresh[0].model.state_dict()[weight], loop.policy.model.state_dict()[weight])


def test_an_analyzer_that_stays_initial_never_moves(stage2):
    loop = stage2("objective.analyzer_snapshot=initial")
    before = {k: v.clone() for k, v in loop._analyzer(0)[0].model.state_dict().items()}
    loop.one_update(0)
    generator, taken = loop._analyzer(1)
    assert taken == 0
    assert all(torch.equal(v, before[k]) for k, v in generator.model.state_dict().items())


def test_the_live_analyzer_is_the_policy_itself(stage2):
    loop = stage2()
    assert loop._analyzer(3) == (loop.session.generator, 3)


def test_keys_and_values_of_old_weights_are_forgotten(stage2):
    loop = stage2()
    version = loop.session.generator.weights_version
    loop.one_update(0)
    assert loop.session.generator.weights_version == version + 1
    assert loop.session.generator._store._rows == {}


# ---- the same end by another way, for settings with state of their own

VARIANTS = {
    # sampled skills: greedy ones of an untrained policy hardly depend on its weights
    "snapshot of every second update": ("objective.refresh_every=2", "stage2.updates=3", "analyzer.temperature=1.0"),
    "initial snapshot": ("objective.analyzer_snapshot=initial", "objective.teacher=once"),
    "shuffled skills": ("objective.skill_from=shuffled", "analyzer.min_words=0", "objective.reference=old"),
    "scripted skills": ("objective.skill_from=scripted", "stage2.minibatches=null", "stage2.minibatch_rows=3"),
    "from the base model": ("initial=base", "store.tokens=2"),
    "step layout": ("env.layout=step", "env.history_window=1", "env.show_admissible=true"),
}


@pytest.mark.parametrize("variant", [v if not i else pytest.param(v, marks=pytest.mark.full) for i, v in enumerate(VARIANTS)])
def test_stopped_after_an_update_and_resumed_is_straight(micro, tmp_path, variant, finished, stopped_and_resumed):
    cfg = micro(*VARIANTS[variant])
    straight = train(cfg, tmp_path / "straight")

    resumed = stopped_and_resumed(cfg, tmp_path / "run")
    assert weights_hash(straight) == weights_hash(resumed)
    last = cfg.stage2.updates - 1
    for table in ("steps", "skills", "trajectories"):
        assert getattr(straight, table)(last).equals(getattr(resumed, table)(last))
    assert (straight.metrics["optim/steps"] >= 1).all()


def test_another_seed_is_another_run(finished, micro, tmp_path):
    other = train(micro("seed=1", "stage2.updates=1"), tmp_path / "run")
    assert other.manifest["initial"] == finished.manifest["initial"], "Stage 1 is shared by every seed"
    assert set(other.trajectories(0)["id"]) != set(finished.trajectories(0)["id"])
