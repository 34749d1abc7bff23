import subprocess

from seedlab.jobs.snapshot import snapshot_code
from seedlab.store.code_state import code_state, source_hash


def _git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def _package(root):
    package = root / "pkg"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("A = 1\n")
    (package / "data" / "x.json").write_text("{}")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_bytes(b"0")
    return package


def test_a_copy_of_the_code_knows_the_checkout_it_came_from(tmp_path):
    package = _package(tmp_path)
    assert code_state(package) == {"source_hash": source_hash(package)}  # no checkout, no commit
    (tmp_path / ".gitignore").write_text("runs/\n__pycache__/\n")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "x")
    clean = code_state(package)
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    (package / "__init__.py").write_text("A = 2\n")
    dirty = code_state(package)
    assert dirty["dirty"] and dirty["commit"] == clean["commit"]
    assert dirty["diff_hash"] != clean["diff_hash"] and dirty["source_hash"] != clean["source_hash"]

    # the run folder lies in an ignored folder of the same checkout: git would call the copy clean
    copy = snapshot_code(tmp_path / "runs" / "r", package)
    assert sorted(p.name for p in (copy / "pkg").rglob("*") if p.is_file()) == ["__init__.py", "x.json"]
    assert code_state(copy / "pkg") == dirty
    assert "+A = 2" in (copy / "changes.diff").read_text()
    (copy / "snapshot.json").unlink()
    assert "commit" not in code_state(copy / "pkg")

    assert snapshot_code(tmp_path / "runs" / "r", package) == copy
    (package / "new.py").write_text("")
    assert code_state(package)["untracked"] == ["new.py"]
    assert snapshot_code(tmp_path / "runs" / "r", package) != copy and copy.exists()
