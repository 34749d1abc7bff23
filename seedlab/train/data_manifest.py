"""Which tasks a configuration uses, against the paper's Table 3, and what the parts share.

The paper gives numbers only: 180 tasks for Stage 1, 2,400 for RL, 140 and 134 for evaluation.  It does not say whether
Stage-1 and RL tasks overlap; here they are disjoint, and this page counts it instead of promising it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

from seedlab.config.reference import PAPER, Reference
from seedlab.config.schema import Config
from seedlab.envs.base import FamilyBase
from seedlab.train.tasks import tasks_of_update


@dataclass(frozen=True)
class Count:
    """A number of ours beside the paper's; `paper` is None where the paper has none for this environment."""

    what: str
    here: int
    paper: int | None

    @property
    def agrees(self) -> bool:
        return self.paper is None or self.here == self.paper


def data_manifest(cfg: Config, family: FamilyBase) -> dict:
    """Panels with hashes and counts per task type, the draws of all updates, overlaps, and the comparison with Table 3.

    Keys: `panels`, `rl`, `overlap` (pairs of panels that share a task or, for official games, a task folder or a
    scene), `counts`, `agrees`, `notes` (what is missing from the data).
    """
    panels = family.panels()
    paper = PAPER.get(cfg.env.name, {})
    updates, per_update = cfg.stage2.updates, cfg.stage2.tasks_per_update
    train = panels["train"]
    draws = [
        t for u in range(updates) for t in tasks_of_update(train, seed=cfg.seed, update=u, tasks_per_update=per_update)
    ]
    counts = [
        _count("Stage-1 tasks", min(cfg.stage1.tasks, len(panels["stage1"].task_ids)), paper.get("stage1.tasks")),
        _count("Stage-1 trajectories", cfg.stage1.tasks * cfg.stage1.rollouts_per_task, _product(paper, "stage1.tasks", "stage1.rollouts_per_task")),
        _count("RL tasks drawn", len(draws), paper.get("env.panel_sizes.train")),
        *(_count(f"evaluation tasks, {name}", len(panels[name].task_ids), paper.get(f"env.panel_sizes.{name}")) for name in ("seen", "unseen")),
    ]  # fmt: skip
    kind = _kind_of(family)
    return {
        "schema_version": 1, "preset": cfg.preset, "environment": cfg.env.name, "data": cfg.env.data, "seed": cfg.seed,
        "panels": {
            name: {"tasks": len(p.task_ids), "hash": p.hash, "by_type": dict(Counter(map(kind, p.task_ids)))}
            for name, p in panels.items()
        },
        "rl": {
            "updates": updates, "tasks_per_update": per_update, "draws": len(draws), "distinct": len(set(draws)),
            "drawn_in_stage1": len(set(draws) & set(panels["stage1"].task_ids)), "by_type": dict(Counter(map(kind, draws))),
        },
        "overlap": [_overlap(a, b, panels[a].task_ids, panels[b].task_ids) for a, b in combinations(panels, 2)],
        "counts": [{"what": c.what, "here": c.here, "paper": c.paper, "agrees": c.agrees} for c in counts],
        "agrees": all(c.agrees for c in counts), "notes": list(getattr(family, "notes", ())),
    }  # fmt: skip


def _count(what: str, here: int, paper: Reference | int | None) -> Count:
    return Count(what, here, paper.value if isinstance(paper, Reference) else paper)


def _product(paper: dict[str, Reference], *keys: str) -> int | None:
    if any(key not in paper for key in keys):
        return None
    out = 1
    for key in keys:
        out *= paper[key].value
    return out


def _kind_of(family: FamilyBase):
    return lambda task_id: next((t for t in family.task_types if f"/{t}-" in task_id), "other")


def _overlap(a: str, b: str, first: tuple[str, ...], second: tuple[str, ...]) -> dict:
    out = {"panels": [a, b], "tasks": len(set(first) & set(second))}
    if all(i.startswith("alfworld/") for i in (*first, *second)):
        for name, part in (("task_folders", lambda i: i.split("/")[2]), ("scenes", lambda i: i.split("/")[2].rsplit("-", 1)[1])):
            out[name] = len({part(i) for i in first} & {part(i) for i in second})
    return out


def manifest_text(manifest: dict) -> str:
    """The manifest as lines for people."""
    lines = [f"{manifest['preset']}: {manifest['environment']}, {manifest['data'] or 'generated tasks'}, seed {manifest['seed']}"]
    for name, panel in manifest["panels"].items():
        kinds = "  ".join(f"{kind} {n}" for kind, n in panel["by_type"].items())
        lines.append(f"  {name:8s} {panel['tasks']:5d} tasks  hash {panel['hash']}  {kinds}")
    rl = manifest["rl"]
    lines.append(
        f"RL: {rl['updates']} updates of {rl['tasks_per_update']} tasks are {rl['draws']} draws of {rl['distinct']} tasks; "
        f"{rl['drawn_in_stage1']} of them are Stage-1 tasks"
    )
    for row in manifest["overlap"]:
        a, b = row["panels"]
        rest = f", {row['task_folders']} task folders, {row['scenes']} scenes" if "scenes" in row else ""
        lines.append(f"  shared by {a} and {b}: {row['tasks']} tasks{rest}")
    for count in manifest["counts"]:
        verdict = "" if count["paper"] is None else "as in Table 3" if count["agrees"] else f"Table 3 has {count['paper']}"
        lines.append(f"{count['what']:<28} {count['here']:>6}   {verdict}")
    return "\n".join([*lines, *(f"missing: {note}" for note in manifest["notes"])])
