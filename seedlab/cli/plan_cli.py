"""``seedlab plan``: what a run will need, before it starts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from seedlab.config.presets import load_config
from seedlab.errors import UserError

# option -> field of Assumptions, and what it is a mean of
_MEANS = {
    "steps": "environment steps of an episode", "prompt": "tokens of a step's prompt", "response": "sampled tokens of a step",
    "observation": "tokens of an observation", "skill": "tokens of a skill",
    "flops-efficiency": "share of the peak FLOP/s that reading and training reach", "bandwidth-efficiency": "share of the peak bandwidth that sampling reaches",
}  # fmt: skip


_BOUNDS = {"flops-efficiency": (1e-3, 1.0), "bandwidth-efficiency": (1e-3, 1.0)}  # shares of the peak


def add_commands(subparsers) -> None:
    plan = subparsers.add_parser(
        "plan",
        help="memory, tokens, FLOPs, disk and time of a run, before it starts",
        description="Print what a run will need, with the arithmetic: memory per GPU by part, tokens and FLOPs per phase, disk, "
        "and the time on given hardware. Exit code 1 where a phase does not fit the memory of a GPU.",
        epilog="example: seedlab plan paper/alfworld-qwen2.5-3b --device a800",
    )
    plan.add_argument("preset", metavar="PRESET", help="such as paper/alfworld-qwen2.5-3b; `seedlab config --list` shows all")
    plan.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="dotted overrides; method=NAME chooses a method")
    plan.add_argument("--device", metavar="GPU", help="a100, a800, h100 or h200: also estimate times; default for GPU presets: a800")
    plan.add_argument("--limits", action="store_true", help="assume that everything is as long as the configuration allows")
    for name, text in _MEANS.items():
        plan.add_argument(f"--{name}", type=_between(*_BOUNDS.get(name, (1e-3, 1e9))), metavar="X", help=f"assumed {text}")
    plan.add_argument("--json", action="store_true", help="print numbers as JSON")
    plan.set_defaults(run=run_plan)


def _between(least: float, most: float) -> Callable[[str], float]:
    """A number in these bounds, for `type=` of an argument."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from error
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be a number from {least:g} to {most:g}, not {text}")
        return value

    return read


def run_plan(args: argparse.Namespace) -> int:
    cfg = load_config(args.preset, args.overrides)
    from seedlab.plan import DEVICES, Assumptions, make_plan
    from seedlab.plan.report import as_dict, as_text

    name = args.device or ("a800" if cfg.model.device == "cuda" else None)
    if name is not None and name not in DEVICES:
        raise UserError(f"--device {name}: known are {', '.join(DEVICES)}")
    known = {option.replace("-", "_"): getattr(args, option.replace("-", "_")) for option in _MEANS}
    make = Assumptions.limits if args.limits else Assumptions.of
    plan = make_plan(cfg, DEVICES[name] if name else None, make(cfg, **known))
    print(json.dumps(as_dict(plan), indent=1) if args.json else as_text(plan))
    return 0 if plan.fits else 1
