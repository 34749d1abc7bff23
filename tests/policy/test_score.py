"""The chunked scorer against plain log-softmax of the same weights (cases A17, B8, B9, E5)."""

import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel

from seedlab.config.schema import TinyConfig
from seedlab.policy.score import ScoreRow, forward_rows, pack_rows, plan_micro_batches, score, token_logprobs
from seedlab.policy.tiny import build_model

VOCABULARY, CONTEXT = 50, 32
ROWS = [
    ScoreRow([3, 9, 4, 7, 7, 2, 30], [2, 3, 5]),
    ScoreRow([8, 1], [1]),
    ScoreRow(list(range(20)), [1, 2, 17, 18, 19]),
    ScoreRow([6, 6, 6], []),
]


def qwen():
    torch.set_num_threads(1)
    tiny = TinyConfig(hidden=16, layers=2, heads=2, kv_heads=1, intermediate=24, init_std=0.4)
    return build_model(tiny, VOCABULARY, CONTEXT, eos=1, pad=0)


def absolute_positions():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, initializer_range=0.4)
    return GPT2LMHeadModel(config).eval()


def plain(model, rows, temperature=1.0):
    """Log-probs and entropies of each row by itself, from the model's own logits."""
    logp, entropy = [], []
    for row in rows:
        log_p = torch.log_softmax(model(input_ids=torch.tensor([list(row.ids)])).logits[0].float() / temperature, -1)
        for p in row.positions:
            logp.append(log_p[p - 1, row.ids[p]])
            entropy.append(-(log_p[p - 1].exp() * log_p[p - 1]).sum())
    return torch.stack(logp), torch.stack(entropy)


class Head(torch.nn.Module):
    """An output embedding that notes how many of its logits are alive at once.  (Saved for backward counts as alive.)"""

    def __init__(self, hidden, vocabulary):
        super().__init__()
        torch.manual_seed(1)
        self.weight, self.out_features = torch.nn.Parameter(torch.randn(vocabulary, hidden)), vocabulary
        self.alive, self.most, self.largest, self.calls = 0, 0, 0, 0

    def _gone(self, count):
        self.alive -= count

    def forward(self, hidden_MD):
        logits = hidden_MD @ self.weight.T
        count = logits.numel()
        self.calls += 1
        self.largest = max(self.largest, count)
        self.alive += count
        self.most = max(self.most, self.alive)
        weakref.finalize(logits, self._gone, count)
        return logits


# ---- a row is scored as if it were alone


@pytest.mark.parametrize("build", [qwen, absolute_positions])
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_right_padded_rows_score_like_rows_alone(build, temperature):
    model = build()
    logp, entropy = forward_rows(model, ROWS, temperature=temperature, pad_id=0)
    expected_logp, expected_entropy = plain(model, ROWS, temperature)
    torch.testing.assert_close(logp, expected_logp, atol=1e-5, rtol=0)
    torch.testing.assert_close(entropy, expected_entropy, atol=1e-5, rtol=0)


@pytest.mark.parametrize("build", [qwen, absolute_positions])
def test_what_pads_a_row_does_not_matter(build):
    model = build()
    a, b = (forward_rows(model, ROWS, pad_id=pad)[0] for pad in (0, 17))
    torch.testing.assert_close(a, b, atol=0, rtol=0)


@pytest.mark.parametrize("budget", [1, 20, 41, 10_000])
def test_scores_do_not_depend_on_the_micro_batches(budget):
    model = qwen()
    rows = score(model, ROWS, micro_batch_tokens=budget)
    expected, _ = plain(model, ROWS)
    assert [len(lp) for lp, _ in rows] == [3, 1, 5, 0]
    torch.testing.assert_close(torch.cat([lp for lp, _ in rows]), expected, atol=1e-4, rtol=0)
    assert all(lp.dtype == torch.float32 and not lp.requires_grad for lp, _ in rows)


def test_a_token_without_context_is_refused():
    with pytest.raises(ValueError, match="position 0"):
        forward_rows(qwen(), [ScoreRow([3, 4], [0, 1])])


def test_stored_as_bf16_a_log_prob_would_spoil_the_ratio():
    value = torch.tensor(-12.34)
    assert (value.bfloat16().float() - value).exp().item() == pytest.approx(1.028, abs=1e-3)
    assert score(qwen(), ROWS)[0][0].dtype == torch.float32


# ---- chunks over the vocabulary


@pytest.mark.parametrize("budget", [1, VOCABULARY, 3 * VOCABULARY, 7 * VOCABULARY + 1, 10**9])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_chunked_log_probs_and_gradients_equal_plain_ones(budget, temperature):
    torch.manual_seed(0)
    hidden, targets = torch.randn(13, 8), torch.randint(0, VOCABULARY, (13,))
    weights = torch.randn(13), torch.randn(13)

    def run(score_tokens):
        head, h = Head(8, VOCABULARY), hidden.clone().requires_grad_()
        logp, entropy = score_tokens(h, head)
        ((weights[0] * logp).sum() + (weights[1] * entropy).sum()).backward()
        return logp.detach(), entropy.detach(), h.grad, head.weight.grad

    def by_hand(h, head):
        log_p = torch.log_softmax(head(h) / temperature, -1)
        return log_p[torch.arange(13), targets], -(log_p.exp() * log_p).sum(-1)

    chunked = run(lambda h, head: token_logprobs(h, targets, head, temperature=temperature, budget=budget))
    for got, expected in zip(chunked, run(by_hand)):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("grad", [False, True])
