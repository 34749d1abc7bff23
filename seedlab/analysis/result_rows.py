"""Tables for the docs from committed rows of finished runs (results/*.jsonl); no run folder is needed.

``python -m seedlab.analysis.result_rows results/alfworld_tiny.jsonl --write docs/results.md`` puts them between
the page's markers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from seedlab.analysis.compare import show_interval
from seedlab.analysis.frames import arm_name
from seedlab.analysis.statistics import mean_interval, paired_difference
from seedlab.config.explain import replaced_between
from seedlab.config.presets import from_json
from seedlab.errors import UserError
from seedlab.store.files import tail_rows

Rows = dict[str, dict[int, dict]]  # arm: seed: row


def read_result_rows(path: Path | str) -> Rows:
    """Rows of a results file by arm and seed; the later of two rows of the same seed counts.

    Raises UserError, naming the file, where there is no row or an arm's runs differ in more than the seed.
    """
    arms: Rows = {}
    for row in tail_rows(Path(path))[0]:
        cfg = from_json(json.dumps(row["config"]), f"{path}, a row of {row['method']} with seed {row['seed']}")
        arms.setdefault(arm_name(cfg), {})[row["seed"]] = row
    if not arms:
        raise UserError(f"{path} has no row; `seedlab train ... --results {path}` appends the row of a finished run")
    for arm, by_seed in arms.items():
        if len({row["cell_hash"] for row in by_seed.values()}) > 1:
            raise UserError(f"{path}: the runs of {arm} differ in more than the seed; keep them in files of their own")
    return {arm: dict(sorted(by_seed.items())) for arm, by_seed in arms.items()}


def evaluation_lines(arms: Rows, panel: str) -> list[str]:
    """A Markdown table of one panel: task types, macro and micro by arm, and the paired difference of the first two.

    Cells are the mean over seeds with its 95 % t interval.  Raises UserError where the arms were not evaluated on the
    same tasks with the same decoding.
    """
    evaluated = {arm: {s: r["evaluations"][panel] for s, r in rows.items() if panel in r["evaluations"]} for arm, rows in arms.items()}
    evaluated = {arm: by_seed for arm, by_seed in evaluated.items() if by_seed}
    every = [e for by_seed in evaluated.values() for e in by_seed.values()]
    if len({(e["panel_hash"], json.dumps(e["decoding"], sort_keys=True)) for e in every}) != 1:
        raise UserError(f"panel {panel} has not the same tasks and decoding in all rows, or is in none: it gives no table")
    names = list(evaluated)
    paired = len(names) >= 2
    columns = [f"{name} ({len(evaluated[name])} seeds)" for name in names] + ([f"{names[1]} minus {names[0]}"] if paired else [])
    lines = [f"| {panel} | games | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    kinds = sorted(every[0]["by_type"])
    for kind in (*kinds, "macro", "micro"):
        values = {name: {s: _score(e, kind) for s, e in by_seed.items()} for name, by_seed in evaluated.items()}
        cells = [show_interval(mean_interval(v.values())) for v in values.values()]
        if paired:
            cells.append(show_interval(paired_difference(values[names[1]], values[names[0]]), signed=True))
        games = every[0]["by_type"][kind]["episodes"] if kind in kinds else every[0]["episodes"]
        lines.append(f"| {kind} | {games} | " + " | ".join(cells) + " |")
    return lines


def _score(evaluation: dict, kind: str) -> float:
    if kind in ("macro", "micro"):
        return evaluation[f"success_{kind}"]
    part = evaluation["by_type"][kind]
    return part["successes"] / part["episodes"]


def training_lines(arms: Rows) -> list[str]:
    """A Markdown table of the runs: training success and tie rate in the first and the last half, seconds of the updates."""
    lines = ["| arm | seed | updates | success, first half | last half | tie rate, first half | last half | seconds |", "|---" * 8 + "|"]
    for arm, rows in arms.items():
        for seed, row in rows.items():
            if not row["updates"]:
                continue  # a policy without Stage 2 is there to compare with
            cells = [text for name in ("rollout/success", "rollout/tie_rate") for text in _halves(row["curves"][name])]
            lines.append(f"| {arm} | {seed} | {row['updates']} | " + " | ".join(cells) + f" | {row['seconds']:.0f} |")
    return lines


def _halves(curve: Sequence[float | None]) -> tuple[str, str]:
    half = len(curve) // 2
    parts = [[v for v in part if v is not None] for part in (curve[:half], curve[half:])]
    return tuple(f"{sum(p) / len(p):.3f}" if p else "—" for p in parts)


def tables(path: Path | str) -> str:
    """All tables of a results file, in Markdown."""
    arms = read_result_rows(path)
    panels = dict.fromkeys(p for rows in arms.values() for row in rows.values() for p in row["evaluations"])
    return "\n\n".join("\n".join(part) for part in [*(evaluation_lines(arms, p) for p in panels), training_lines(arms)])


def with_current_rows(page: str, results: Path | str, source: str = "the page") -> str:
    """`page` with the tables of `results` between its markers, which name the file."""
    name = Path(results).name
    return replaced_between(page, f"<!-- begin: rows of {name} -->", f"<!-- end: rows of {name} -->", tables(results), source)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m seedlab.analysis.result_rows", description=__doc__.splitlines()[0])
    parser.add_argument("results", help="such as results/alfworld_tiny.jsonl")
    parser.add_argument("--write", metavar="PAGE", help="put the tables between the markers of this file")
    args = parser.parse_args(argv)
    try:
        if args.write:
            page = Path(args.write)
            page.write_text(with_current_rows(page.read_text(encoding="utf-8"), args.results, args.write), encoding="utf-8")
        else:
            print(tables(args.results))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
