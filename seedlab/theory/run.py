"""All claims in one table, and the command line that prints it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from seedlab.errors import UserError
from seedlab.theory import bulk, command, groups, transformer
from seedlab.theory.claims import ClaimResult

QUICK_INSTANCES = 500


def run_all(
    seed: int = 0, instances: int = 10_000, vocabulary: int = 50, quick: bool = False, beta: float | None = None
) -> list[ClaimResult]:
    """Verify every claim.

    instances: random instances of each claim; `quick` takes at most 500 and one transformer instead of three.
    vocabulary: largest vocabulary of a random instance (from 2).  beta: the gate's sharpness; None draws it from 0 to 20
    per hundred instances, and takes 5 for the transformer.  The same arguments give the same numbers.
    """
    if instances < 1 or vocabulary < 2:
        raise UserError(f"need instances >= 1 and vocabulary >= 2, got {instances} and {vocabulary}")
    if beta is not None and beta <= 0:
        raise UserError(f"beta must be above 0, got {beta}: at 0 every gate is 1/2 and the OPD term moves nothing")
    if quick:
        instances = min(instances, QUICK_INSTANCES)
    return [
        *bulk.claims(seed, instances, vocabulary, beta),
        *groups.claims(seed, instances),
        *transformer.claims(seed, 1 if quick else 3, beta),
    ]


def table(claims: Sequence[ClaimResult]) -> str:
    """One line per claim, aligned plain text."""
    rows = [("claim", "instances", "worst error", "tolerance", "verdict", "equation; note")]
    for c in claims:
        about = f"{c.equation}; {c.note}" if c.note else c.equation
        rows.append((c.name, str(c.instances), f"{c.worst_error:.2e}", f"{c.tolerance:.0e}", c.verdict, about))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join("  ".join([cell.ljust(w) for cell, w in zip(row, widths)] + [row[5]]) for row in rows)


def run(args: argparse.Namespace) -> int:
    """Print the claims; 0 where all hold, 1 where one fails."""
    start = time.perf_counter()
    claims = run_all(args.seed, args.instances, args.vocabulary, args.quick, args.beta)
    failed = [c.name for c in claims if c.verdict == "fail"]
    if args.json:
        print(json.dumps({"claims": [c.as_dict() for c in claims]}, indent=1, allow_nan=False))
    else:
        print(table(claims))
        print(f"{len(claims) - len(failed)} of {len(claims)} claims hold ({time.perf_counter() - start:.1f} s)")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command `seedlab theory` on its own; exit code 0, 1 (a claim fails) or 2 (bad input)."""
    parser = argparse.ArgumentParser(prog="seedlab")
    command.add_commands(parser.add_subparsers())
    try:
        return run(parser.parse_args(["theory", *(sys.argv[1:] if argv is None else argv)]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
