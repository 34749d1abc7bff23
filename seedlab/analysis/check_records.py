"""What the records of an update must be, recomputed apart from the code that made them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.special import expit

from seedlab.config.schema import Config, ObjectiveConfig

GATE_TOLERANCE = 1e-5  # float32, β up to 100
ADVANTAGE_TOLERANCE = 1e-5
REPLAY_TOLERANCE = 1e-3  # nats between the cached sampler and the batched scorer, float32
GRADIENT_JUMP = 100.0  # times the median norm; ordinary updates of one run differ by a factor of a few
LEAST_IDS = 4  # a shorter run of ids occurs by chance


def expected_gate(delta, beta: float) -> np.ndarray:
    """sigma(beta Δ) in float64, from the stored float32 Δ."""
    return expit(beta * np.asarray(delta, dtype=np.float64))


@dataclass(frozen=True)
class Advantages:
    advantage: np.ndarray
    tied: np.ndarray


def expected_advantages(trajectories: pd.DataFrame, steps: pd.DataFrame, cfg: ObjectiveConfig) -> Advantages:
    """A = (R' - mean) / (std + eps) within each task's group, R' = R - penalty * unparseable steps; 0 for a tied group.

    With `group_statistics=steps` the value is that of a trajectory's valid steps.  Infrastructure failures are outside
    every group.
    """
    returns = trajectories["return"].to_numpy(dtype=np.float64)
    played = ((trajectories["infra_failure"] == "") & trajectories["return"].notna()).to_numpy()
    per_trajectory = steps.groupby("trajectory")["parsed"]
    total = trajectories["id"].map(per_trajectory.size()).fillna(0).to_numpy(dtype=np.float64)
    invalid = total - trajectories["id"].map(per_trajectory.sum()).fillna(0).to_numpy(dtype=np.float64)
    advantage, tied = np.zeros(len(returns)), np.zeros(len(returns), dtype=bool)
    for task in trajectories["task"].unique():
        members = np.flatnonzero((trajectories["task"] == task).to_numpy() & played)
        if len(members) == 0:
            continue
        if cfg.group_statistics == "steps":
            values = np.concatenate([returns[members], returns[members] - cfg.invalid_penalty])
            weights = np.concatenate([total[members] - invalid[members], invalid[members]])
        else:
            values, weights = returns[members] - cfg.invalid_penalty * invalid[members], np.ones(len(members))
        result, flat = _standardised(values, weights, cfg)
        advantage[members], tied[members] = result[: len(members)], flat
    return Advantages(advantage, tied)


def _standardised(values: np.ndarray, weights: np.ndarray, cfg: ObjectiveConfig) -> tuple[np.ndarray, bool]:
    count, used = weights.sum(), weights > 0
    if count == 1 and cfg.group_of_one == "identity":
        return values, False
    if count <= 1 or np.ptp(values[used]) == 0:
        return np.zeros_like(values), True
    mean = (weights * values).sum() / count
    if cfg.advantage == "rloo":
        # R - mean of the others = (R - mean) n / (n - 1)
        return (values - mean) * count / (count - 1), False
    if cfg.advantage_scale == "mean":
        return values - mean, False
    deviation = np.sqrt((weights * (values - mean) ** 2).sum() / (count - cfg.advantage_ddof))
    return (values - mean) / (deviation + cfg.advantage_eps), False


def token_mismatch(tokens: pd.DataFrame, steps: pd.DataFrame, trajectories: pd.DataFrame) -> str | None:
    """The first difference between the tokens' table and the sampled responses; None where they agree."""
    failed = set(trajectories.loc[trajectories["infra_failure"] != "", "id"])
    sampled = steps.loc[~steps["trajectory"].isin(failed), ["trajectory", "step", "response_ids", "logprobs"]]
    sizes = sampled["response_ids"].map(len)
    if not (sizes == sampled["logprobs"].map(len)).all():
        return "a step has another number of log-probs than of response ids"
    sampled = sampled[sizes > 0].explode(["response_ids", "logprobs"])
    sampled["position"] = sampled.groupby(["trajectory", "step"]).cumcount()
    key = ["trajectory", "step", "position"]
    if tokens.duplicated(key).any():
        return f"{tuple(tokens.loc[tokens.duplicated(key), key].iloc[0])} stands twice among the tokens"
    joined = tokens[[*key, "token_id", "logp_rollout"]].merge(sampled, on=key, how="outer", indicator=True)
    lone = joined[joined["_merge"] != "both"]
    if len(lone):
        row = lone.iloc[0]
        where = "was sampled but is not among the tokens" if row["_merge"] == "right_only" else "is among the tokens but was not sampled"
        return f"{row['trajectory']} step {row['step']} position {row['position']} {where} ({len(lone)} such)"
    other = joined[joined["token_id"].astype(int) != joined["response_ids"].astype(int)]
    if len(other):
        row = other.iloc[0]
        return f"{row['trajectory']} step {row['step']} position {row['position']} has token {row['token_id']}, but {row['response_ids']} was sampled"
    gap = (joined["logp_rollout"].astype(float) - joined["logprobs"].astype(float)).abs()
    if not (gap <= 1e-6).all():
        row = joined[~(gap <= 1e-6)].iloc[0]
        return f"{row['trajectory']} step {row['step']} position {row['position']} has logp_rollout {row['logp_rollout']}, the sampler said {row['logprobs']}"
    return None


def mask_mismatch(tokens: pd.DataFrame, trajectories: pd.DataFrame, skills: pd.DataFrame, cfg: Config) -> str | None:
    """The first token that learns where it must not, or that is left out of the policy term; None where masks are right.

    The policy term covers every sampled token; infrastructure failures have no tokens at all.  Distillation may cover a
    token only where the policy term does, inside `objective.where`, with a usable skill to read.
    """
    key = ["trajectory", "step", "position"]
    failed = set(trajectories.loc[trajectories["infra_failure"] != "", "id"])
    stray = tokens.loc[~tokens["trajectory"].isin(trajectories["id"]), "trajectory"]
    if len(stray):
        return f"{len(stray)} tokens belong to {stray.iloc[0]}, which is not among the trajectories"
    owner = trajectories.set_index("id").loc[tokens["trajectory"]]
    taught = tokens["mask_opd"].to_numpy()
    objective, usable = cfg.objective, set(skills.loc[skills["accepted"], "trajectory"])
    needs_skill = objective.skill_from == "shuffled" or (objective.skill_from in ("own", "scripted", "external") and cfg.analyzer.drop_unusable)
    allowed = {
        "all": np.ones(len(tokens), dtype=bool), "tied": owner["tied"].to_numpy(), "successes": owner["success"].to_numpy(),
        "failures": ~owner["success"].to_numpy(),
    }[objective.where]  # fmt: skip
    rules = (
        ("was sampled but is masked out of the policy term", ~(tokens["mask_policy"].to_numpy() | tokens["trajectory"].isin(failed).to_numpy())),
        ("learns although the infrastructure failed in its episode", (tokens["mask_policy"].to_numpy() | taught) & tokens["trajectory"].isin(failed).to_numpy()),
        ("is distilled by a method without distillation", taught & (not objective.uses_teacher)),
        (f"is distilled outside objective.where={objective.where}", taught & ~allowed),
        ("is distilled although its trajectory has no accepted skill", taught & needs_skill & ~tokens["trajectory"].isin(usable).to_numpy()),
    )
    for problem, wrong in rules:
        if wrong.any():
            row = tokens.loc[wrong, key].iloc[0]
            return f"{row['trajectory']} step {row['step']} position {row['position']} {problem} ({int(wrong.sum())} such tokens)"
    return None


def panel_hash(tasks: Sequence[str]) -> str:
    """The hash by which a panel is named: SHA-256 over its task ids, one a line, 16 digits."""
    return hashlib.sha256("\n".join(tasks).encode()).hexdigest()[:16]


@dataclass
class Leaks:
    """`leaks`: (skill text, trajectory, step); `searched` and `too_short` count skill texts."""

    searched: int = 0
    too_short: int = 0
    leaks: list[tuple[str, str, int]] = field(default_factory=list)


def leaked_skills(texts: Sequence[str], steps: pd.DataFrame, tokenizer) -> Leaks:
    """Skill texts whose token ids stand in a stored prompt.

    The first and last ids are left out of the search: there a tokenizer may join the text with its surroundings.
    """
    found = Leaks()
    prompts = [np.asarray(ids, dtype=np.int32) for ids in steps["prompt_ids"]]
    # One haystack: -1 is no id, so that nothing is found across two prompts.
    haystack = np.concatenate([np.append(ids, np.int32(-1)) for ids in prompts]).astype(np.int32).tobytes() if prompts else b""
    ends = np.cumsum([len(ids) + 1 for ids in prompts])
    for text in texts:
        needle = np.asarray(tokenizer.encode(text, add_special_tokens=False).ids[1:-1], dtype=np.int32)
        if len(needle) < LEAST_IDS:
            found.too_short += 1
            continue
        found.searched += 1
        place = _find_aligned(haystack, needle.tobytes())
        if place is not None:
            row = steps.iloc[int(np.searchsorted(ends, place, side="right"))]
            found.leaks.append((text, row["trajectory"], int(row["step"])))
    return found


def _find_aligned(haystack: bytes, needle: bytes) -> int | None:
    """Index of the first id of `needle` in `haystack`, both int32; a match across ids is passed over."""
    place = haystack.find(needle)
    while place >= 0 and place % 4:
        place = haystack.find(needle, place + 1)
    return place // 4 if place >= 0 else None
