"""The claims on a real transformer: a tiny Qwen2 whose every trajectory and context is enumerated, in float64.

Tokens: 0 ends a trajectory, 1 .. A-1 are actions, then S skill tokens, an analyzer marker and a start token; the
policy has mass on all of them, and any but 0 continues.  A trajectory has at most LENGTH tokens.  H(h, s) puts the
skill after the start token.  The analyzer is the model itself: behind [start, trajectory, marker] its probabilities of
the skill tokens, renormalised, are P(s | trajectory), so that the skill depends on the sampled tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import advantages, compose
from seedlab.theory import closed_form
from seedlab.theory.claims import ClaimResult, Tally

ACTIONS, SKILLS, LENGTH = 3, 2, 3
MARKER = ACTIONS + SKILLS
START = MARKER + 1
VOCABULARY = START + 1
END = 0
ADDITIVE = ObjectiveConfig(opd_coef=1.0, kl_coef=0.0, aggregation="fixed", fixed_denominator=1.0)


def build(seed: int) -> Qwen2ForCausalLM:
    """An untrained float64 model with weights wide enough that skills move its probabilities."""
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=16, initializer_range=0.4, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=None, pad_token_id=None, attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config).double().eval()


def logp_of_next(model, ids_BL: torch.Tensor) -> torch.Tensor:
    """log pi(. | ids[:, :i+1]) at every position, [B, L, VOCABULARY]."""
    return torch.log_softmax(model(input_ids=ids_BL, use_cache=False).logits, -1)


@dataclass(frozen=True)
class Enumeration:
    """All T trajectories, padded to LENGTH: `tokens` [T, LENGTH], `mask` [T, LENGTH] (1 on real tokens)."""

    tokens: torch.Tensor
    mask: torch.Tensor

    @property
    def lengths(self) -> torch.Tensor:
        return self.mask.sum(1).long()


def enumerate_trajectories() -> Enumeration:
    finished, open_ends = [], [()]
    for _ in range(LENGTH):
        grown = [prefix + (token,) for prefix in open_ends for token in range(VOCABULARY)]
        finished += [t for t in grown if t[-1] == END]
        open_ends = [t for t in grown if t[-1] != END]
    finished += open_ends
    mask = torch.tensor([[1.0] * len(t) + [0.0] * (LENGTH - len(t)) for t in finished], dtype=torch.float64)
    return Enumeration(torch.tensor([list(t) + [END] * (LENGTH - len(t)) for t in finished]), mask)


def student_logp(model, every: Enumeration) -> torch.Tensor:
    """log pi(token | ordinary history) of each token, [T, LENGTH]; padding is 0."""
    ids = torch.cat([torch.full((len(every.tokens), 1), START), every.tokens], 1)
    picked = logp_of_next(model, ids[:, :-1]).gather(-1, every.tokens[..., None])[..., 0]
    return picked * every.mask


def teacher_logp(model, every: Enumeration, skill: int) -> torch.Tensor:
    """log pi(token | H(history, skill)) of each token, [T, LENGTH]."""
    ids = torch.cat([torch.tensor([[START, ACTIONS + skill]]).expand(len(every.tokens), 2), every.tokens], 1)
    picked = logp_of_next(model, ids[:, :-1])[:, 1:].gather(-1, every.tokens[..., None])[..., 0]
    return picked * every.mask


@torch.no_grad()
def analyzer(model, every: Enumeration) -> torch.Tensor:
    """P(s | trajectory) [T, S] as the model writes it."""
    rows = torch.empty(len(every.tokens), SKILLS, dtype=torch.float64)
    for length in range(1, LENGTH + 1):  # grouped by length: nothing is padded
        chosen = (every.lengths == length).nonzero()[:, 0]
        start = torch.full((len(chosen), 1), START)
        ids = torch.cat([start, every.tokens[chosen, :length], torch.full_like(start, MARKER)], 1)
        rows[chosen] = torch.softmax(logp_of_next(model, ids)[:, -1, ACTIONS : ACTIONS + SKILLS], -1)
    return rows


@dataclass(frozen=True)
class World:
    """A snapshot and everything about it: P(trajectory) [T], student [T, LENGTH] and teacher [S, T, LENGTH] log-probs,
    P(s | trajectory) of its own and of an earlier analyzer [T, S]."""

    model: Qwen2ForCausalLM
    every: Enumeration
    probability: torch.Tensor
    student: torch.Tensor
    teacher: torch.Tensor
    skill_now: torch.Tensor
    skill_before: torch.Tensor
    beta: float

    @property
    def parameters(self) -> list[torch.Tensor]:
        return list(self.model.parameters())


def make_world(seed: int, beta: float) -> World:
    model, earlier, every = build(seed), build(seed + 1), enumerate_trajectories()
    with torch.no_grad():
        student = student_logp(model, every)
        teacher = torch.stack([teacher_logp(model, every, s) for s in range(SKILLS)])
    return World(
        model, every, student.sum(1).exp(), student, teacher, analyzer(model, every), analyzer(earlier, every), beta
    )


def gradient(world: World, per_token: torch.Tensor) -> torch.Tensor:
    """Flat parameter gradient of sum(per_token * log pi(token)), `per_token` [T, LENGTH] held fixed."""
    live = student_logp(world.model, world.every)
    return flat(torch.autograd.grad((per_token.detach() * live).sum(), world.parameters))


def flat(gradients) -> torch.Tensor:
    return torch.cat([g.flatten() for g in gradients])


def trainer_coefficients(world: World, cfg: ObjectiveConfig, term: str = "opd", advantage=None) -> torch.Tensor:
    """d term / d log-prob [S, T, LENGTH] of the trainer's objective; each (skill, trajectory) is a row."""
    count, every = len(world.every.tokens), world.every
    leaf = world.student.repeat(SKILLS, 1).requires_grad_(True)
    mask = every.mask.repeat(SKILLS, 1)
    batch = compose.TokenBatch(
        logp=leaf, logp_old=leaf.detach(), logp_ref=None, logp_teacher=world.teacher.reshape(SKILLS * count, LENGTH),
        entropy=None, advantage=torch.zeros_like(mask) if advantage is None else advantage.repeat(SKILLS, 1),
        mask_policy=mask, mask_opd=mask,
    )
    output = compose.objective(batch, compose.minibatch_denominators(mask, mask, cfg), cfg)
    (found,) = torch.autograd.grad(output.terms[term], leaf)
    return found.reshape(SKILLS, count, LENGTH)


