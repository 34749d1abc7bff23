"""The code of a job is copied when it is submitted: a queued or resumed job must not run what was edited since."""

from __future__ import annotations

import shutil
from pathlib import Path

import seedlab
from seedlab.store.code_state import SNAPSHOT, code_diff, code_state, source_files, source_hash
from seedlab.store.files import SCHEMA_VERSION, write_folder, write_json


def snapshot_code(run: Path, package: Path | None = None) -> Path:
    """Copy the package (default: the running seedlab) to code/<hash of its sources> in the run folder; returns the
    folder to put on PYTHONPATH.  The same sources are copied once."""
    package = Path(seedlab.__file__).parent if package is None else package
    target = run / "code" / source_hash(package)
    if target.exists():
        return target

    def fill(folder: Path) -> None:
        for source in source_files(package):
            copy = folder / package.name / source.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        write_json(folder / SNAPSHOT, {"schema_version": SCHEMA_VERSION, "code": code_state(package)})
        diff = code_diff(package)
        if diff:
            (folder / "changes.diff").write_text(diff + "\n", encoding="utf-8")

    return write_folder(target, fill)
