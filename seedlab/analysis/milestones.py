"""``seedlab milestones``: how far a run takes you on the learning path (docs/learning_path.md), each step verified.

Steps that a check of the run verifies carry that check's name; the others are verified here.  Nothing needs weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seedlab.analysis.check_results import FAILED, NOT_CHECKED, PASSED, Broken, CheckResult, Skipped
from seedlab.analysis.checks import check_run
from seedlab.analysis.settings import paper_differences
from seedlab.analysis.stage1 import sample
from seedlab.config.reference import PAPER
from seedlab.errors import UserError
from seedlab.store.reader import Run, open_run

LEVELS = {1: "understand", 2: "minimal reproduction", 3: "full reproduction on 8 GPUs"}
TABLES = ("Table 3", "Table 5")
GPUS = 8  # the paper: 8 x A800 80 GB
SEEDS_NOTE = "one run is one seed; `seedlab compare` takes several and gives intervals"


@dataclass(frozen=True)
class Milestone:
    """`state` is passed, failed (it should hold and does not) or not checked (the run is not of that kind, or not so far)."""

    level: int
    name: str
    state: str
    detail: str


def milestones(path: str | Path) -> list[Milestone]:
    """Every milestone for a run folder.  Raises RunError where it is none."""
    run = open_run(path)
    checks = {result.name: result for result in check_run(path)}
    out = []
    for level, name, how in PATH:
        result = checks[how] if isinstance(how, str) else _answer(name, how, run)
        out.append(Milestone(level, name, result.state, result.detail))
    return out


def _answer(name: str, verify: Callable[[Run], str], run: Run) -> CheckResult:
    try:
        return CheckResult(name, PASSED, verify(run))
    except Broken as error:
        return CheckResult(name, FAILED, str(error))
    except (Skipped, UserError) as error:
        return CheckResult(name, NOT_CHECKED, str(error))


def _both_stages(run: Run) -> str:
    record = run.stage1
    if record is None:
        raise Skipped(f"the run has no Stage 1 (initial={run.config.initial}); look at one that starts from theta_sft")
    if not run.updates:
        raise Skipped("the run has finished no update of Stage 2 yet")
    skills = sum(len(run.skills(update)) for update in run.updates)
    return f"{record['trajectories']} trajectories, {record['accepted']} accepted labels, {record['sft_steps']} SFT steps; then {len(run.updates)} updates with {skills} own skills"


def _replayed(run: Run) -> str:
    """The first rollout's actions give the same observations and the same outcome again in a fresh environment."""
    from seedlab.envs import make_family

    if not run.updates:
        raise Skipped("the run has no stored rollout yet")
    trajectory = next((t for t in run.records(run.updates[0]) if t.steps and not t.infra_failure), None)
    if trajectory is None:
        raise Skipped("no rollout of the first update was played to its end")
    env = make_family(run.config.env).make(trajectory.task_id)
    try:
        seen, won = env.reset(), False
        for number, step in enumerate(trajectory.steps):
            if seen != step.observation:
                raise Broken(f"{trajectory.id}: step {number} shows {seen!r}, the record has {step.observation!r}")
            result = env.step(step.action)
            seen, won = result.observation, result.info.won
    finally:
        env.close()
    if won != trajectory.success or seen != trajectory.final_observation:
        raise Broken(f"{trajectory.id}: the replay ends with {seen!r} (won: {won}), the record with {trajectory.final_observation!r}")
    return f"{trajectory.id}: {len(trajectory.steps)} steps, every observation and the outcome as recorded"


def _traced(run: Run) -> str:
    found = sample(run, 0)
    if not found.label["accepted"] or found.row["skill"] != found.label["text"] or found.trajectory["id"] != found.row["trajectory"]:
        raise Broken(f"SFT row 0 and its label disagree: {found.row} against {found.label}")
    return f"SFT row 0, label by {found.label['analyzer']}, trajectory {found.trajectory['id']}: one chain"


def _evaluated(run: Run) -> str:
    frame = run.evaluations
    if frame.empty:
        raise Skipped("the run has no evaluation yet")
    last = frame[frame["update"] == frame["update"].max()]
    scores = [f"{r['panel']} macro {r['success_macro']:.3f}, micro {r['success_micro']:.3f} ({r['episodes']} episodes)" for r in last.to_dict("records")]
    return f"{'; '.join(scores)}; {SEEDS_NOTE}"


def _tables(run: Run) -> str:
    """Every key of the paper's Tables 3 and 5 has the paper's value."""
    config = run.config
    if config.env.name not in PAPER:
        raise Skipped(f"the paper has no column for env.name={config.env.name}")
    keys = [key for key, reference in PAPER[config.env.name].items() if reference.source in TABLES]
    differing = [key for key in paper_differences(config).index if key in keys]
    if differing:
        raise Skipped(f"not the paper's scale: {len(differing)} of {len(keys)} values of Tables 3 and 5 differ ({', '.join(differing[:6])}, …)")
    return f"all {len(keys)} values of Tables 3 and 5"


def _panel_sizes(run: Run) -> str:
    """The manifest's panels have the sizes of the configuration, which `_tables` compares with Table 3."""
    _tables(run)
    wanted = {name: size for name, size in run.config.env.panel_sizes.items() if size}
    there = {name: entry["tasks"] for name, entry in run.manifest["panels"].items() if entry["tasks"]}
    if wanted != there:
        raise Broken(f"the configuration has panels {wanted}, the manifest {there}")
    return ", ".join(f"{name} {size}" for name, size in there.items())


def _hardware(run: Run) -> str:
    gpus = run.manifest["hardware"].get("gpus", [])
    if len(gpus) < GPUS:
        raise Skipped(f"the run's machine had {len(gpus)} GPUs, the paper's {GPUS} of 80 GB")
    return ", ".join(map(str, gpus))


def _all_updates(run: Run) -> str:
    _tables(run)
    planned, state = run.config.stage2.updates, run.status["state"]
    if state != "succeeded" or len(run.metrics) < planned:
        raise Skipped(f"{len(run.metrics)} of {planned} updates, {state}")
    return f"{planned} updates, {state}"


# (level, milestone, how it is verified: the name of a check of `seedlab check`, or a function)
PATH: tuple[tuple[int, str, str | Callable[[Run], str]], ...] = (
    (1, "both stages are in the run", _both_stages),
    (1, "one rollout replayed", _replayed),
    (1, "one SFT sample traced", _traced),
    (1, "the inference boundary: no skill in a prompt that is acted on", "no skill in a rollout prompt"),
    (1, "the same tokens' scores with and without the skill", "skills change log-probs"),
    (1, "the gate is sigmoid(beta Δ)", "gate = sigmoid(beta Δ)"),
    (2, "advantages recomputed, 0 in tied groups", "advantages"),
    (2, "trained tokens are the sampled tokens", "token ids as sampled"),
    (2, "a non-zero, stable OPD signal", "OPD gradient"),
    (2, "panels are disjoint and hashed", "panels are disjoint and hashed"),
    (2, "every panel task evaluated once", "every panel task evaluated once"),
    (2, "evaluated, macro and micro", _evaluated),
    (3, "hyper-parameters and data of Tables 3 and 5", _tables),
    (3, "panels of the manifest as in Table 3", _panel_sizes),
    (3, "the paper's hardware", _hardware),
    (3, "all updates done", _all_updates),
)
