"""The ``seedlab`` command: finds the subcommand, runs it, and turns a user's error into one line and an exit code.

Exit codes: 0 done, 1 a check or run failed, 2 bad input, 130 interrupted, 141 the reader of the output has gone, as
any command ends before `head`.  Nothing here imports torch: a command module imports what it needs inside the function
that runs it.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from seedlab import __version__
from seedlab.errors import UserError

# Each module offers add_commands(subparsers), and sets `run`, a function from the parsed arguments to an exit code.
READER_GONE = 141  # 128 + SIGPIPE, as a shell reports it: no verdict, unlike 1

COMMAND_MODULES: list[str] = [
    "seedlab.cli.config_cli",
    "seedlab.cli.plan_cli",
    "seedlab.cli.doctor",
    "seedlab.cli.rebuild_cli",
    "seedlab.cli.train_cli",
    "seedlab.cli.envs_cli",
    "seedlab.cli.bench_cli",
    "seedlab.cli.evaluate_cli",
    "seedlab.cli.demo_cli",
    "seedlab.cli.jobs_cli",
    "seedlab.cli.sweep_cli",
    "seedlab.cli.ray_cli",
    "seedlab.cli.report_cli",
    "seedlab.theory.command",
]


class _Parser(argparse.ArgumentParser):
    """Adds the closest command to argparse's complaint about an unknown one."""

    def _check_value(self, action, value):
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            close = difflib.get_close_matches(str(value), list(action.choices), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise argparse.ArgumentError(
                None, f"unknown command {value!r}{hint} (commands: {', '.join(sorted(action.choices))})"
            )
        super()._check_value(action, value)


def build_parser(modules: Sequence[str] | None = None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="seedlab",
        description="Train, inspect and compare language agents with hindsight-skill self-distillation.",
        epilog="example: seedlab config tiny method=grpo stage2.updates=4",
    )
    parser.add_argument("--version", action="version", version=f"seedlab {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name in COMMAND_MODULES if modules is None else modules:
        importlib.import_module(name).add_commands(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and never raises for a user's mistake."""
    try:
        code = _run(argv)
        sys.stdout.flush()
        sys.stderr.flush()
        return code
    except BrokenPipeError:
        # The reader (head, less) has gone; without this the interpreter complains again while it shuts down.
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return READER_GONE


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as stop:  # argparse has already printed its message, or the help
        return stop.code if isinstance(stop.code, int) else 2
    try:
        return args.run(args)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
