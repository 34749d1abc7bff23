"""Several runs as arms (one method, several seeds), and their numbers as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from seedlab.config.presets import config_hash
from seedlab.config.schema import Config
from seedlab.store.errors import RunError
from seedlab.store.reader import Run, open_run

PHASES = ("rollout", "analyzer", "teacher", "reference", "student", "diagnostics", "store")
MEASURES = ("success_macro", "success_micro")


@dataclass
class Arm:
    """Runs of one method that differ in their seed.  `problems` names each folder that could not be read, and why."""

    name: str
    runs: dict[int, Run] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _metrics: dict[int, pd.DataFrame] = field(default_factory=dict)

    @property
    def config(self) -> Config | None:
        return next((run.config for run in self.runs.values()), None)

    @property
    def role(self) -> str:
        """`grpo-base`, `grpo-sft`, `seed-base`, `seed-sft`, `start-base`, `start-sft` (no Stage 2), `shuffled`, or `other`; from the settings, not the name."""
        return "other" if self.config is None else role_of(self.config)

    def metrics(self, seed: int) -> pd.DataFrame:
        """The run's metrics by update, read once.  [updates, names]"""
        if seed not in self._metrics:
            self._metrics[seed] = self.runs[seed].metrics.set_index("update")
        return self._metrics[seed]

    def curve(self, metric: str) -> pd.DataFrame:
        """[updates, seeds] of one metric, NaN where a run lacks it; no column for a run that never has it."""
        found = {seed: self.metrics(seed)[metric] for seed in self.runs if metric in self.metrics(seed)}
        return pd.DataFrame(found).sort_index().dropna(how="all") if found else pd.DataFrame()

    @property
    def unfinished(self) -> list[int]:
        """Seeds whose run has fewer updates than its configuration plans."""
        return [s for s, run in self.runs.items() if len(self.metrics(s)) < run.config.stage2.updates]

    def late_mean(self, metric: str, share: float = 0.25) -> dict[int, float]:
        """By seed: mean over the last `share` of the updates that have the metric.

        An unfinished run has no last part yet, so that it is left out, unless no run of the arm is finished.
        """
        return self._part_mean(metric, share, last=True)

    def early_mean(self, metric: str, share: float = 0.25) -> dict[int, float]:
        """As `late_mean`, over the first `share`, for the same seeds."""
        return self._part_mean(metric, share, last=False)

    def _part_mean(self, metric: str, share: float, last: bool) -> dict[int, float]:
        out, partial = {}, set(self.unfinished)
        left_out = partial if partial < set(self.runs) else set()
        for seed, column in self.curve(metric).items():
            values = column.dropna() if seed not in left_out else column[:0]
            count = max(1, round(len(values) * share))
            if len(values):
                out[seed] = float((values.iloc[-count:] if last else values.iloc[:count]).mean())
        return out


def role_of(cfg: Config) -> str:
    """What an arm is for in the comparison; what it does decides, not what its method is called."""
    objective = cfg.objective
    start = "sft" if starts_from_stage1(cfg) else "base"
    if "library" in (cfg.rollout.skill, cfg.evaluation.skill) or (objective.opd_coef and objective.opd_form != "gate"):
        return "other"
    if cfg.stage2.updates == 0:
        return f"start-{start}"
    if objective.rl_coef == 0:
        return "other"
    if (objective.advantage, objective.ratio, objective.skill_advantage) != ("grpo", "token", "none"):
        return "other"
    if objective.opd_coef == 0:
        return f"grpo-{start}"
    return {"own": f"seed-{start}", "shuffled": "shuffled"}.get(objective.skill_from, "other")


def starts_from_stage1(cfg: Config) -> bool:
    """`initial=stage1` has no effect where Stage 1 is switched off."""
    return cfg.initial == "stage1" and cfg.stage1.enabled


