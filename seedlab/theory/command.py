"""`seedlab theory`, for the command's list of modules.  Imports no torch until the command runs."""

from __future__ import annotations


def add_commands(subparsers) -> None:
    parser = subparsers.add_parser(
        "theory",
        help="verify Propositions 1-3 and Eq. 8 on the training objective",
        description="Verify Propositions 1-3 and Eq. 8 on the training objective itself; exits 1 where a claim fails.",
        epilog="example: seedlab theory --quick --json",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--instances", type=int, default=10_000, help="random instances of each claim")
    parser.add_argument("--vocabulary", type=int, default=50, help="largest vocabulary of an instance")
    parser.add_argument("--beta", type=float, default=None, help="fix the gate's sharpness instead of drawing it")
    parser.add_argument("--quick", action="store_true", help="at most 500 instances and one transformer")
    parser.add_argument("--json", action="store_true", help='print {"claims": [...]} instead of a table')
    parser.set_defaults(run=_run)


def _run(args) -> int:
    from seedlab.theory import run

    return run.run(args)
