"""LoRA (peft): what is trained, what a checkpoint holds, and a run that is stopped and goes on (full tier)."""

import pytest
import torch

from seedlab.errors import UserError
from seedlab.policy.load import load_policy
from seedlab.policy.lora import add_lora, has_lora, merged_state, trainable_state
from seedlab.policy.score import ScoreRow, score
from seedlab.store.checkpoint import latest_checkpoint

ROWS = [ScoreRow(list(range(5, 25)), list(range(1, 20)))]
LORA = ("model.lora_rank=4", "model.lora_alpha=8", "stage2.learning_rate=0.01")


@pytest.fixture(scope="module")
def peft():
    return pytest.importorskip("peft", reason="wanted: peft (extra lora)")


def scores(policy):
    return score(policy.model, ROWS)[0][0]


def moved(policy, seed=1):
    """The policy with adapters that change something."""
    add_lora(policy.model, 4, 8, seed=0)
    g = torch.Generator().manual_seed(seed)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.2, generator=g)
    return policy


def test_without_peft_the_user_is_told_what_to_do(random_policy, micro, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(UserError, match="model.lora_rank needs the package peft: pip install"):
        add_lora(random_policy(micro()).model, 4, 8, seed=0)


def test_new_adapters_change_nothing_and_are_all_that_is_trained(peft, random_policy, micro):
    policy = random_policy(micro())
    before = scores(policy)
    torch.manual_seed(5)
    add_lora(policy.model, 4, 8, seed=3)
    after_draw = torch.rand(1)
    torch.testing.assert_close(scores(policy), before, atol=0, rtol=0)
    assert all(("lora_" in name) == p.requires_grad for name, p in policy.model.named_parameters())
    assert len(trainable_state(policy.model)) == 2 * 7 * 2  # A and B of seven projections in two layers
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), after_draw)  # the caller's random numbers are left alone
    again, other = random_policy(micro()), random_policy(micro())
    add_lora(again.model, 4, 8, seed=3)
    add_lora(other.model, 4, 8, seed=4)
    for (name, a), (_, b), (_, c) in zip(*(trainable_state(p.model).items() for p in (policy, again, other))):
        assert torch.equal(a, b), name
        assert "lora_A" not in name or not torch.equal(a, c), name


def test_a_saved_policy_is_a_plain_folder_with_the_adapters_in_it(peft, random_policy, micro, tmp_path):
    cfg = micro()
    policy = moved(random_policy(cfg))
    plain = random_policy(cfg)
    assert float((scores(policy) - scores(plain)).abs().max()) > 1e-3
    policy.save(tmp_path / "merged")
    loaded = load_policy(tmp_path / "merged", cfg.model)
    assert not has_lora(loaded.model)
    assert loaded.parameters == plain.parameters
    torch.testing.assert_close(scores(loaded), scores(policy), atol=1e-5, rtol=0)
    assert has_lora(policy.model)  # merging is for the folder; training goes on
    assert merged_state(policy.model).keys() == plain.model.state_dict().keys()


@pytest.mark.full
def test_a_lora_run_learns_and_goes_on_exactly_after_a_stop(peft, micro, tmp_path, same_run):
    from seedlab.train.run import resume, train
    from seedlab.train.stage2 import Interrupted, Stage2

    cfg = micro(*LORA, "model.gradient_checkpointing=true")
    straight = train(cfg, tmp_path / "straight")
    folder = latest_checkpoint(straight.path)[1]
    reference = load_policy(straight.path / "checkpoints" / "reference", cfg.model)
    learnt = load_policy(folder, cfg.model)
    assert float((scores(learnt) - scores(reference)).abs().max()) > 1e-4
    adapters = torch.load(folder / "lora.pt", weights_only=True)
    assert all("lora_" in name for name in adapters)
    torch.testing.assert_close(  # what no adapter touches is what the run started from
        learnt.model.get_input_embeddings().weight, reference.model.get_input_embeddings().weight, atol=0, rtol=0
    )

    with pytest.MonkeyPatch.context() as patch:
        save = Stage2.save

        def stop(self, update):
            save(self, update)
            if update == 1:
                raise Interrupted("a test stops here")

        patch.setattr(Stage2, "save", stop)
        with pytest.raises(Interrupted):
            train(cfg, tmp_path / "stopped")
    resumed = resume(tmp_path / "stopped")
    same_run(straight, resumed)