def trainer_gradient(world: World, skill_given_trajectory: torch.Tensor) -> torch.Tensor:
    """E over trajectories and skills of the parameter gradient of the trainer's L_opd, summed over a trajectory's tokens."""
    coefficients = trainer_coefficients(world, ADDITIVE.model_copy(update={"beta": world.beta}))
    weight = world.probability[:, None] * skill_given_trajectory  # [T, S]
    return gradient(world, (weight.T[..., None] * coefficients).sum(0))


def distillation_gradient(world: World) -> torch.Tensor:
    """E_{c ~ d_k}[Z_k(c) grad KL(r_k(. | c) || pi_theta(. | c))], context by context, from the definitions alone."""
    gate = 1.0 / (1.0 + torch.exp(-world.beta * (world.teacher - world.student)))
    joint = world.probability[:, None] * world.skill_now  # P(trajectory, s)
    total = torch.zeros((), dtype=torch.float64)
    for context, rows in contexts(world.every).items():
        place = len(context)
        mass = torch.zeros(VOCABULARY, dtype=torch.float64)
        gated = torch.zeros(VOCABULARY, dtype=torch.float64)
        for row in rows:
            token = int(world.every.tokens[row, place])
            mass[token] += world.probability[row]
            gated[token] += (joint[row] * gate[:, row, place]).sum()
        occupancy, pi, w = mass.sum(), mass / mass.sum(), gated / mass
        r, z = closed_form.target(pi, w)
        live = logp_of_next(world.model, torch.tensor([[START, *context]]))[0, -1]
        total = total + occupancy * z * (torch.xlogy(r, r) - r * live).sum()
    return flat(torch.autograd.grad(total, world.parameters))


def contexts(every: Enumeration) -> dict[tuple[int, ...], list[int]]:
    """Every context (tokens so far) with the trajectories that pass through it."""
    found: dict[tuple[int, ...], list[int]] = {}
    for row, (tokens, length) in enumerate(zip(every.tokens.tolist(), every.lengths.tolist())):
        for place in range(length):
            found.setdefault(tuple(tokens[:place]), []).append(row)
    return found


def score_bound(world: World) -> float:
    """G: the largest parameter-gradient norm of log pi(v | c) over all tokens and contexts."""
    largest = 0.0
    eye = torch.eye(VOCABULARY, dtype=torch.float64)
    for context in contexts(world.every):
        live = logp_of_next(world.model, torch.tensor([[START, *context]]))[0, -1]
        rows = torch.autograd.grad(live, world.parameters, eye, is_grads_batched=True)  # one row per token
        norms = torch.cat([g.reshape(VOCABULARY, -1) for g in rows], 1).norm(dim=1)
        largest = max(largest, norms.max().item())
    return largest


def expected_gate(world: World) -> float:
    """E[sum over a trajectory's tokens of g]."""
    gate = 1.0 / (1.0 + torch.exp(-world.beta * (world.teacher - world.student)))
    weight = (world.probability[:, None] * world.skill_now).T[..., None] * world.every.mask
    return (weight * gate).sum().item()


