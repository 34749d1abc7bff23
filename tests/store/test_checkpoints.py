"""A complete checkpoint is found whatever happens (E4)."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seedlab
from seedlab.store import RunError, latest_checkpoint, save_checkpoint
from seedlab.store import checkpoint as module
from seedlab.store.checkpoint import complete_checkpoints

SCRIPT = Path(__file__).with_name("kill_everywhere.py")


def save(run, update, text="x", keep=2, min_free_gb=0.0):
    return save_checkpoint(run, update, lambda folder: (folder / "weights").write_text(text), keep=keep, min_free_gb=min_free_gb)


@pytest.mark.parametrize(("case", "least"), [("next", 20), ("again", 20), ("discard", 15), ("update", 6)])
def test_killed_at_any_moment(tmp_path, case, least):
    env = os.environ | {"PYTHONPATH": str(Path(seedlab.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(SCRIPT), case, str(tmp_path / "run")], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= least


def test_the_newest_are_kept_and_latest_names_the_last(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    for update in (0, 8, 16):
        assert save(tmp_path, update) == tmp_path / "checkpoints" / f"{update:06d}"
    assert complete_checkpoints(tmp_path) == [8, 16]
    assert latest_checkpoint(tmp_path) == (16, tmp_path / "checkpoints" / "000016")
    assert (tmp_path / "checkpoints" / "latest").read_text() == "000016\n"
    (tmp_path / "checkpoints" / "reference").mkdir()  # other folders are left alone
    save(tmp_path, 24, keep=1)
    assert complete_checkpoints(tmp_path) == [24] and (tmp_path / "checkpoints" / "reference").is_dir()
    with pytest.raises(ValueError, match="keep=0"):
        save(tmp_path, 32, keep=0)


def test_half_a_checkpoint_is_none(tmp_path):
    save(tmp_path, 8)
    half = tmp_path / "checkpoints" / "000016"
    half.mkdir()
    (half / "weights").write_text("x")
    assert latest_checkpoint(tmp_path)[0] == 8
    save(tmp_path, 16, "new")
    assert (latest_checkpoint(tmp_path)[1] / "weights").read_text() == "new"


def test_a_damaged_checkpoint_is_named(tmp_path):
    save(tmp_path, 8)
    newest = save(tmp_path, 16, "four")
    (newest / "weights").write_text("fo")
    with pytest.raises(RunError, match="000016/weights has 2 bytes instead of 4.*remove .*000016 to resume from the one before"):
        latest_checkpoint(tmp_path)
    (newest / "weights").unlink()
    with pytest.raises(RunError, match="weights is missing"):
        latest_checkpoint(tmp_path)
    shutil.rmtree(newest)
    assert latest_checkpoint(tmp_path)[0] == 8


def _free(monkeypatch, gigabytes):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage._replace(free=int(gigabytes * 1e9)))


def test_free_space_is_checked_before_anything_is_written(tmp_path, monkeypatch):
    save(tmp_path, 8, "y" * 3_000_000)
    _free(monkeypatch, 0.15)
    with pytest.raises(RunError, match=r"0.15 GB free, but store.min_free_gb=0.2; free some space, then `seedlab resume .*` goes on from update 8"):
        save(tmp_path, 16, min_free_gb=0.2)
    _free(monkeypatch, 0.002)
    with pytest.raises(RunError, match=r"but the last checkpoint took 0.00 GB"):
        save(tmp_path, 16)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["000008", "latest"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), RuntimeError("writer: No space left on device")])
def test_a_disk_that_fills_up_leaves_the_last_checkpoint(tmp_path, error):
    save(tmp_path, 8)

    def full(folder):
        (folder / "weights").write_text("half")
        raise error

    with pytest.raises(RunError, match="000016: the disk filled up while saving; free some space, then `seedlab resume"):
        save_checkpoint(tmp_path, 16, full, keep=1, min_free_gb=0)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["000008", "latest"]


def test_other_failures_stay_what_they_are(tmp_path):
    def wrong(folder):
        raise ValueError("shape")

    with pytest.raises(ValueError, match="shape"):
        save_checkpoint(tmp_path, 0, wrong, keep=1, min_free_gb=0)
    assert latest_checkpoint(tmp_path) is None and os.listdir(tmp_path / "checkpoints") == []
