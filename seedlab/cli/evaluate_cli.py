"""``seedlab evaluate``: any Hugging Face model, folder or run on a panel, every task once, with its decoding recorded."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

from seedlab.cli.files import output_file, write_output
from seedlab.cli.progress import ProgressLine
from seedlab.config.presets import load_config
from seedlab.config.schema import Config
from seedlab.envs import make_family, refuse_unknown_panels
from seedlab.errors import UserError

# The protocol that a benchmark's panels are played with where no PRESET is given; only the model is another one.
BENCHMARKS = {
    "household": "tiny",
    **{name: f"paper/{name}-qwen2.5-3b" for name in ("alfworld", "webshop", "search")},
    **{name: f"paper/{name}-qwen2.5-vl-3b" for name in ("sokoban", "ezpoints")},
}


def add_commands(subparsers) -> None:
    evaluate = subparsers.add_parser(
        "evaluate",
        help="evaluate a model on a panel",
        description="Play every task of a panel once per sample and report macro and micro success. No prompt has a skill, and that is "
        "proved; evaluation.skill=library puts a static skill into each (of a run: its own library, unless skills.library names another). The "
        "model is a run, a checkpoint folder, a Hugging Face folder or a hub id.",
        epilog="example: seedlab evaluate --model Qwen/Qwen2.5-3B-Instruct --panel alfworld/unseen --set model.revision=main",
    )
    evaluate.add_argument("words", metavar="[PRESET] [KEY=VALUE ...]", nargs="*", help="protocol; default: the panel's benchmark in the paper's setting")
    evaluate.add_argument("--model", metavar="MODEL", required=True, help="a run folder, a checkpoint or Hugging Face folder, or a hub id")
    evaluate.add_argument(
        "--panel", action="append", required=True, help="seen, unseen, dev, … of PRESET, or BENCHMARK/PANEL such as alfworld/unseen; may be repeated"
    )
    evaluate.add_argument("--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[], help="dotted override, such as model.device=cpu")
    evaluate.add_argument("--out", metavar="FILE", help="write the summary as JSON")
    evaluate.set_defaults(run=run)


@dataclass(frozen=True)
class Request:
    cfg: Config
    panels: tuple[str, ...]


def resolve(words: list[str], panels: list[str], overrides: list[str]) -> Request:
    """The configuration and the panels' own names; UserError where benchmark and preset contradict each other."""
    preset = words[0] if words and "=" not in words[0] else None
    changes = (words[1:] if preset else words) + overrides
    benchmarks = {p.partition("/")[0] for p in panels if "/" in p}
    unknown = sorted(benchmarks - set(BENCHMARKS))
    if unknown:
        raise UserError(f"--panel: there is no benchmark {unknown[0]!r}; known are {', '.join(BENCHMARKS)}")
    if preset is None:
        if len(benchmarks) != 1 or not all("/" in p for p in panels):
            raise UserError("name a PRESET, or give each --panel with one and the same benchmark, such as --panel alfworld/unseen")
        preset = BENCHMARKS[next(iter(benchmarks))]
    cfg = load_config(preset, changes)
    for name in benchmarks:
        own = load_config(BENCHMARKS[name]).env.name
        if own != cfg.env.name:
            raise UserError(f"--panel {name}/…: preset {preset} plays env.name={cfg.env.name}, and {name} is {own}")
    return Request(cfg, tuple(p.rpartition("/")[2] for p in panels))


def run(args: argparse.Namespace) -> int:
    if not args.model.strip():
        raise UserError("--model is empty; give a run folder, a checkpoint or Hugging Face folder, or a hub id")
    request = resolve(args.words, args.panel, args.overrides)
    cfg, target = request.cfg, output_file(args.out, "--out", "summary.json")
    refuse_unknown_panels(request.panels, make_family(cfg.env).panels())
    # only now what takes seconds to import, and the weights
    from seedlab.train.evaluate import evaluate
    from seedlab.train.library import library_for
    from seedlab.train.open_session import open_session

    library = library_for(cfg, args.model, wanted=cfg.evaluation.skill == "library", overrides=[*args.words, *args.overrides])
    # vLLM is worth its start on a GPU only
    sampler = cfg.cluster.generator if cfg.model.device == "cuda" else "local"
    session, path = open_session(cfg, args.model, ProgressLine(), sampler=sampler)
    known = () if library is None else tuple(library.texts.values())
    summary = evaluate(session, update=0, panels=request.panels, skills=known, library=library).summary
    session.generator.close()
    for panel, row in summary.items():
        told = f", skills of library {row['skill']['library']}" if "skill" in row else ""
        print(f"{panel} ({row['episodes']} episodes, panel {row['panel_hash']}{told}): macro {row['success_macro']:.4f}  micro {row['success_micro']:.4f}")
        for kind, part in row["by_type"].items():
            print(f"  {kind:34s} {part['successes']}/{part['episodes']}")
    if target is not None:
        write_output(target, json.dumps({"model": path, **_identity(session), "panels": summary}, indent=1))
    return 0


def _identity(session) -> dict:
    """What was evaluated, so that the figure can be traced: hashes of weights, tokenizer and template, and the protocol."""
    from seedlab.config.presets import config_hash
    from seedlab.policy.load import model_hash, tokenizer_hash

    policy, cfg = session.policy, session.cfg
    return {
        "revision": cfg.model.revision, "commit": policy.commit, "preset": cfg.preset, "config_hash": config_hash(cfg), "sampler": session.sampler,
        "weights_hash": model_hash(policy.model), "tokenizer_hash": tokenizer_hash(policy.tokenizer),
        "chat_template_hash": policy.chat.template_hash, "parameters": policy.parameters,
    }  # fmt: skip
