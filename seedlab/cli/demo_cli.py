"""``seedlab demo``: the whole method on the embedded default, with a report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_commands(subparsers) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="run the whole two-stage method on this machine and write a report",
        description="Base policy, Stage 1, then Stage 2 by GRPO and by SEED on the same seeds, evaluation on fixed panels "
        "and a report. Stopped or interrupted, the same command goes on; finished runs are kept.",
        epilog="example: seedlab demo --quick --out runs/quick",
    )
    parser.add_argument("--quick", action="store_true", help="one seed, six updates, no claim on learning")
    parser.add_argument("--out", default="runs/demo", metavar="DIR", help="default: runs/demo")
    parser.add_argument("--processes", type=int, metavar="N", help="runs at once; default: one per core, at most 8")
    parser.set_defaults(run=run_demo)


def run_demo(args: argparse.Namespace) -> int:
    from seedlab.train.demo import Demo, processes_for_machine

    demo = Demo(Path(args.out), args.quick, processes=args.processes or processes_for_machine())
    if sys.stderr.isatty():
        demo.live = _live
        demo.say = _say
    report = demo.run()
    print(f"report: {report}")
    return 0


def _live(text: str) -> None:
    sys.stderr.write("\r\x1b[2K" + text[:150])
    sys.stderr.flush()


def _say(text: str) -> None:
    sys.stderr.write("\r\x1b[2K")
    print(text, flush=True)
