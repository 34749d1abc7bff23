"""Stage 1's rows, weights and verdicts (case B13), and the weighted training loop."""

import math

import pytest
import torch

from seedlab.episodes.records import Skill
from seedlab.errors import UserError
from seedlab.policy.load import load_policy, model_hash
from seedlab.rows.build import build_rows
from seedlab.store.stage1_files import SFT_ROWS, read_rows
from seedlab.train import stage1_keys, stage1_labels, stage1_rollouts, stage1_sft
from seedlab.train.sft import (
    Document, SftSettings, Stepper, batches_by_count, batches_by_tokens, learning_rate_at, make_optimizer, mean_loss, plan_parts,
    train_documents,
)  # fmt: skip

SETTINGS = SftSettings(1e-2, 0.1, 0.1, 0.0, (0.9, 0.95), 1.0, 10**6)
SHORT = ("env.max_steps=3",)


# ---- the training loop


def test_the_learning_rate_warms_up_and_follows_a_cosine():
    rates = [learning_rate_at(step, 20, SETTINGS) / SETTINGS.learning_rate for step in range(20)]
    assert rates[:3] == pytest.approx([0.5, 1.0, 1.0])
    assert rates[11] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 9 / 18)))
    assert min(rates[2:]) == rates[-1] > 0.1
    assert learning_rate_at(20, 20, SETTINGS) == pytest.approx(0.1 * SETTINGS.learning_rate)
    assert learning_rate_at(0, 1, SETTINGS) == SETTINGS.learning_rate


def test_every_document_comes_once_an_epoch():
    batches = batches_by_count(10, 4, 3, seed=0)
    assert [len(b) for b in batches] == [4, 4, 2] * 3
    epochs = [sum(batches[i : i + 3], []) for i in (0, 3, 6)]
    assert all(sorted(e) == list(range(10)) for e in epochs)
    assert epochs[0] != epochs[1]
    assert batches == batches_by_count(10, 4, 3, seed=0) != batches_by_count(10, 4, 3, seed=1)


def test_token_batches_keep_the_order_and_the_budget():
    assert batches_by_tokens([3, 4, 5, 20, 1, 1], 9) == [[0, 1], [2], [3], [4, 5]]


def test_a_window_is_batched_by_length_and_loses_nothing():
    lengths = [9, 1, 8, 2, 7, 3, 5, 5, 4, 6]
    got = batches_by_tokens(lengths, 10, window=6, seed=1)
    assert sorted(i for b in got for i in b) == list(range(10))
    first = [b for b in got if max(b) < 6]
    assert len([i for b in first for i in b]) == 6 and got[: len(first)] == first  # windows stay in order
    assert sorted([lengths[i] for i in b] for b in first) == [[1, 2, 3], [7], [8], [9]]
    assert got == batches_by_tokens(lengths, 10, window=6, seed=1)
    assert any(got != batches_by_tokens(lengths, 10, window=6, seed=s) for s in range(2, 6))


def documents(count=7):
    g = torch.Generator().manual_seed(0)
    out = []
    for i in range(count):
        ids = torch.randint(5, 60, (4 + i,), generator=g).tolist()
        out.append(Document(f"d{i}", ids, [0.0, 0.0, *torch.rand(2 + i, generator=g).tolist()]))
    return out


@pytest.mark.parametrize("budget, pack", [(1, 0), (17, 0), (10**6, 0), (1, 12), (30, 12), (10**6, 40)])
def test_micro_batches_and_packing_never_change_the_training(random_policy, micro, budget, pack):
    weights, losses = [], []
    for tokens, shared in ((budget, pack), (10**6, 0)):
        policy = random_policy(micro())
        settings = SftSettings(1e-2, 0.1, 0.1, 0.0, (0.9, 0.95), 1.0, tokens, shared)
        losses.append(train_documents(policy.model, documents(), [[0, 1, 2], [3, 4, 5, 6]], settings, pad_id=0))
        weights.append(policy.model.get_input_embeddings().weight.detach())
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    torch.testing.assert_close(*weights, atol=1e-4, rtol=0)