def mean_bias(world: World, rows: int) -> float:
    """Relative distance of the expected gradient under a token mean over `rows` trajectories from E[sum] / E[tokens].

    Exact: a token mean's expectation needs only each length's gradient and the distribution of the other rows' lengths.
    With `rows` = 1 it is also the bias of the sequence mean of token means, for any minibatch.
    """
    coefficients = trainer_coefficients(world, ADDITIVE.model_copy(update={"beta": world.beta}))
    per_row = (world.skill_now.T[..., None] * coefficients).sum(0) * world.probability[:, None]
    lengths, by_length, chance = world.every.lengths, {}, torch.zeros(LENGTH + 1, dtype=torch.float64)
    for length in range(1, LENGTH + 1):
        chosen = (lengths == length).double()
        by_length[length] = gradient(world, per_row * chosen[:, None])
        chance[length] = (world.probability * chosen).sum()
    others = torch.ones(1, dtype=torch.float64)  # P(total length of the other rows)
    for _ in range(rows - 1):
        others = torch.nn.functional.conv1d(others[None, None], chance.flip(0)[None, None], padding=LENGTH)[0, 0]
    support = torch.arange(len(others))
    expected = sum(rows * g * (others / (support + n).clamp(min=1)).sum() for n, g in by_length.items())
    unbiased = sum(by_length.values()) / (chance * torch.arange(LENGTH + 1)).sum()
    return ((expected - unbiased).norm() / unbiased.norm()).item()


def claims(seed: int, models: int = 3, beta: float | None = None) -> list[ClaimResult]:
    """The propositions on `models` random transformers; instances are their contexts.

    The gradient's tolerance is 1e-6 because Qwen2 normalises (RMSNorm) in float32 whatever the dtype of its weights.
    """
    first = Tally("transformer-opd-gradient", "E[grad_theta L_opd] = E_{c~d_k}[Z_k(c) grad_theta KL(r_k || pi_theta)]", 1e-6)
    tied = Tally("transformer-tied-group", "R equal => grad_theta L_policy = 0 exactly, grad_theta L_opd != 0", 0.0)
    stale = Tally("transformer-staleness", "|U_k(A_k) - U_k(A_j)| <= G E|g_kk - g_kj| <= (beta G / 4) E|D_kk - D_kj|", 1e-12)
    synchronised = Tally("transformer-synchronised", "A_j = A_k => U_k(A_k) = U_k(A_j)", 0.0)
    biases, norms = [], []
    for number in range(models):
        world = make_world(seed + 10 * number, 5.0 if beta is None else beta)
        count = len(contexts(world.every))
        trainer, right = trainer_gradient(world, world.skill_now), distillation_gradient(world)
        largest = score_bound(world)
        # Both sides are at most G E[g]; their own norm would be a bad scale, since it vanishes as the gate flattens.
        scale = largest * expected_gate(world)
        first.identity(trainer / scale, right / scale, count)
        biases.append([mean_bias(world, rows) for rows in (1, 8, 64)])

        returns = torch.full((len(world.every.tokens),), 0.7)
        result = advantages.group_advantages(returns, torch.zeros(len(returns), dtype=torch.long), cfg=ADDITIVE)
        on_tokens = result.advantage_T.double()[:, None] * world.every.mask
        policy = gradient(world, trainer_coefficients(world, ADDITIVE, "policy", on_tokens).sum(0))
        norms.append(trainer.norm().item())
        silent = 0.0 if norms[-1] > 1e-6 else 1.0
        tied.error(max(policy.abs().max().item(), silent), count)

        _staleness(world, trainer, largest, count, stale)
        same = trainer_gradient(world, world.skill_now.clone())
        synchronised.error((same - trainer).abs().max().item(), count)
    worst = [max(column) for column in zip(*biases)]
    bias = "bias of means, relative: " + ", ".join(
        f"{name} {value:.2g}" for name, value in zip(("sequence mean", "token mean of 8 rows", "of 64"), worst)
    )
    return [
        first.result(bias), tied.result(f"|grad L_opd| from {min(norms):.3g} to {max(norms):.3g}"),
        stale.result(), synchronised.result(),
    ]


def _staleness(world: World, trainer: torch.Tensor, largest: float, count: int, tally: Tally) -> None:
    before = trainer_gradient(world, world.skill_before)
    delta = (world.teacher - world.student).permute(1, 0, 2)  # [T, S, LENGTH]
    gate = 1.0 / (1.0 + torch.exp(-world.beta * delta))
    joint = closed_form.maximal_coupling(world.skill_now[..., None], world.skill_before[..., None])
    weight = world.probability[:, None] * world.every.mask
    gaps = [(weight * closed_form.coupled_distance(x, joint)).sum() for x in (gate, delta)]
    left = (trainer - before).norm()
    tally.bound(left[None], largest * gaps[0][None], count)
    tally.bound(largest * gaps[0][None], world.beta / 4 * largest * gaps[1][None], 0)
