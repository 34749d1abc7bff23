"""``seedlab envs``: list panels, compare our household engine with the official one, write rooms as official games."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from seedlab.cli.files import output_file
from seedlab.cli.parsing import add_command, positive
from seedlab.cli.progress import ProgressLine
from seedlab.config.presets import load_config
from seedlab.errors import UserError

DEFAULT_WALKS = "walkthrough,random,junk"


def add_commands(subparsers) -> None:
    envs = subparsers.add_parser(
        "envs",
        help="list environments and panels; compare engines; write rooms as official games",
        description="List environments and the panels of a preset (`seedlab envs tiny`), or one of the commands below.",
        epilog="example: seedlab envs tiny",
    )
    commands = envs.add_subparsers(dest="envs_command", metavar="COMMAND", required=True)
    _list_where_no_command_stands(envs, commands)

    listing = add_command(commands, "list", "list environments and the panels of a preset", "seedlab envs list tiny", run_list)
    listing.add_argument("preset", metavar="PRESET", nargs="?", default="tiny")
    listing.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    listing.add_argument("--tasks", metavar="PANEL", help="print the ids of all tasks of a panel instead, one a line: what `seedlab rollout` takes")

    verify = add_command(
        commands, "verify",
        "play the official ALFWorld engine and ours side by side; exit code 1 at a difference",
        "seedlab envs verify --games $ALFWORLD_DATA/json_2.1.1/valid_seen --reference reference.jsonl --processes 2", run_verify,
    )  # fmt: skip
    what = verify.add_mutually_exclusive_group(required=True)
    what.add_argument("--games", metavar="DIR", help="every game.tw-pddl in this folder and below")
    what.add_argument("--generated", metavar="N", type=positive, help="N generated rooms, written as official games")
    verify.add_argument("--episodes", metavar="N", type=positive, help="walks in all, kinds rotating over games; default: each kind once per game")
    verify.add_argument("--walks", default=DEFAULT_WALKS, help=f"of walkthrough, random, junk, mixed; default {DEFAULT_WALKS}")
    verify.add_argument("--length", type=positive, default=25, help="commands of a walk that is no walkthrough (default 25)")
    verify.add_argument("--seed", type=int, default=0, help="seed of the walks (default 0)")
    verify.add_argument("--reference", metavar="FILE", help="keep the official answers here; what is there is not played again, so a stopped run goes on")
    verify.add_argument("--recorded", action="store_true", help="compare only walks that the reference has; needs no official engine")
    verify.add_argument("--processes", type=positive, default=1, help="official engines at once (default 1)")
    verify.add_argument("--timeout", type=float, default=120.0, help="seconds that one official answer may take (default 120)")
    verify.add_argument("--stock", action="store_true", help="run the official engine without memoisation (about three times slower)")
    verify.add_argument("--keep-going", action="store_true", help="print every difference instead of stopping at the first")
    verify.add_argument("--results", metavar="FILE", help="append a summary row to this JSON lines file")

    manifest = add_command(
        commands, "manifest",
        "which tasks a preset uses, against the paper's Table 3; exit code 1 where a number differs",
        "seedlab envs manifest paper/alfworld-qwen2.5-3b --out manifest.json", run_manifest,
    )  # fmt: skip
    manifest.add_argument("preset", metavar="PRESET")
    manifest.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    manifest.add_argument("--out", metavar="FILE", help="write it as JSON, with every task id")

    export = add_command(
        commands, "export",
        "write generated rooms as official games (game.tw-pddl)",
        "seedlab envs export tiny --out rooms --panel dev --limit 12", run_export,
    )  # fmt: skip
    export.add_argument("preset", metavar="PRESET", nargs="?", default="tiny", help="its env section says how rooms are generated")
    export.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    export.add_argument("--out", metavar="DIR", required=True, help="folder that gets json_2.1.1/<split>/...")
    export.add_argument("--panel", action="append", help="stage1, train, dev, seen or unseen; may be repeated (default dev)")
    export.add_argument("--limit", type=positive, help="only the first N rooms of each panel")
    export.add_argument("--rules", metavar="GAME", help="take PDDL domain and grammar from this game.tw-pddl instead of the installed alfworld")


def _list_where_no_command_stands(envs: argparse.ArgumentParser, commands) -> None:
    """`seedlab envs tiny` means `seedlab envs list tiny`."""
    parse = envs.parse_known_args

    def parse_known_args(args=None, namespace=None):
        if not args or (args[0] not in commands.choices and args[0] not in ("-h", "--help")):
            args = ["list", *(args or [])]
        return parse(args, namespace)

    envs.parse_known_args = parse_known_args


def run_list(args: argparse.Namespace) -> int:
    cfg = load_config(args.preset, args.overrides)
    from seedlab.envs import FAMILIES, make_family, refuse_unknown_panels

    family = make_family(cfg.env)
    if args.tasks is not None:
        panels = family.panels()
        refuse_unknown_panels([args.tasks], panels)
        print("\n".join(panels[args.tasks].task_ids))
        return 0
    print(f"environments: {', '.join(FAMILIES)}")
    print(f"{family.name} ({'official games of ' + cfg.env.data if cfg.env.data else 'generated rooms'}), task types: {', '.join(family.task_types)}")
    for name, panel in family.panels().items():
        print(f"  {name:8s} {len(panel.task_ids):5d} tasks  hash {panel.hash}  first: {panel.task_ids[0] if panel.task_ids else '-'}")
    print(f"all ids of a panel: seedlab envs list {args.preset} --tasks dev   play one: seedlab rollout TASK --preset {args.preset}")
    return 0


def run_verify(args: argparse.Namespace) -> int:
    from seedlab.conformance.sources import folder_sources, generated_sources
    from seedlab.conformance.summary import summary_row, summary_text
    from seedlab.conformance.transcripts import Reference
    from seedlab.conformance.verify import only_recorded, plan_walks, verify
    from seedlab.conformance.walks import check_walks
    from seedlab.store.files import append_line

    results = output_file(args.results, "--results", "results.jsonl")
    output_file(args.reference, "--reference", "reference.jsonl")
    walks = check_walks([w.strip() for w in args.walks.split(",") if w.strip()])
    if args.games is not None:
        folder = Path(os.path.expandvars(args.games)).expanduser()
        if not folder.is_dir():
            raise UserError(f"--games {args.games}: {folder} is not a folder")
        sources = folder_sources(folder)
    else:
        sources = generated_sources(args.generated)
    reference = Reference(Path(args.reference) if args.reference else None)
    plan = plan_walks(sources, walks, args.episodes, args.seed, args.length)
    if args.recorded:
        plan = only_recorded(plan, reference)
    outcome = verify(
        plan, reference, processes=args.processes, timeout_s=args.timeout, memoise=not args.stock,
        keep_going=args.keep_going, progress=ProgressLine(),
    )
    print(summary_text(outcome))
    if results:
        what = Path(args.games).name if args.games else f"{args.generated} generated rooms"
        settings = {"games": what, "walks": walks, "episodes": args.episodes, "length": args.length, "seed": args.seed, "stock": args.stock}
        append_line(results, summary_row(outcome, reference, settings))
    return 0 if outcome.identical else 1


def run_manifest(args: argparse.Namespace) -> int:
    cfg, out = load_config(args.preset, args.overrides), output_file(args.out, "--out", "manifest.json")
    from seedlab.envs import make_family
    from seedlab.store.files import write_json
    from seedlab.train.data_manifest import data_manifest, manifest_text

    family = make_family(cfg.env)
    manifest = data_manifest(cfg, family)
    print(manifest_text(manifest))
    if out:
        ids = {name: list(panel.task_ids) for name, panel in family.panels().items()}
        write_json(out, manifest | {"task_ids": ids})
    return 0 if manifest["agrees"] else 1


def run_export(args: argparse.Namespace) -> int:
    cfg = load_config(args.preset, args.overrides)
    from seedlab.conformance.rooms import export_rooms, installed_rules
    from seedlab.envs.household.export import Rules
    from seedlab.store.cache import usable_folder

    usable_folder(Path(args.out), "--out", setting="")
    rules = Rules.of_game(Path(args.rules)) if args.rules else installed_rules(cfg.env.official_timeout_s)
    written = export_rooms(cfg.env, Path(args.out), tuple(args.panel or ["dev"]), args.limit, rules, ProgressLine())
    print(f"{len(written)} games below {args.out}, each solved by our search and read back")
    return 0
