"""``seedlab submit``, ``jobs``, ``logs`` and ``cancel``: start in the background, list, read, end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from seedlab.cli.files import output_file
from seedlab.cli.parsing import count, positive
from seedlab.config.presets import load_config
from seedlab.jobs import Job, attach, find_run, jobs, submit_resume, submit_train
from seedlab.jobs.listing import known_runs
from seedlab.jobs.record import JobError
from seedlab.jobs.schedulers import BACKENDS
from seedlab.store.files import shown_path
from seedlab.store.layout import UNTIL, default_out
from seedlab.store.status import ENDED


def add_commands(subparsers) -> None:
    submit = subparsers.add_parser(
        "submit", help="train a preset in the background",
        description="Train a preset in a process that outlives this terminal or notebook. The configuration is checked first; "
        "the job runs a copy of the code as it is now. It waits in a queue while enough others run.",
        epilog="example: seedlab submit tiny method=grpo seed=1 --out runs/grpo-1; seedlab submit runs/grpo-1 --resume; "
        "seedlab submit PRESET --backend slurm --slurm time=24:00:00 --slurm gpus-per-node=8",
    )  # fmt: skip
    submit.add_argument("preset", metavar="PRESET", help="such as tiny; `seedlab config --list` shows all; with --resume a run folder")
    submit.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="dotted overrides; method=NAME chooses a method")
    submit.add_argument("--out", metavar="DIR", help="run folder; default runs/PRESET-METHOD-sSEED")
    submit.add_argument("--resume", action="store_true", help="go on with the run folder that is named instead of a preset")
    add_submission(submit)
    submit.set_defaults(run=run_submit)

    listing = subparsers.add_parser(
        "jobs", help="list runs with their state and progress",
        description="List all runs below a folder. A run whose process is gone without a word is `lost`: it can be resumed.",
        epilog="example: seedlab jobs --root runs; seedlab jobs runs/grpo-1",
    )  # fmt: skip
    listing.add_argument("folder", metavar="RUN", nargs="?", help="show one run with its links")
    listing.add_argument("--root", metavar="FOLDER", default="runs", help="where your runs are; default: runs")
    listing.add_argument("--json", action="store_true", help="print one JSON list")
    listing.set_defaults(run=run_jobs)

    logs = subparsers.add_parser(
        "logs", help="print a job's log, or follow it until the job ends",
        description="Print the log of a background job as a terminal would show it. With --follow the exit code is the job's.",
        epilog="example: seedlab logs runs/seed-1 --follow",
    )  # fmt: skip
    logs.add_argument("folder", metavar="RUN", nargs="?", help="a run folder, or its name below runs/")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job ends; Ctrl-C stops following, not the job")
    logs.add_argument("--tail", metavar="N", type=count, help="only the last N lines")
    logs.set_defaults(run=run_logs)

    cancel = subparsers.add_parser(
        "cancel", help="end a background job",
        description="Ask a job to stop, which saves a checkpoint at the next safe point, and end it after the grace period. "
        "Only the job's own processes are touched.",
        epilog="example: seedlab cancel runs/seed-1",
    )  # fmt: skip
    cancel.add_argument("folder", metavar="RUN", help="a run folder, or its name below runs/")
    cancel.add_argument("--grace", metavar="SECONDS", type=float, default=30.0, help="time to stop by itself; default: 30")
    cancel.set_defaults(run=run_cancel)


def add_submission(parser) -> None:
    """What every command that submits a run takes."""
    parser.add_argument("--at-most", metavar="N", type=positive, help="local jobs at once; default: cores divided by a job's threads")
    parser.add_argument("--until", choices=tuple(UNTIL), help="end after this link; resuming goes on from there")
    parser.add_argument("--results", metavar="FILE", help="append the finished run's row to this file")
    parser.add_argument("--backend", choices=BACKENDS, default="local", help="default: local")
    parser.add_argument("--slurm", metavar="KEY=VALUE", action="append", default=[], help="an option of sbatch, such as time=24:00:00 or nodes=2")
    parser.add_argument("--ray", metavar="KEY=VALUE", action="append", default=[], help="such as address=http://127.0.0.1:8265")


def submission_options(args: argparse.Namespace) -> dict:
    """What `add_submission` read, as options of submit_train and submit_resume."""
    given = {"slurm": args.slurm, "ray": args.ray}
    for name, pairs in given.items():
        if pairs and name != args.backend:
            raise JobError(f"--{name} {pairs[0]} is for --backend {name}")
    pairs = [pair.partition("=") for pair in given.get(args.backend, [])]
    results = output_file(args.results, "--results", "results.jsonl", make_parent=True)
    options = {"slots": args.at_most, "until": args.until, "results": results, "backend": args.backend}
    return options | {"scheduler_options": {key: value for key, _, value in pairs}}


def run_submit(args: argparse.Namespace) -> int:
    if args.resume:
        if args.overrides or args.out:
            raise JobError("--resume goes on with a run folder as it is: give neither overrides nor --out")
        return announce(submit_resume(find_run(args.preset), **submission_options(args)))
    out = args.out or default_out(load_config(args.preset, args.overrides))
    return announce(submit_train(args.preset, args.overrides, run_path=out, **submission_options(args)))


def announce(job: Job) -> int:
    """Say where the job is and what to type next."""
    folder, record, state = shown_path(job.path), job.record, job.status()["state"]
    which = f"process {record.pid}" if record.backend == "local" else f"{record.backend} job {record.external_id}"
    print(f"{folder}: {state}, {which}\n  seedlab logs {folder} -f\n  seedlab cancel {folder}")
    return 0


def run_jobs(args: argparse.Namespace) -> int:
    rows = jobs(args.root) if args.folder is None else jobs(_run_or_folder(args.folder, args.root))
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif not rows:
        print(f"no runs below {args.folder or args.root}")
    else:
        print(table([("RUN", "STATE", "PHASE", "PROGRESS", "AGE", "PID", "NOTE"), *map(_line, rows)]))
        if args.folder is not None and rows[0]["links"]:
            print(table([("LINK", "STATE", "TIME"), *map(_link, rows[0]["links"])]))
    return 0


def _run_or_folder(name: str, root: str) -> Path:
    """A run, or any folder of runs."""
    return Path(name) if Path(name).is_dir() else find_run(name, root)


def _line(row: dict) -> tuple[str, ...]:
    ended = row["state"] in ENDED  # the last phase's progress is not the run's
    progress = f"{row['done']}/{row['total']}" if row["total"] and not ended else ""
    age = "" if row["started"] is None else _duration(time.time() - row["started"])
    live = row["state"] in ("queued", "running")
    said = row["error"] or ("" if ended else row["note"]) or ""
    return (
        row["name"], row["state"], "" if ended else row["phase"] or "", progress, age,
        str(row["pid"]) if live else "", said.splitlines()[0] if said else "",
    )  # fmt: skip


def _link(link: dict) -> tuple[str, ...]:
    return link["name"], link["state"], "" if link["seconds"] is None else _duration(link["seconds"])


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours >= 48:
        return f"{hours // 24} d"
    return f"{hours} h {minutes % 60:02d}" if hours else f"{minutes} min" if minutes else f"{int(seconds)} s"


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def run_logs(args: argparse.Namespace) -> int:
    if args.folder is None:
        raise JobError(f"name a RUN; {known_runs('runs')}")
    job = attach(find_run(args.folder))
    if not args.follow:
        text = job.logs(tail=args.tail)
        print(text or f"nothing is logged yet; the job is {job.status()['state']}")
        return 0
    screen = _Screen(sys.stdout)
    for number, update in enumerate(job.follow()):
        lines = update.lines[max(0, len(update.lines) - args.tail) :] if args.tail is not None and number == 0 else update.lines
        screen.show(lines, update.current)
    screen.close()
    status = job.status()
    print(f"{shown_path(job.path)}: {status['state']}" + (f" ({status['error']})" if status["error"] else ""), file=sys.stderr)
    if status["state"] == "succeeded":
        return 0
    return status["exit_code"] or 1


class _Screen:
    """Whole lines as they come.  The unfinished one is redrawn on a terminal; elsewhere only what was added to it."""

    def __init__(self, stream):
        self.stream, self.live = stream, stream.isatty()
        self._current = ""

    def show(self, lines: list[str], current: str) -> None:
        for line in lines:
            self._draw(line)
            self.stream.write("\n")
            self._current = ""
        self._draw(current)
        self.stream.flush()

    def _draw(self, text: str) -> None:
        if self.live:
            self.stream.write("\r\x1b[2K" + text)
        elif text.startswith(self._current):
            self.stream.write(text[len(self._current) :])
        elif text:  # a progress bar that was drawn anew
            self.stream.write("\n" + text)
        self._current = text

    def close(self) -> None:
        if self._current:
            self.stream.write("\n")
            self.stream.flush()


def run_cancel(args: argparse.Namespace) -> int:
    job = attach(find_run(args.folder))
    folder, before = shown_path(job.path), job.status()["state"]
    status = job.cancel(grace_s=args.grace)
    if before in ENDED:
        print(f"{folder} had already ended: {status['state']}")
    else:
        print(f"{folder}: {status['state']}; `seedlab resume {folder}` goes on with it")
    return 0