def test_packed_parts_stay_within_both_budgets():
    lengths = [5, 9, 3, 8, 4, 30]
    settings = SftSettings(1e-2, 0.1, 0.1, 0.0, (0.9, 0.95), 1.0, 24, 12)
    parts = plan_parts(lengths, settings)
    assert sorted(i for part in parts for line in part for i in line) == list(range(6))
    widths = [[sum(lengths[i] for i in line) for line in part] for part in parts]
    assert sorted(w for part in widths for w in part) == [5, 12, 12, 30]
    assert sorted(len(part) for part in parts) == [1, 1, 2]


def test_steps_that_are_done_are_passed_over(random_policy, micro):
    policy, batches = random_policy(micro()), [[0, 1], [2, 3], [4, 5]]
    whole = train_documents(policy.model, documents(), batches, SETTINGS, pad_id=0)
    rates = []

    class Noted(Stepper):
        def begin(self, rate):
            rates.append(rate)
            super().begin(rate)

    policy = random_policy(micro())
    stepper = Noted(policy.model, SETTINGS, pad_id=0)
    rest = train_documents(policy.model, documents(), batches, SETTINGS, pad_id=0, stepper=stepper, before=whole[:2])
    assert rest[:2] == whole[:2] and len(rest) == 3
    assert rates == [learning_rate_at(2, 3, SETTINGS)]


def test_the_loss_is_the_weighted_mean_over_targets(random_policy, micro):
    policy = random_policy(micro())
    docs = documents(3)
    logits = [torch.log_softmax(policy.model(input_ids=torch.tensor([d.ids])).logits[0].float(), -1) for d in docs]
    total = sum(-w * float(lp[i - 1, d.ids[i]].detach()) for d, lp in zip(docs, logits) for i, w in enumerate(d.weights) if w)
    expected = total / sum(sum(d.weights) for d in docs)
    assert mean_loss(policy.model, docs, micro_batch_tokens=10, pad_id=0) == pytest.approx(expected, rel=1e-5)
    assert train_documents(policy.model, docs, [[0, 1, 2]], SETTINGS, pad_id=0) == [pytest.approx(expected, rel=1e-5)]


def test_no_target_is_an_error_and_never_a_loss_of_zero(random_policy, micro):
    policy = random_policy(micro())
    empty = [Document("a", [5, 6], [0.0, 0.0]), Document("b", [5], [1.0])]
    with pytest.raises(ValueError, match="no document has a token to learn from"):
        train_documents(policy.model, empty, [[0, 1]], SETTINGS, pad_id=0)
    assert math.isnan(mean_loss(policy.model, empty, micro_batch_tokens=10, pad_id=0))


def test_training_lowers_the_loss(random_policy, micro):
    policy = random_policy(micro())
    losses = train_documents(policy.model, documents(), [list(range(7))] * 12, SETTINGS, pad_id=0)
    assert losses[-1] < losses[0] - 0.5


def test_frozen_parameters_are_not_optimised(random_policy, micro):
    policy = random_policy(micro())
    for parameter in policy.model.get_input_embeddings().parameters():
        parameter.requires_grad_(False)
    optimizer = make_optimizer(policy.model, learning_rate=1.0, weight_decay=0.0, betas=(0.9, 0.95))
    assert all(p.requires_grad for group in optimizer.param_groups for p in group["params"])


# ---- rows of Stage 1


def labelled(session, trajectories, text="look into every cabinet before the desk"):
    return [Skill(f"{t.id}/skill", t.id, text, True, "ok", "scripted", -1, 8, text) for t in trajectories]


@pytest.fixture(scope="module")
def played(make_session, micro, rollout):
    session = make_session(micro(*SHORT))
    return session, rollout(session)


