"""Run an action in a forked child that kills itself, without a word, at its k-th file operation, for every k.

``python kill_everywhere.py CASE FOLDER`` prints the number of moments tried; an assertion that fails ends it.  A script
of its own: forking pytest, with torch's threads in it, would not be safe.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

from seedlab.store.checkpoint import _complete, complete_checkpoints, latest_checkpoint, save_checkpoint

OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}


def killed_at(moment: int, folder: Path, action) -> bool:
    """Whether `action` was killed; False once it has fewer than `moment` operations on `folder`."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(event, arguments):
            nonlocal seen
            # a folder handle is given as a number inside rmtree; it counts too
            if event in OPERATIONS and arguments and (isinstance(arguments[0], int) or str(folder) in str(arguments[0]) or event == "os.rmdir"):
                seen += 1
                if seen == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        action()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, f"failed at moment {moment}"
        return False
    assert os.WTERMSIG(status) == signal.SIGKILL
    return True


def every_moment(folder: Path, prepare, action, check) -> int:
    moment = 0
    while True:
        moment += 1
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        prepare()
        killed = killed_at(moment, folder, action)
        check(killed)
        if not killed:
            return moment - 1


def write(content: str):
    def fill(folder: Path) -> None:
        (folder / "weights").write_text(content * 100)
        (folder / "sub").mkdir()
        (folder / "sub" / "state").write_text(content)

    return fill


def content_of(checkpoint: Path) -> str:
    text = (checkpoint / "sub" / "state").read_text()
    assert (checkpoint / "weights").read_text() == text * 100
    return text


def checkpoint_case(folder: Path, new: int) -> int:
    """Checkpoints 3 and 5 are there; `new` is saved with keep=1."""

    def save(update: int, text: str, keep: int) -> None:
        save_checkpoint(folder, update, write(text), keep=keep, min_free_gb=0)

    def prepare() -> None:
        save(3, "three", 2)
        save(5, "five", 2)

    def check(killed: bool) -> None:
        update, path = latest_checkpoint(folder)
        assert (update, content_of(path)) in {(5, "five"), (new, "new")}
        texts = {3: {"three"}, 5: {"five"}} | {new: {"new"} | ({"five"} if new == 5 else set())}
        for name, place in _complete(folder).items():  # also those that are on their way out
            assert content_of(place) in texts[name]
        if not killed:
            assert complete_checkpoints(folder) == [new] and content_of(path) == "new"
        save(9, "nine", 1)  # the next save goes on, and sweeps
        assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["000009", "latest"]
        assert content_of(latest_checkpoint(folder)[1]) == "nine"

    return every_moment(folder, prepare, lambda: save(new, "new", 1), check)


def discard_case(folder: Path) -> int:
    """Rows and folders 0 to 3 are there; those from 2 on are discarded, again after each kill."""
    from seedlab.store.writer import RunWriter

    def prepare() -> None:
        writer = RunWriter(folder)
        for update in range(4):
            writer.metrics(update, {})
            writer.event("x", update=update)
            writer.update(update, {})

    def check(killed: bool) -> None:
        RunWriter(folder).discard_from(2)
        for name in ("metrics", "events"):
            rows = [[json.loads(line)["update"] for line in (folder / f"{name}{kind}.jsonl").open()] for kind in ("", ".discarded")]
            assert rows == [[0, 1], [2, 3]], (name, rows)
        assert sorted(p.name for p in (folder / "updates").iterdir()) == ["000000", "000001"]
        assert sorted(p.name[:14] for p in (folder / "discarded").iterdir()) == ["updates-000002", "updates-000003"]

    return every_moment(folder, prepare, lambda: RunWriter(folder).discard_from(2), check)


def update_case(folder: Path) -> int:
    """One update is written: complete or absent, and written again without a trace of the first attempt."""
    from seedlab.store.writer import DONE, RunWriter

    def action() -> None:
        RunWriter(folder).evaluation(1, frame(), {})

    def frame():
        import pandas as pd

        from seedlab.store.schemas import TABLES

        return pd.DataFrame({name: [] for name in TABLES["episodes"].names})

    def check(killed: bool) -> None:
        done = folder / "eval" / "000001"
        assert not done.exists() or sorted(p.name for p in done.iterdir()) == [DONE, "episodes.parquet", "summary.json"]
        if killed and not done.exists():
            action()
            assert [p.name for p in (folder / "eval").iterdir()] == ["000001"]

    frame()
    return every_moment(folder, lambda: None, action, check)


CASES = {
    "next": lambda folder: checkpoint_case(folder, 8), "again": lambda folder: checkpoint_case(folder, 5),
    "discard": discard_case, "update": update_case,
}  # fmt: skip

if __name__ == "__main__":
    os.fsync = lambda handle: None  # a killed process loses nothing that it has written; only a power cut would
    print(CASES[sys.argv[1]](Path(sys.argv[2])))
