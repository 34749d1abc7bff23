"""``seedlab bench``: measurements of parts, printed with the machine they were taken on."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from seedlab.cli.files import output_file
from seedlab.cli.parsing import add_command, positive


def add_commands(subparsers) -> None:
    bench = subparsers.add_parser(
        "bench", help="measure parts of seedlab", description="Measure parts of seedlab.", epilog="example: seedlab bench envs"
    )
    commands = bench.add_subparsers(dest="bench_command", metavar="WHAT", required=True)
    envs = add_command(
        commands, "envs", "our household engine and the official one side by side: steps, loading, reset, clone, memory",
        "seedlab bench envs --games $ALFWORLD_DATA/json_2.1.1/valid_unseen", run_envs,
    )  # fmt: skip
    envs.add_argument("--games", metavar="DIR", help="official games; default: generated rooms")
    envs.add_argument("--count", type=positive, default=6, help="games that are measured (default 6)")
    envs.add_argument("--length", type=positive, default=30, help="random admissible commands per game (default 30)")
    envs.add_argument("--environments", type=positive, default=4096, help="environments held at once for the memory figure (default 4096)")
    envs.add_argument("--no-official", action="store_true", help="measure our engine alone")
    envs.add_argument("--results", metavar="FILE", help="append the figures to this JSON lines file")
    envs.add_argument("--json", action="store_true", help="print the figures as JSON")


def run_envs(args: argparse.Namespace) -> int:
    from seedlab.conformance.bench import bench_text, measure
    from seedlab.conformance.sources import folder_sources, generated_sources
    from seedlab.store.files import append_line

    results = output_file(args.results, "--results", "results.jsonl")
    if args.games:
        sources = folder_sources(Path(os.path.expandvars(args.games)).expanduser())[: args.count]
    else:
        sources = generated_sources(args.count)
    row = measure(sources, length=args.length, environments=args.environments, official=not args.no_official)
    row["games"] = Path(args.games).name if args.games else "generated rooms"
    print(json.dumps(row, indent=1) if args.json else bench_text(row))
    if results:
        append_line(results, row)
    return 0
