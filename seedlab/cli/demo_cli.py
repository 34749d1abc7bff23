"""``seedlab demo``: the whole method on the embedded default, with a report; ``seedlab example``: the runs that ship."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from seedlab.cli.parsing import positive
from seedlab.cli.signals import terminated_like_ctrl_c


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
    parser.add_argument("--processes", type=positive, metavar="N", help="runs at once; default: one per core, at most 8")
    parser.set_defaults(run=run_demo)

    example = subparsers.add_parser(
        "example", help="make the small runs that the notebooks open with",
        description="SEED and GRPO from the same Stage 1, three seeds each, with a few small updates: real content for the notebooks, "
        "no claim on learning. Interrupted, the same command goes on. The copy that ships was made without weights.",
        epilog="example: seedlab example --out runs/my-example --keep-checkpoints",
    )  # fmt: skip
    example.add_argument("--out", default="runs/example", metavar="DIR", help="default: runs/example")
    example.add_argument("--keep-checkpoints", action="store_true", help="keep the weights, so that a skill of your own can be scored")
    example.set_defaults(run=run_example)


def run_demo(args: argparse.Namespace) -> int:
    from seedlab.store.cache import cache_folder, usable_folder

    out = usable_folder(Path(args.out), "--out", setting="")
    usable_folder(cache_folder(), "the cache of base policies and Stage 1")
    from seedlab.train.demo import Demo, processes_for_machine

    demo = Demo(out, args.quick, processes=args.processes or processes_for_machine())
    if sys.stderr.isatty():
        demo.live = _live
        demo.say = _say
    try:
        with terminated_like_ctrl_c():  # the links are processes of their own
            report = demo.run()
    except KeyboardInterrupt:
        print("stopped; the same command goes on from what is done", file=sys.stderr)
        raise
    print(f"report: {report}")
    return 0


def run_example(args: argparse.Namespace) -> int:
    import torch

    from seedlab.cli.progress import ProgressLine
    from seedlab.train.example import make_example

    torch.set_num_threads(1)
    for run in make_example(Path(args.out), keep_checkpoints=args.keep_checkpoints, progress=ProgressLine()):
        size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
        print(f"{run.path}: {run.status['state']}, {len(run.updates)} updates, {size / 1e6:.2f} MB")
    return 0


def _live(text: str) -> None:
    sys.stderr.write("\r\x1b[2K" + text[:150])
    sys.stderr.flush()


def _say(text: str) -> None:
    sys.stderr.write("\r\x1b[2K")
    print(text, flush=True)