def load_arms(arms: Mapping[str, Sequence[Path | str]]) -> list[Arm]:
    """Open every run; a folder that cannot be read, or whose seed the arm already has, becomes a problem of its arm."""
    out = []
    for name, folders in arms.items():
        arm = Arm(name)
        for folder in folders:
            try:
                run = open_run(folder)
                seed = run.config.seed
                if seed in arm.runs:
                    raise RunError(f"{folder} has seed {seed}, as {arm.runs[seed].path} has; give one run per seed")
                arm._metrics[seed] = run.metrics.set_index("update")
                _read_whole(run)
                arm.runs[seed] = run
            except RunError as error:
                arm.problems.append(str(error))
        arm.runs = dict(sorted(arm.runs.items()))
        arm._metrics = {seed: arm._metrics[seed] for seed in arm.runs}
        out.append(arm)
    return out


def _read_whole(run: Run) -> None:
    """RunError for what an arm does not keep, but what its figures and tables will ask for."""
    run.evaluations, run.stage1
    for update in run.updates:
        run.tables("updates", update)


# What every function of this package takes: arms that were loaded, one run folder (or folder of runs), or several.
Runs = Sequence[Arm] | Sequence[Path | str] | Path | str


def load(runs: Runs) -> list[Arm]:
    """Arms of the given run folders, grouped by method, start and settings; arms come back as they are.

    Raises RunError where a folder is no run.
    """
    if isinstance(runs, (str, Path)):
        runs = [runs]
    if all(isinstance(arm, Arm) for arm in runs):
        return list(runs)
    return load_arms(group_runs(runs))


def arm_name(cfg: Config) -> str:
    """A readable name from what the arm does and where it starts."""
    role = role_of(cfg)
    if role.startswith("start-"):
        return f"{'θ_sft' if starts_from_stage1(cfg) else 'base'} without Stage 2"
    method = {"shuffled": "SEED shuffled skills", "other": cfg.method}.get(role, role.split("-")[0].upper())
    return f"{method} from {'θ_sft' if starts_from_stage1(cfg) else 'base'}"


def group_runs(folders: Sequence[Path | str]) -> dict[str, list[Path]]:
    """Run folders by arm: method and start; runs that differ in other settings too are told apart by their cell hash.

    A folder of runs stands for the runs in it.  Raises RunError where one is no run.
    """
    cells: dict[tuple[str, str], list[Path]] = {}
    for folder in [path for given in folders for path in _runs_in(Path(given))]:
        cfg = open_run(folder).config
        cells.setdefault((arm_name(cfg), config_hash(cfg, exclude_seed=True)), []).append(folder)
    names = [name for name, _ in cells]
    return {(name if names.count(name) == 1 else f"{name} [{cell[:6]}]"): paths for (name, cell), paths in cells.items()}


def _runs_in(folder: Path) -> list[Path]:
    if (folder / "config.json").exists() or not folder.is_dir():
        return [folder]
    inside = sorted(p.parent for p in folder.glob("*/config.json"))
    return inside or [folder]


def evaluation_frame(arms: Sequence[Arm]) -> pd.DataFrame:
    """One row per (arm, seed, panel): the last evaluation's macro and micro success, episodes, by_type, hash, decoding."""
    rows = []
    for arm in arms:
        for seed, run in arm.runs.items():
            frame = run.evaluations
            if len(frame) == 0:
                continue
            for row in frame[frame["update"] == frame["update"].max()].to_dict("records"):
                rows.append({"arm": arm.name, "seed": seed, **row})
    return pd.DataFrame(rows, columns=None if rows else ["arm", "seed", "panel", "update", *MEASURES, "episodes", "by_type"])


def scores(evaluations: pd.DataFrame, arm: str, panel: str, measure: str) -> dict[int, float]:
    """By seed: an arm's score on a panel; seeds without a defined score are absent."""
    part = evaluations[(evaluations["arm"] == arm) & (evaluations["panel"] == panel)]
    return {int(s): float(v) for s, v in zip(part["seed"], part[measure]) if v == v}


def token_updates(run: Run) -> list[int]:
    """Updates whose tokens are stored."""
    return [u for u in run.updates if "tokens" in run.tables("updates", u)]
