"""Which code runs: a hash of the sources and, in a git checkout, the commit and what was changed on top of it."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from seedlab.store.files import read_versioned

SNAPSHOT = "snapshot.json"  # beside a copy of the package: the state of the checkout that it was copied from


def code_state(package: Path) -> dict:
    """`source_hash`, and `commit`, `dirty`, `diff_hash` where git tracks `package`.

    A job runs a copy of the package that git knows nothing of; its state is the one recorded when it was copied.
    """
    record = package.parent / SNAPSHOT
    if record.exists():
        return read_versioned(record)["code"]
    return {"source_hash": source_hash(package)} | _git_state(package)


def code_diff(package: Path) -> str:
    """The uncommitted changes of the package, or "" where there are none, or no checkout."""
    return _git(package, "diff", "HEAD", "--", ".") or "" if _tracked(package) else ""


def source_hash(package: Path) -> str:
    """16 hexadecimal digits over names and contents of all files of the package."""
    digest = hashlib.sha256()
    for path in source_files(package):
        name, content = str(path.relative_to(package)).encode(), path.read_bytes()
        digest.update(b"%d %s %d " % (len(name), name, len(content)) + content)
    return digest.hexdigest()[:16]


def source_files(package: Path) -> list[Path]:
    return sorted(p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def _tracked(package: Path) -> bool:
    # an ignored folder within some checkout, such as a virtual environment, is not that checkout's code
    return _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None


def _git_state(package: Path) -> dict:
    commit = _git(package, "rev-parse", "HEAD") if _tracked(package) else None
    if not commit:
        return {}
    diff = code_diff(package)
    new = _git(package, "ls-files", "--others", "--exclude-standard", "--", ".") or ""
    return {
        "commit": commit, "dirty": bool(diff or new), "diff_hash": hashlib.sha256(diff.encode()).hexdigest()[:16],
        "untracked": new.splitlines(),
    }  # fmt: skip


def _git(folder: Path, *args: str) -> str | None:
    """Output of git, or None where it is not installed, does not answer, or has nothing to say of `folder`."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=20)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
