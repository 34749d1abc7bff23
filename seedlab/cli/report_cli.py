"""``report``, ``compare``, ``check``, ``milestones``: what finished runs show, and whether they are sound."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from seedlab.cli.files import output_file
from seedlab.jobs import find_run


def add_commands(subparsers) -> None:
    report = subparsers.add_parser(
        "report", help="write an offline HTML report of one or more runs",
        description="Group runs into arms by method and start, and write one self-contained HTML page. A folder of runs stands for the runs in it.",
        epilog="example: seedlab report runs/demo --out report.html",
    )  # fmt: skip
    report.add_argument("runs", metavar="RUN", nargs="+", help="run folders or their names below runs/, or a folder of them")
    report.add_argument("--out", metavar="FILE", help="the page to write; by default report.html in the first folder given")
    report.add_argument("--title", default="seedlab report", help="heading of the page")
    report.add_argument("--quick", action="store_true", help="make no claim on learning")
    report.set_defaults(run=run_report)

    compare = subparsers.add_parser(
        "compare", help="say how runs differ, in settings and outcome",
        description="Print a verdict, the evaluation of each arm, and the settings in which the arms differ.",
        epilog="example: seedlab compare runs/grpo-s0 runs/seed-s0",
    )  # fmt: skip
    compare.add_argument("runs", metavar="RUN", nargs="+", help="run folders or their names below runs/, or a folder of them")
    compare.set_defaults(run=run_compare)

    check = subparsers.add_parser(
        "check", help="check a run's records against the method",
        description="Recompute what a run stored (gates, advantages, token ids, panels, …). Exit code 1 where a check fails.",
        epilog="example: seedlab check runs/seed-s0",
    )  # fmt: skip
    check.add_argument("folder", metavar="RUN", help="a run folder, or its name below runs/")
    check.set_defaults(run=run_check)

    path = subparsers.add_parser(
        "milestones", help="say how far a run takes you on the learning path",
        description="Verify each step of docs/learning_path.md that a run can show. Exit code 1 where a step should hold and does not.",
        epilog="example: seedlab milestones runs/example/seed-s0",
    )  # fmt: skip
    path.add_argument("folder", metavar="RUN", help="a run folder, or its name below runs/")
    path.set_defaults(run=run_milestones)


def run_report(args: argparse.Namespace) -> int:
    target, runs = output_file(args.out, "--out", "report.html", make_parent=True), _named(args)
    # only now what takes seconds to import
    from seedlab.analysis.frames import group_runs, load_arms
    from seedlab.views.report import write_report

    arms = group_runs(runs)
    target = target or output_file(runs[0] / "report.html")
    out = write_report(arms, target, title=args.title, quick=args.quick)
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB): {', '.join(f'{name} ({len(paths)})' for name, paths in arms.items())}")
    return _left_out(load_arms(arms))


def _named(args: argparse.Namespace) -> list[Path]:
    return [find_run(name, several=True) for name in args.runs]


def _left_out(arms) -> int:
    """Name each run that could not be read and was left out; 1 where there is one."""
    problems = [f"{arm.name}: {problem}" for arm in arms for problem in arm.problems]
    for problem in problems:
        print(f"error: left out: {problem}", file=sys.stderr)
    return 1 if problems else 0


def run_compare(args: argparse.Namespace) -> int:
    runs = _named(args)
    from seedlab.analysis.compare import comparison_text
    from seedlab.analysis.frames import group_runs, load_arms

    arms = load_arms(group_runs(runs))
    print(comparison_text(arms))  # names what could not be read
    return 1 if any(arm.problems for arm in arms) else 0


def run_check(args: argparse.Namespace) -> int:
    folder = find_run(args.folder)
    from seedlab.analysis.checks import check_run

    results = check_run(folder)
    for result in results:
        print(f"{result.state:11s} {result.name}: {result.detail}")
    failed = sum(r.state == "failed" for r in results)
    print(f"{len(results)} checks, {failed} failed, {sum(r.state == 'not checked' for r in results)} not made")
    return 1 if failed else 0


def run_milestones(args: argparse.Namespace) -> int:
    folder = find_run(args.folder)
    from seedlab.analysis.check_results import FAILED, PASSED
    from seedlab.analysis.milestones import LEVELS, milestones

    found = milestones(folder)
    for level, title in LEVELS.items():
        steps = [m for m in found if m.level == level]
        print(f"{level}. {title}: {sum(m.state == PASSED for m in steps)} of {len(steps)}")
        for step in steps:
            print(f"   {step.state:11s} {step.name}: {step.detail}")
    return 1 if any(m.state == FAILED for m in found) else 0
