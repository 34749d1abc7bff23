"""What the claims look like: tables behind the figures, from the same functions as the claims.

Each study returns a pandas frame in long form.  Nothing here is a measurement of a training run, unless a run's numbers
are passed in.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import compose, losses
from seedlab.objective.ties import tie_probability
from seedlab.theory import bulk, closed_form, expectation


def gate_sensitivity(betas: Sequence[float] = (1, 5, 10, 20), reach: float = 1.0, points: int = 201) -> pd.DataFrame:
    """beta, delta, gate and slope = dg/d delta = beta g (1 - g), for delta in +-reach nats."""
    delta = torch.linspace(-reach, reach, points, dtype=torch.float64)
    rows = []
    for beta in betas:
        g = losses.gate(delta, beta)
        rows.append(pd.DataFrame({"beta": float(beta), "delta": delta, "gate": g, "slope": beta * g * (1 - g)}))
    return pd.concat(rows, ignore_index=True)


def tie_curve(group_sizes: Sequence[int] = (2, 4, 8, 16), points: int = 101) -> pd.DataFrame:
    """group_size, success_rate, tie_probability for independent attempts at one task of that success rate."""
    rates = [i / (points - 1) for i in range(points)]
    return pd.DataFrame(
        [{"group_size": n, "success_rate": p, "tie_probability": tie_probability(p, n)} for n in group_sizes for p in rates]
    )


def analyzer_noise(
    seed: int = 0, draws: int = 400, vocabulary: int = 6, levels: Sequence[float] = (0.0, 0.25, 0.5, 1.0, 2.0),
    correlations: Sequence[float] = (1.0, 0.75, 0.5, 0.25, 0.0, -0.5, -1.0),
) -> pd.DataFrame:
    """Eq. 8's gain where the gate follows the value only in part, over many draws of policy, values and noise.

    Columns: kind, level, draw, gain, relative (gain / gain without noise).  `additive`: w = Q + level * sd(Q) * noise,
    as in a note's experiment; such a w can leave [0, 1], which no gate does.  `clipped`: the same held in [0.01, 1].
    `correlation`: w of a fixed mean and spread whose correlation with Q under pi is exactly the level.  A single draw
    says little: compare the distributions.
    """
    generator = torch.Generator().manual_seed(seed)
    pi = torch.softmax(torch.randn(draws, vocabulary, generator=generator, dtype=torch.float64), -1)
    q = torch.rand(draws, vocabulary, generator=generator, dtype=torch.float64)
    noise = torch.randn(draws, vocabulary, generator=generator, dtype=torch.float64)
    clean = closed_form.value_gain(pi, q, q)
    spread = closed_form.gate_variance(pi, q).sqrt()[:, None]
    rows = []

    def add(kind, level, w, reference):
        gain = closed_form.value_gain(pi, w, q)
        rows.append(pd.DataFrame(
            {"kind": kind, "level": float(level), "draw": range(draws), "gain": gain, "relative": gain / reference}
        ))

    for level in levels:
        noisy = q + level * spread * noise
        add("additive", level, noisy, clean)
        add("clipped", level, noisy.clamp(0.01, 1.0), clean)
    aligned, independent = _orthonormal(pi, q, noise)
    small = 0.05  # keeps w inside (0, 1) for all but extreme tokens
    perfect = closed_form.value_gain(pi, 0.5 + small * aligned, q)
    for level in correlations:
        add("correlation", level, 0.5 + small * (level * aligned + (1 - level**2) ** 0.5 * independent), perfect)
    return pd.concat(rows, ignore_index=True)


def _orthonormal(pi, q, noise):
    """Q and noise as zero-mean, unit-variance and uncorrelated functions under pi."""

    def mean(x):
        return (pi * x).sum(-1, keepdim=True)

    aligned = (q - mean(q)) / closed_form.gate_variance(pi, q).sqrt()[:, None]
    rest = noise - mean(noise) - mean(noise * aligned) * aligned
    return aligned, rest / closed_form.gate_variance(pi, rest).sqrt()[:, None]


def staleness_rounds(
    rounds: int = 20, refresh: Sequence[int | None] = (1, 2, 5, 10, None), start: float = 0.3, drift: float = 0.05,
    beta: float = 5.0,
) -> pd.DataFrame:
    """Gate gap over rounds where the shift of a token grows by `drift` nats per round and the analyzer is only as
    recent as its last refresh (None is never): refresh, round, gap, bound = beta / 4 * |D_kk - D_kj|."""
    rows = []
    for every in refresh:
        for k in range(rounds + 1):
            last = 0 if every is None else k - k % every
            now, stale = (torch.tensor(start + drift * j, dtype=torch.float64) for j in (k, last))
            gap = (losses.gate(now, beta) - losses.gate(stale, beta)).abs().item()
            rows.append({
                "refresh": "never" if every is None else f"every {every}", "round": k, "gap": gap,
                "bound": beta / 4 * (now - stale).abs().item(),
            })
    return pd.DataFrame(rows)


def two_kl_terms(seed: int = 0, steps: int = 200, step_size: float = 0.5, kl_coef: float = 0.3, beta: float = 5.0) -> pd.DataFrame:
    """Descent on OPD plus the KL penalty from pi_theta = pi_ref, r_k held: step, penalty, distillation.

    The penalty KL(pi_theta || pi_ref) starts at 0 and resists; OPD's Z KL(r_k || pi_theta) starts above 0 and pulls.
    The penalty's gradient is the trainer's own (k2), in expectation.
    """
    x = bulk.draw(torch.Generator().manual_seed(seed), 40, 6, 3, beta)
    w = closed_form.mean_gate(x.gate, x.skill_now)
    chosen = closed_form.gate_variance(x.logp.exp(), w).argmax()  # an instance in which the skills do something
    reference = x.logp[chosen][None]
    r, z = closed_form.target(reference.exp(), w[chosen][None])
    logits, rows = reference.clone(), []
    for step in range(steps + 1):
        pi = torch.softmax(logits, -1)
        rows.append({
            "step": step, "penalty": closed_form.kl(pi, reference.exp()).item(),
            "distillation": (z * closed_form.kl(r, pi)).item(),
        })
        pull = z[:, None] * (pi - r)
        resist = kl_coef * expectation.kl_logit_gradient(logits, reference, "k2")
        logits = logits - step_size * (pull + resist)
    return pd.DataFrame(rows)


def net_coefficients(
    lambdas: Sequence[float] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), advantages: Sequence[float] = (1.0, 0.0, -1.0),
    deltas: Sequence[float] = (-0.5, 0.0, 0.5), beta: float = 5.0,
) -> pd.DataFrame:
    """The trainer's net coefficient rho A + lambda g of a token at theta_old: opd_coef, advantage, delta, gate,
    net_coefficient."""
    rows = []
    for lam in lambdas:
        cfg = ObjectiveConfig(opd_coef=lam, beta=beta, kl_coef=0.0)
        a, d = (x.flatten() for x in torch.meshgrid(
            torch.tensor(advantages, dtype=torch.float64), torch.tensor(deltas, dtype=torch.float64), indexing="ij"
        ))
        zero, ones = torch.zeros(1, len(a), dtype=torch.float64), torch.ones(1, len(a), dtype=torch.float64)
        batch = compose.TokenBatch(zero, zero, None, zero + d, None, zero + a, ones, ones)
        out = compose.objective(batch, compose.minibatch_denominators(ones, ones, cfg), cfg)
        rows.append(pd.DataFrame({
            "opd_coef": lam, "advantage": a, "delta": d, "gate": out.gate[0], "net_coefficient": out.net_coefficient[0],
        }))
    return pd.concat(rows, ignore_index=True)


def identities(seed: int = 0, instances: int = 400, vocabulary: int = 12, beta: float | None = 5.0) -> pd.DataFrame:
    """Both sides of Eq. 8, of Proposition 2 and of Proposition 3's inequalities on random instances; from the trainer's
    gradient wherever a gradient is involved."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for x in bulk.chunks(generator, instances, vocabulary, beta):
        pi, w = x.logp.exp(), closed_form.mean_gate(x.gate, x.skill_now)
        now = expectation.opd_logit_gradient(x.logits, x.logp_teacher, x.skill_now, x.beta)
        before = expectation.opd_logit_gradient(x.logits, x.logp_teacher, x.skill_before, x.beta)
        joint = closed_form.maximal_coupling(x.skill_now, x.skill_before)
        largest = closed_form.score_norms(pi).max(-1).values
        rows.append(pd.DataFrame({
            "gain": closed_form.value_gain(pi, w, x.value),
            "covariance": closed_form.value_covariance(pi, w, x.value),
            "norm": closed_form.natural_norm_squared(now, pi),
            "variance": closed_form.gate_variance(pi, w),
            "stale_gap": (now - before).norm(dim=-1),
            "gate_bound": largest * (pi * closed_form.coupled_distance(x.gate, joint)).sum(-1),
            "delta_bound": x.beta / 4 * largest * (pi * closed_form.coupled_distance(x.delta, joint)).sum(-1),
        }))
    return pd.concat(rows, ignore_index=True)


