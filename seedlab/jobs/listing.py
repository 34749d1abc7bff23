"""All runs below a folder, with what each says about itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from seedlab.errors import UserError
from seedlab.jobs.job import Job
from seedlab.jobs.record import JobError
from seedlab.store.layout import places
from seedlab.store.status import read_status

DEPTH = 4
SHOWN = 10  # runs that an error message names
_MARKS = {"status.json", "job.json"}
_RUN_FILES = ("config.json", "job.json", "status.json")


def run_folders(root: str | Path, depth: int = DEPTH) -> Iterator[Path]:
    """Run folders below `root` in order of name; what lies within a run is not searched."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise JobError(f"{root} is not a folder; name the one that holds your runs") from error
    if any(entry.name in _MARKS for entry in entries):
        yield Path(root)
    elif depth > 0:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from run_folders(entry.path, depth - 1)


def jobs(root: str | Path = "runs") -> list[dict]:
    """One dictionary per run: `name`, `path`, `background`, `state`, `phase`, `done`, `total`, `note`, `pid`, `started`,
    `exit_code`, `error`, `links` (from base policy to evaluation).  A damaged run is listed with state `damaged` and the reason."""
    return [_row(Path(root), folder) for folder in run_folders(root)]


def _row(root: Path, folder: Path) -> dict:
    background = (folder / "job.json").exists()
    row = {"name": str(folder.relative_to(root)) if folder != root else folder.name, "path": str(folder), "background": background}
    try:
        status = Job(folder).status() if background else read_status(folder)
    except UserError as error:
        status = {"state": "damaged", "error": str(error)}
    row |= {k: status.get(k) for k in ("state", "phase", "done", "total", "note", "pid", "started", "exit_code", "error")}
    return row | {"links": status.get("links", [])}


def jobs_frame(root: str | Path = "runs"):
    """`jobs` as a pandas frame."""
    import pandas as pd

    columns = ["name", "path", "background", "state", "phase", "done", "total", "note", "pid", "started", "exit_code", "error", "links"]
    return pd.DataFrame(jobs(root), columns=columns)


def find_run(name: str | Path, root: str | Path = "runs", *, several: bool = False) -> Path:
    """The first of `store.layout.places` that is a run folder; with `several` a folder that holds runs will do too.
    Raises JobError, naming near ones, where there is none, or where the folder is none of a run."""
    found = [candidate for candidate in places(name, root) if candidate.is_dir()]
    for candidate in found:
        if any((candidate / mark).exists() for mark in _RUN_FILES):
            return candidate
    inside = [str(folder) for folder in run_folders(found[0])] if found else []
    if inside and several:
        return found[0]
    if inside:
        raise JobError(f"{found[0]} is not a run folder: it has no config.json. It holds runs; name one: {_listed(inside)}")
    if found:
        raise JobError(f"{found[0]} is not a run folder: it has no config.json; {known_runs(root)}")
    near = [folder for folder in _known(root) if Path(name).name and Path(name).name.lower() in folder.lower()]
    raise JobError(f"{name} is not a run folder: there is no such folder" + (f"; did you mean {near[0]!r}?" if near else f"; {known_runs(root)}"))


def known_runs(root: str | Path = "runs") -> str:
    """The runs below `root` in words: the first of them, how many more there are, and what lists them."""
    return f"known runs: {_listed(_known(root))}"


def _known(root: str | Path) -> list[str]:
    return [str(folder) for folder in run_folders(root)] if Path(root).is_dir() else []


def _listed(folders: list[str]) -> str:
    if not folders:
        return "none"
    more = len(folders) - SHOWN
    return ", ".join(folders[:SHOWN]) + (f", and {more} more (`seedlab jobs` lists all)" if more > 0 else "")
