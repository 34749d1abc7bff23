"""``seedlab rebuild``: the environment of a run, made again from its manifest."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_commands(subparsers) -> None:
    rebuild = subparsers.add_parser(
        "rebuild",
        help="make the environment of a run again from its manifest",
        description="Print the commands that make the environment of a run again: its Python, every package in its version, and "
        "seedlab at its commit. With --venv they are carried out and the result is compared with the manifest "
        "(exit code 1 if something differs).",
        epilog="example: seedlab rebuild runs/seed-1/manifest.json --venv envs/seed-1",
    )
    rebuild.add_argument("manifest", metavar="MANIFEST", help="a manifest.json, or a run folder")
    rebuild.add_argument("--venv", metavar="DIR", help="carry the commands out in this new folder")
    rebuild.add_argument("--requirements", action="store_true", help="print the pinned packages instead, one a line")
    rebuild.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import seedlab
    from seedlab.store import rebuild as store

    recipe = store.read_recipe(Path(args.manifest))
    checkout = Path(seedlab.__file__).resolve().parents[1]
    if args.requirements:
        print(recipe.requirements, end="")
        return 0
    for note in recipe.notes:
        print(f"note: {note}")
    if not args.venv:
        folder = Path("seedlab-env")
        print(f"# Python {recipe.python}, {len(recipe.pins)} packages: `--requirements` prints them for {folder}/requirements.txt, `--venv DIR` does it all")
        for step in store.commands(recipe, folder, checkout):
            print(" ".join(step))
        return 0
    found = store.rebuild(recipe, Path(args.venv), checkout)
    for line in found:
        print(f"differs: {line}")
    print(f"{args.venv}: {len(recipe.pins) - len(found)} of {len(recipe.pins)} packages as in the run")
    return 1 if found else 0
