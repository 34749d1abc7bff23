"""``seedlab sweep`` and ``seedlab notebook``: many runs from one file, and one notebook with parameters."""

from __future__ import annotations

import argparse
from dataclasses import replace

from seedlab.cli.files import output_file
from seedlab.cli.jobs_cli import table
from seedlab.cli.parsing import positive
from seedlab.cli.signals import terminated_like_ctrl_c
from seedlab.store.files import shown_path


def add_commands(subparsers) -> None:
    sweep = subparsers.add_parser(
        "sweep", help="run many cells from one YAML file",
        description="Check every cell of FILE, submit those that are not finished to the queue, and watch them. Ctrl-C stops watching, not the "
        "jobs; the same command goes on from what is there. Exit code 0 when all cells are finished, 1 when one is not, 2 for a mistake in the file.",
        epilog="example: seedlab sweep sweeps/method_by_seed.yaml --dry-run",
    )  # fmt: skip
    sweep.add_argument("file", metavar="FILE", help="see docs/sweeps.md")
    sweep.add_argument("--dry-run", action="store_true", help="show the cells and what there is of each; start nothing")
    sweep.add_argument("--no-wait", action="store_true", help="return as soon as everything is submitted")
    sweep.add_argument("--at-most", metavar="N", type=positive, help="local jobs at once; overrides the file")
    sweep.set_defaults(run=run_sweep_command)

    notebook = subparsers.add_parser(
        "notebook", help="execute a notebook with parameters",
        description="Execute NOTEBOOK in a new kernel and save it, signed, at OUT. A parameter that the notebook does not have is refused; "
        "an error, a killed kernel and an early exit give exit code 1, and leave OUT.failed.ipynb.",
        epilog="example: seedlab notebook notebooks/04_analysis.ipynb out/analysis.ipynb run=runs/seed-1",
    )  # fmt: skip
    notebook.add_argument("notebook", metavar="NOTEBOOK")
    notebook.add_argument("out", metavar="OUT")
    notebook.add_argument("parameters", metavar="KEY=VALUE", nargs="*", help="values are read as YAML")
    notebook.add_argument("--timeout", metavar="SECONDS", type=positive, help="for each cell; default: none")
    notebook.set_defaults(run=run_notebook_command)


def run_sweep_command(args: argparse.Namespace) -> int:
    from seedlab.sweep.file import read_sweep

    sweep = read_sweep(args.file)
    if args.at_most is not None:
        sweep = replace(sweep, at_most=args.at_most)
    from seedlab.sweep.run import failures, run_sweep
    from seedlab.sweep.state import cell_states

    if args.dry_run:
        _show(sweep, cell_states(sweep))
        return 0
    try:
        states = run_sweep(sweep, wait=not args.no_wait)
    except KeyboardInterrupt:
        print(f"\nthe jobs go on; `seedlab jobs --root {sweep.out}` shows them, the same command watches again, `seedlab cancel` ends one")
        return 130
    _show(sweep, states)
    problems = failures(sweep, states)
    if args.no_wait or not problems:
        return 0
    print(f"\n{len(problems)} of {len(states)} cells are not finished; the same command runs exactly these again:")
    print("\n".join(f"  {line}" for line in problems))
    return 1


def _show(sweep, states) -> None:
    from seedlab.sweep.index import summary, sweep_frame

    frame = sweep_frame(sweep, states)
    scores = [c for c in frame.columns if "/success" in c]
    print(table([("CELL", "STATE", *scores), *((r["cell"], r["state"], *(_number(r[c]) for c in scores)) for r in frame.to_dict("records"))]))
    means = summary(sweep, states)
    if len(means):
        keys = [c for c in means.columns if c not in ("mean", "low", "high", "finished", "of")]
        rows = [
            (*(str(r[k]) for k in keys), _number(r["mean"]), f"[{_number(r['low'])}, {_number(r['high'])}]" if r["finished"] > 1 else "", f"{r['finished']}/{r['of']}")
            for r in means.to_dict("records")
        ]
        print("\nmean over seeds, finished cells only, 95 % interval")
        print(table([(*keys, "mean", "interval", "finished"), *rows]))


def _number(value) -> str:
    return "" if value is None or value != value else f"{value:.3f}"


def run_notebook_command(args: argparse.Namespace) -> int:
    from seedlab.config.presets import parse_overrides
    from seedlab.jobs.notebooks import check_parameters, run_notebook

    parameters = parse_overrides(args.parameters)
    check_parameters(args.notebook, parameters)
    output_file(args.out, "OUT", "executed.ipynb", make_parent=True)
    with terminated_like_ctrl_c():  # the kernel has a process group of its own
        out = run_notebook(args.notebook, args.out, parameters, timeout_s=args.timeout)
    print(f"{shown_path(out)}: done")
    return 0
