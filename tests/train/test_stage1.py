"""Stage 1 on preset micro: who rolls out what, what becomes a row, and where Stage 2 starts."""

from collections import Counter

import pytest

from seedlab.config.presets import load_config
from seedlab.episodes.play import Episode
from seedlab.errors import ConfigError
from seedlab.policy.load import load_policy, model_hash
from seedlab.policy.local import LocalGenerator
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.train import stage1, stage1_keys, stage1_labels, stage1_rollouts, stage1_sft
from seedlab.train.base import initial_policy_path
from seedlab.train.cached import cache_root
from seedlab.train.run import train
from seedlab.train.session import Session


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(config, folder of theta_sft, its rollouts, cache) of a Stage 1 of micro in a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        cfg = load_config("micro", ["stage2.updates=0", "evaluation.panels=[]"])
        folder = stage1.run_stage1(cfg)
        rollouts = stage1_rollouts.read_trajectories(cache_root() / stage1_keys.rollouts_key(cfg) / "trajectories.jsonl.gz")
        skills = stage1_labels.read_skills(cache_root() / stage1_keys.labels_key(cfg) / "labels.jsonl")
        yield cfg, folder, rollouts, skills


def test_every_stage1_task_is_rolled_out_k0_times_by_the_base_policy(made):
    cfg, _, rollouts, _ = made
    session = Session(cfg, load_policy(initial_policy_path(cfg), cfg.model))
    wanted = session.panels["stage1"].task_ids[: cfg.stage1.tasks]
    assert Counter(t.task_id for t in rollouts) == {task: cfg.stage1.rollouts_per_task for task in wanted}
    # the unmodified base policy sampled them: its own log-probs of the sampled ids are the recorded ones
    again = session.play(
        [Episode(rollouts[0].task_id, rollouts[0].n)], phase="s1-", update=0, seed=cfg.stage1.seed,
        temperature=cfg.stage1.rollout_temperature,
    )[0]
    assert [s.response_ids for s in again.steps] == [s.response_ids for s in rollouts[0].steps]


def test_loss_is_on_the_skill_tokens_alone_and_rows_end_their_turn(made):
    cfg, _, rollouts, skills = made
    plain = cfg.model_copy(update={"stage1": cfg.stage1.model_copy(update={"transcript_weight": 0.0})})
    session = Session(plain, load_policy(initial_policy_path(cfg), cfg.model))
    documents, dropped = stage1_sft.skill_documents(session, rollouts, skills)
    texts = {s.trajectory_id: s.text for s in skills}
    assert len(documents) == sum(s.accepted for s in skills) and not dropped
    for document in documents:
        target = [i for i, w in zip(document.ids, document.weights) if w > 0]
        assert session.policy.tokenizer.decode(target[:-1]) == texts[document.id]
        assert target[-1] == session.policy.chat.end_of_turn
        assert document.weights[: -len(target)] == [0.0] * (len(document.ids) - len(target))


def test_vllm_samples_where_it_is_asked_for_and_hears_of_new_weights(made, monkeypatch, tmp_path):
    """vLLM's part is played by the local generator, which notes what it is told."""
    cfg = made[0]
    seen = []

    class Noted(LocalGenerator):
        def expect(self, episodes):
            seen.append("sample")
            super().expect(episodes)

        def close(self):
            seen.append("close")
            super().close()

        def weights_changed(self, saved):
            assert model_hash(load_policy(saved, cfg.model).model) == model_hash(self.model)
            seen.append("new weights")
            super().weights_changed(saved)

    monkeypatch.setattr(Session, "_vllm", lambda self: Noted(self.policy.model, context=cfg.model.context, pad_id=self.policy.pad_id))
    monkeypatch.setattr(stage1_sft, "fit", lambda *args, fit=stage1_sft.fit, **options: (seen.append("fit"), fit(*args, **options))[1])
    other = load_config("micro", ["stage2.updates=0", "evaluation.panels=[]", "cluster.generator=vllm"])
    assert (stage1_keys.rollouts_key(other), stage1_keys.sft_key(other)) != (stage1_keys.rollouts_key(cfg), stage1_keys.sft_key(cfg))
    folder = stage1.run_stage1(other)
    phases = [name for name, before in zip(seen, [None, *seen]) if name != before]
    assert phases == ["sample", "close", "sample", "close", "fit", "new weights", "sample", "close"]
    # the same samples from the same streams, so the same weights
    assert model_hash(load_policy(folder, cfg.model).model) == model_hash(load_policy(made[1], cfg.model).model)


def test_rows_that_do_not_fit_are_counted_and_only_such_rows_are_an_error(made):
    cfg, _, rollouts, skills = made
    session = Session(cfg, load_policy(initial_policy_path(cfg), cfg.model))
    session.cfg = cfg.model_copy(update={"model": cfg.model.model_copy(update={"context": 20})})
    documents, dropped = stage1_sft.skill_documents(session, rollouts, skills)
    assert documents == [] and len(dropped) == sum(s.accepted for s in skills)


def test_no_task_is_both_trained_on_and_held_out(made):
    _, _, rollouts, _ = made
    sides: dict[str, set[bool]] = {}
    for t in rollouts:
        sides.setdefault(t.task_id, set()).add(stage1_sft.held_out(t.id, 0.5))
    assert all(len(side) == 1 for side in sides.values())


def test_stage_2_starts_from_the_weights_that_stage_1_left(made, tmp_path):
    cfg, folder, _, _ = made
    train(cfg, tmp_path / "run")
    trained = model_hash(load_policy(folder, cfg.model).model)
    assert model_hash(load_policy(latest_checkpoint(tmp_path / "run")[1], cfg.model).model) == trained
    assert model_hash(load_policy(tmp_path / "run" / "checkpoints" / "reference", cfg.model).model) == trained
    assert model_hash(load_policy(initial_policy_path(cfg), cfg.model).model) != trained


def test_grpo_and_seed_share_one_theta_sft(made):
    cfg = made[0]
    grpo = load_config("micro", {"method": "grpo", "initial": "stage1", "stage1.enabled": True})
    assert stage1_keys.sft_key(grpo) == stage1_keys.sft_key(cfg)


def test_theta_sft_without_stage_1_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="stage1.enabled"):
        train(load_config("micro", {"method": "grpo", "initial": "stage1"}), tmp_path / "run")
