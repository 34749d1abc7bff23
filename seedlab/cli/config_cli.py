"""``seedlab config`` shows a resolved configuration; ``seedlab diff`` says where it departs from the paper."""

from __future__ import annotations

import argparse
import json
import textwrap
from dataclasses import asdict
from pathlib import Path

from seedlab.cli.files import write_output
from seedlab.config import diff as differences
from seedlab.config.explain import explain, with_current_table
from seedlab.config.presets import PRESETS, load_config, own_assembly, to_json
from seedlab.errors import ConfigError
from seedlab.methods import METHODS


def add_commands(subparsers) -> None:
    config = subparsers.add_parser(
        "config",
        help="print the resolved configuration of a preset as JSON",
        description="Print the resolved configuration: schema defaults, preset, method, then your overrides.",
        epilog="example: seedlab config tiny method=grpo stage2.updates=4",
    )
    config.add_argument("preset", nargs="?", metavar="PRESET", help="such as tiny or paper/alfworld-qwen2.5-3b")
    config.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="dotted overrides; method=NAME chooses a method")
    config.add_argument("--explain", action="store_true", help="print every key with its type, default and meaning")
    config.add_argument("--write", metavar="PAGE", help="with --explain: put the tables between the markers of this file")
    config.add_argument("--list", action="store_true", help="list presets and methods")
    config.set_defaults(run=run_config)

    diff = subparsers.add_parser(
        "diff",
        help="print every difference of a preset from the paper, each with its recorded reason",
        description="Compare a configuration with the paper (exit code 1 if a difference has no recorded reason), "
        "or with another preset.",
        epilog="example: seedlab diff tiny --against paper",
    )
    diff.add_argument("preset", metavar="PRESET")
    diff.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    diff.add_argument("--against", default="paper", metavar="paper|PRESET", help="default: paper")
    diff.add_argument("--json", action="store_true", help="print rows as JSON")
    diff.set_defaults(run=run_diff)


def run_config(args: argparse.Namespace) -> int:
    if args.write and not args.explain:
        raise ConfigError("--write goes with --explain")
    if args.explain and args.write:
        page = Path(args.write)
        if not page.is_file():
            raise ConfigError(f"--write {page}: there is no such file; it must be a page with the markers of the tables, such as docs/configuration.md")
        write_output(page, with_current_table(page.read_text(encoding="utf-8"), args.write))
    elif args.explain:
        print(explain(), end="")
    elif args.list:
        print(_listing())
    elif args.preset is None:
        raise ConfigError("name a preset (seedlab config tiny), or ask for --list or --explain")
    else:
        print(to_json(load_config(args.preset, args.overrides)), end="")
    return 0


def _listing() -> str:
    lines = ["Presets:", *(f"  {name}" for name in PRESETS), "", "Methods:"]
    for bundle in METHODS.values():
        lines.append(f"  {bundle.name:<14} {bundle.summary}")
        if bundle.missing:
            lines.append(f"  {'':<14} (not built yet: needs {bundle.missing})")
    return "\n".join(lines)


def run_diff(args: argparse.Namespace) -> int:
    config = load_config(args.preset, args.overrides)
    if args.against != "paper":
        rows = differences.diff_against(config, load_config(args.against))
        print(json.dumps([asdict(row) for row in rows], indent=2) if args.json else _between_presets(rows, args))
        return 0
    rows = differences.diff_against_paper(config)
    unexplained = [row.key for row in rows if row.reason is None]
    assembly = own_assembly(config)
    if args.json:
        report = {
            "preset": config.preset,
            "method": config.method,
            "differences": [asdict(row) for row in rows],
            "unexplained": unexplained,
            "own_assembly": {key: {"method": old, "this": new} for key, (old, new) in assembly.items()},
        }
        print(json.dumps(report, indent=2))
    else:
        print(_against_paper(config, rows, assembly))
        print()
        print(f"{len(rows)} differences from the paper, {len(unexplained)} without a recorded reason")
        for key in unexplained:
            print(f"  unexplained: {key}")
    return 1 if unexplained else 0


def _against_paper(config, rows, assembly) -> str:
    lines = [f"{config.preset} with method {config.method}, against the paper", ""]
    for row in rows:
        lines.append(f"{row.key}: {_show(row.this)}   paper: {row.paper} ({row.source})")
        lines.append(_indent(row.reason or "NO RECORDED REASON"))
    if assembly:
        lines += ["", f"Own assembly: set on top of the method {config.method!r}"]
        lines += [f"    {key}: {_show(new)}   method: {_show(old)}" for key, (old, new) in assembly.items()]
    lines += ["", "Where the paper and its public code part, or the paper is silent"]
    for question, answers in differences.code_questions(config):
        lines.append(f"{question.question}   paper: {question.paper}   code: {question.code}")
        if answers:
            lines.append(_indent("here: " + ", ".join(f"{key}={_show(value)}" for key, value in answers.items())))
        if question.note:
            lines.append(_indent(question.note))
    return "\n".join(lines)


def _between_presets(rows, args) -> str:
    lines = [f"{args.preset} against {args.against}", ""]
    lines += [f"{row.key}: {_show(row.this)}   there: {_show(row.paper)}" for row in rows]
    return "\n".join([*lines, "", f"{len(rows)} differences"])


def _show(value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _indent(text: str) -> str:
    return textwrap.fill(text, 110, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