def test_the_loss_is_on_the_skill_alone(played):
    session, trajectories = played
    chat = session.policy.chat
    found, dropped = stage1_sft.skill_documents(session, trajectories, labelled(session, trajectories))
    assert dropped == []
    assert [d.id for d in found] == [t.id for t in trajectories]
    for document, trajectory in zip(found, trajectories):
        targets = [i for i, w in enumerate(document.weights) if w]
        assert {document.weights[i] for i in targets} == {1.0} if not session.cfg.stage1.transcript_weight else True
        skill = [i for i, w in enumerate(document.weights) if w == 1.0]
        assert skill == list(range(skill[0], len(document.ids)))
        assert chat.decode(document.ids[skill[0] : -1]) == "look into every cabinet before the desk"
        assert document.ids[-1] == chat.end_of_turn
        prompt = chat.tokenizer.decode(document.ids[: skill[0]])
        assert f"outcome : {'success' if trajectory.success else 'failure'}" in prompt


def test_the_transcript_s_own_actions_weigh_what_the_configuration_says(make_session, micro, rollout):
    session = make_session(micro(*SHORT, "stage1.transcript_weight=0.25"))
    trajectories = rollout(session)
    found, _ = stage1_sft.skill_documents(session, trajectories, labelled(session, trajectories))
    for document, trajectory in zip(found, trajectories):
        light = [document.ids[i] for i, w in enumerate(document.weights) if w == 0.25]
        rows = build_rows([trajectory], "conversation")
        # where a prompt did not go on from the ids before it, what was sampled earlier is not in the document as it was
        sampled = [i for s in trajectory.steps[rows[-1].first_step :] for i in s.response_ids]
        assert light == sampled
    assert any(len(build_rows([t], "conversation")) == 1 for t in trajectories)
    plain = make_session(micro(*SHORT, "stage1.transcript_weight=0.0"))
    assert {w for d in stage1_sft.skill_documents(plain, trajectories, labelled(plain, trajectories))[0] for w in d.weights} == {0.0, 1.0}


def test_rejected_labels_give_no_row(played):
    session, trajectories = played
    skills = labelled(session, trajectories)
    skills[1].accepted = False
    found, dropped = stage1_sft.skill_documents(session, trajectories, skills)
    assert [d.id for d in found] == [t.id for i, t in enumerate(trajectories) if i != 1]
    assert dropped == []


def test_rows_that_do_not_fit_are_dropped_whole_and_named(make_session, micro, rollout):
    session = make_session(micro(*SHORT))
    trajectories = rollout(session)
    skills = labelled(session, trajectories)
    everything, _ = stage1_sft.skill_documents(session, trajectories, skills)
    limit = sorted(len(d.ids) for d in everything)[1]
    session.cfg = session.cfg.model_copy(update={"model": session.cfg.model.model_copy(update={"context": limit})})
    found, dropped = stage1_sft.skill_documents(session, trajectories, skills)
    assert sorted([d.id for d in found] + dropped) == sorted(t.id for t in trajectories)
    assert [d.ids for d in found] == [d.ids for d in everything if len(d.ids) <= limit]
    assert len(dropped) == sum(len(d.ids) > limit for d in everything) > 0


def test_a_data_set_of_rows_that_do_not_fit_is_an_error(finished, own_cache, tmp_path, monkeypatch):
    cfg = finished.config.model_copy(update={"model": finished.config.model.model_copy(update={"context": 40})})
    monkeypatch.setattr(stage1_sft, "initial_policy_path", lambda cfg, progress=None: str(finished.path / "checkpoints" / "reference"))
    folders = [own_cache / finished.stage1[key] for key in ("rollouts_cache", "labels_cache")]
    with pytest.raises(UserError, match=r"nothing to learn from.*8 .*do not fit model.context=40"):
        stage1_sft.fine_tune(cfg, *folders, tmp_path)