def test_never_more_logits_alive_than_the_budget(grad):
    budget, head = 3 * VOCABULARY, Head(8, VOCABULARY)
    hidden, targets = torch.randn(32, 8, requires_grad=grad), torch.randint(0, VOCABULARY, (32,))
    with torch.set_grad_enabled(grad):
        logp, entropy = token_logprobs(hidden, targets, head, budget=budget)
    assert (head.calls, head.largest) == (11, budget)
    assert head.most == budget
    assert head.alive == 0, "no logits may wait for the backward pass"
    if grad:
        (logp.sum() + entropy.sum()).backward()
        assert head.calls == 22, "each chunk is computed once more"
        assert head.most <= 2 * budget


def test_the_plain_way_would_break_the_budget():
    """The instrument itself: without chunks all logits are alive."""
    head = Head(8, VOCABULARY)
    logp, _ = token_logprobs(torch.randn(32, 8), torch.zeros(32, dtype=torch.long), head, budget=10**9)
    assert head.most == 32 * VOCABULARY


def test_a_vocabulary_above_the_budget_is_scored_token_by_token():
    head = Head(8, VOCABULARY)
    token_logprobs(torch.randn(4, 8), torch.zeros(4, dtype=torch.long), head, budget=1)
    assert (head.calls, head.largest) == (4, VOCABULARY)


def test_a_masked_token_leaves_entropy_and_gradient_finite():
    class Masked(Head):
        def forward(self, hidden_MD):
            return torch.cat([super().forward(hidden_MD)[:, :-1], torch.full((len(hidden_MD), 1), float("-inf"))], -1)

    head, hidden = Masked(8, VOCABULARY), torch.randn(4, 8, requires_grad=True)
    logp, entropy = token_logprobs(hidden, torch.tensor([0, 1, 2, 3]), head)
    (logp.sum() + entropy.sum()).backward()
    assert torch.isfinite(entropy).all()
    assert torch.isfinite(hidden.grad).all()


# ---- only sampled tokens are touched


class FixedDecoder(torch.nn.Module):
    """Stands for a model: its hidden states are a parameter, so that their gradient can be read."""

    device = torch.device("cpu")

    def __init__(self, hidden_BLD):
        super().__init__()
        self.hidden = torch.nn.Parameter(hidden_BLD)
        self.head = Head(hidden_BLD.shape[-1], VOCABULARY)

    def get_decoder(self):
        return lambda input_ids, use_cache: type("Output", (), {"last_hidden_state": self.hidden})

    def get_output_embeddings(self):
        return self.head


def test_observation_tokens_change_no_gradient():
    """P P A A O O A A pad: only what predicts an action token is scored; the last observation token predicts one."""
    row = ScoreRow([4, 5, 10, 11, 20, 21, 12, 13], [2, 3, 6, 7])
    torch.manual_seed(0)
    hidden = torch.randn(1, 9, 8)

    def gradients(perturbation):
        model = FixedDecoder(hidden + perturbation)
        logp, entropy = forward_rows(model, [row])
        (logp.sum() + 0.1 * entropy.sum()).backward()
        return model.hidden.grad, model.head.weight.grad

    gradient, head_gradient = gradients(0.0)
    assert (gradient.abs().sum(-1)[0] > 0).tolist() == [False, True, True, False, False, True, True, False, False]
    elsewhere = torch.zeros(1, 9, 1)
    elsewhere[0, [0, 3, 4, 7, 8]] = 5.0  # logits of prompt, observation and pad targets
    perturbed, perturbed_head = gradients(elsewhere * torch.randn(8))
    torch.testing.assert_close(perturbed, gradient, atol=0, rtol=0)
    torch.testing.assert_close(perturbed_head, head_gradient, atol=0, rtol=0)


# ---- rows that share a line


@pytest.mark.parametrize("build", [qwen, absolute_positions])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("packs", [[[2, 0, 1], [3]], [[1, 0], [3, 2]], [[3, 1, 0], [2]]])
def test_packed_rows_have_the_log_probs_and_gradients_of_rows_alone(build, attention, packs):
    def run(packs):
        model = build()
        model.set_attn_implementation(attention)
        logp, entropy = forward_rows(model, ROWS, packs=packs)
        (torch.linspace(1, 2, len(logp)) @ (logp + 0.1 * entropy)).backward()
        return logp.detach(), entropy.detach(), {name: p.grad for name, p in model.named_parameters()}

    alone, together = run(None), run(packs)
    torch.testing.assert_close(together[0], alone[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(together[1], alone[1], atol=1e-5, rtol=0)
    for name, gradient in alone[2].items():
        torch.testing.assert_close(together[2][name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_packs_must_name_every_row_once():
    for packs in ([[0, 1], [2]], [[0, 1], [1, 2, 3]]):
        with pytest.raises(ValueError, match="packs must name every row exactly once"):
            forward_rows(qwen(), ROWS, packs=packs)


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 200))
@settings(deadline=None, max_examples=60)
def test_packs_hold_every_row_once_within_the_budget(lengths, budget):
    lines = pack_rows(lengths, budget)
    assert sorted(i for line in lines for i in line) == list(range(len(lengths)))
    assert all(len(line) == 1 or sum(lengths[i] for i in line) <= budget for line in lines)
    # first fit: no line could have gone into an earlier one as a whole
    totals = [sum(lengths[i] for i in line) for line in lines]
    assert all(a + b > budget for k, b in enumerate(totals) for a in totals[:k])


# ---- micro-batches


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 200))
@settings(deadline=None, max_examples=60)
def test_micro_batches_hold_every_row_once_within_the_budget(lengths, budget):
    batches = plan_micro_batches(lengths, budget)
    assert sorted(i for b in batches for i in b) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= budget for b in batches)