def worked_example(beta: float = 5.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """An instance of our own: five tokens, one certain skill.  Returns its token table (token, pi, delta, gate, target,
    value, trainer_gradient, closed_form) and a one-row table of Z, both sides of Eq. 8 and of Proposition 2."""
    pi = torch.tensor([[0.30, 0.25, 0.20, 0.15, 0.10]], dtype=torch.float64)
    teacher = torch.tensor([[[0.15, 0.30, 0.35, 0.15, 0.05]]], dtype=torch.float64)
    value = torch.tensor([[0.2, 0.5, 0.8, 0.4, 0.1]], dtype=torch.float64)
    delta = (teacher.log() - pi.log()[:, None])[0, 0]
    w = losses.gate(delta, beta)[None]
    r, z = closed_form.target(pi, w)
    trainer = expectation.opd_logit_gradient(pi.log(), teacher.log(), torch.ones_like(teacher), beta)
    tokens = pd.DataFrame({
        "token": ["open drawer", "go to desk", "take mug", "look", "wait"], "pi": pi[0], "delta": delta, "gate": w[0],
        "target": r[0], "value": value[0], "trainer_gradient": trainer[0],
        "closed_form": closed_form.opd_logit_gradient(pi, w)[0],
    })
    summary = pd.DataFrame([{
        "Z": z.item(), "E_r[Q] - E_pi[Q]": closed_form.value_gain(pi, w, value).item(),
        "Cov(Q, w) / Z": closed_form.value_covariance(pi, w, value).item(),
        "gradient norm squared": closed_form.natural_norm_squared(trainer, pi).item(),
        "Var[w]": closed_form.gate_variance(pi, w).item(),
    }])
    return tokens, summary


def measured_ties(metrics: pd.DataFrame) -> pd.DataFrame:
    """Columns update, success_rate and tie_rate of a run's metrics (`open_run(path).metrics`), for `tie_figure`."""
    names = {"update": "update", "rollout/success": "success_rate", "rollout/tie_rate": "tie_rate"}
    missing = [n for n in names if n not in metrics]
    if missing:
        raise ValueError(f"the run has no {', '.join(missing)}; it has not finished an update")
    return metrics[list(names)].rename(columns=names).dropna()