def test_without_training_rows_there_is_no_fine_tuning(finished, own_cache, tmp_path, monkeypatch):
    cfg = finished.config.model_copy(update={"stage1": finished.config.stage1.model_copy(update={"replay_ratio": 0.0})})
    monkeypatch.setattr(stage1_sft, "initial_policy_path", lambda cfg, progress=None: str(finished.path / "checkpoints" / "reference"))
    monkeypatch.setattr(stage1_sft, "held_out", lambda trajectory_id, share: True)
    folders = [own_cache / finished.stage1[key] for key in ("rollouts_cache", "labels_cache")]
    with pytest.raises(UserError, match="stage1.held_out"):
        stage1_sft.fine_tune(cfg, *folders, tmp_path)


def test_the_record_counts_every_label(finished):
    record = finished.stage1
    assert record["labels"] == record["trajectories"] == 8
    assert sum(record["reasons"].values()) == 8
    assert record["accepted"] == record["train_rows"] + record["held_out_rows"] + len(record["dropped_too_long"])
    rows = read_rows(finished.path, SFT_ROWS)
    assert len(rows) == record["train_rows"] + record["held_out_rows"]
    assert all(0 < r["target_tokens"] < r["tokens"] for r in rows)
    tasks = {split: {r["trajectory"].rsplit("/n", 1)[0] for r in rows if r["split"] == split} for split in ("train", "held_out")}
    assert not tasks["train"] & tasks["held_out"]


def test_stage2_starts_from_the_fine_tuned_weights(finished, own_cache):
    folder = own_cache / (finished.path / "stage1" / "source").read_text().strip()
    policies = [load_policy(p, finished.config.model) for p in (folder, finished.path / "checkpoints" / "reference")]
    assert model_hash(policies[0].model) == model_hash(policies[1].model) == finished.manifest["model"]["hash"]


# ---- files


def test_trajectories_survive_the_file(played, tmp_path):
    _, trajectories = played
    stage1_rollouts.write_trajectories(tmp_path / "t.jsonl.gz", trajectories)
    assert stage1_rollouts.read_trajectories(tmp_path / "t.jsonl.gz") == trajectories


def test_a_damaged_trajectory_file_is_named(played, tmp_path):
    file = tmp_path / "t.jsonl.gz"
    stage1_rollouts.write_trajectories(file, played[1])
    whole = file.read_bytes()
    for damage in (whole[:-20], b"no gzip", b""):
        file.write_bytes(damage)
        if damage:
            with pytest.raises(UserError, match=str(file)):
                stage1_rollouts.read_trajectories(file)
    file.unlink()
    with pytest.raises(UserError, match=str(file)):
        stage1_rollouts.read_trajectories(file)


def test_a_damaged_skill_file_is_named(tmp_path):
    (tmp_path / "labels.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(UserError, match="labels.jsonl"):
        stage1_labels.read_skills(tmp_path / "labels.jsonl")


def test_too_few_tasks_are_named(micro, random_policy, tmp_path, monkeypatch):
    cfg = micro("stage1.tasks=9")
    monkeypatch.setattr(stage1_rollouts, "initial_policy_path", lambda *a: "")
    monkeypatch.setattr(stage1_rollouts, "load_policy", lambda path, model: random_policy(cfg))
    with pytest.raises(UserError, match="panel stage1 has 8 tasks, stage1.tasks asks for 9"):
        stage1_rollouts.collect(cfg, tmp_path)


@pytest.mark.parametrize("key", ["rollouts_key", "labels_key", "sft_key"])
def test_cache_keys_follow_what_they_depend_on(micro, key):
    function = getattr(stage1_keys, key)
    base = function(micro())
    assert function(micro("seed=5", "stage2.updates=9", "method=grpo", "evaluation.seed=1", "env.panel_limits.dev=2")) == base
    changed = ["stage1.seed=1", "env.max_steps=5", "tiny.documents=241", "rollout.max_response_tokens=11", "stage1.rollouts_per_task=3"]
    if key != "rollouts_key":
        changed.append("analyzer.min_words=4")
    if key == "sft_key":
        changed += ["stage1.epochs=2", "stage1.learning_rate=0.1"]
    assert len({base, *(function(micro(c)) for c in changed)}) == len(changed) + 1
