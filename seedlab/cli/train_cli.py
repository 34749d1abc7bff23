"""``train``, ``resume``, ``rollout``, ``trace``: the method's phases from the command line."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from seedlab.cli.files import output_file, write_output
from seedlab.cli.jobs_cli import add_submission, announce, submission_options
from seedlab.cli.parsing import add_command as _add
from seedlab.cli.progress import ProgressLine
from seedlab.config.presets import load_config
from seedlab.config.starting import refuse_to_start
from seedlab.envs import check_settings
from seedlab.errors import UserError
from seedlab.jobs import find_run, submit_resume
from seedlab.store.layout import UNTIL, configuration_of, default_out
from seedlab.store.making_room import make_room


def add_commands(subparsers) -> None:
    train = _add(
        subparsers, "train", "run a preset from start to evaluation in the foreground",
        "seedlab train tiny method=seed seed=1 --out runs/seed-1", run_train,
    )
    _preset(train)
    train.add_argument("--out", metavar="DIR", help="run folder; default runs/PRESET-METHOD-sSEED")
    train.add_argument("--resume", action="store_true", help="go on with DIR where it already holds this run")
    train.add_argument("--results", metavar="FILE", help="append the finished run's row to this file")
    train.add_argument("--dry-run", action="store_true", help="check the whole configuration, verl's too where engine=verl, and start nothing")
    train.add_argument("--until", choices=tuple(UNTIL), help="end after this link; resuming goes on from there")

    resume = _add(subparsers, "resume", "go on with an interrupted run", "seedlab resume runs/seed-1 --background", run_resume)
    resume.add_argument("folder", metavar="RUN", help="a run folder, or its name below runs/")
    resume.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for this and later starts: keys that make room and change no result")
    resume.add_argument("--background", action="store_true", help="as a job; the same as `seedlab submit RUN --resume`")
    add_submission(resume)

    rollout = _add(
        subparsers, "rollout", "play one task, show it, save it or replay it",
        "seedlab rollout household/pick_heat_then_place_in_recep-Mug-Shelf-0123 --save mug.json", run_rollout,
    )
    rollout.add_argument("task", metavar="TASK", nargs="?", help="a task id; `seedlab envs list tiny --tasks dev` prints those of a panel")
    rollout.add_argument("--preset", default="tiny", help="default: tiny")
    rollout.add_argument("--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[], help="dotted override")
    rollout.add_argument("--model", metavar="FOLDER", help="a checkpoint or hub id; default: the preset's base policy")
    rollout.add_argument("--temperature", type=_temperature, default=None, help="0 is greedy; default: the preset's rollout temperature")
    rollout.add_argument("--save", metavar="FILE", help="write the complete record as JSON")
    rollout.add_argument("--replay", metavar="FILE", help="play a saved record again and check that it repeats exactly")

    trace = _add(
        subparsers, "trace", "follow one Stage-1 sample from its trajectory to its SFT row",
        "seedlab trace runs/seed-1 0", run_trace,
    )
    trace.add_argument("folder", metavar="RUN", help="a run folder, or its name below runs/")
    trace.add_argument("sample", metavar="SAMPLE", nargs="?", default="0", help="number of an SFT row, or a trajectory id")


def _temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"the temperature must be 0 or more, and finite; got {text}")
    return value


def _preset(parser) -> None:
    parser.add_argument("preset", metavar="PRESET", help="such as tiny; `seedlab config --list` shows all")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="dotted overrides; method=NAME chooses a method")


def run_train(args: argparse.Namespace) -> int:
    cfg = load_config(args.preset, args.overrides)
    results = output_file(args.results, "--results", "results.jsonl", make_parent=True)
    if args.dry_run:
        return dry_run(cfg, args.out)
    refuse_to_start(cfg)
    check_settings(cfg.env)
    # only now what takes seconds to import
    from seedlab.train.run import train
    from seedlab.train.stage2 import Interrupted

    out = Path(args.out) if args.out else default_out(cfg)
    try:
        run = train(cfg, out, resume=args.resume, progress=ProgressLine(), results=results, until=args.until)
    except Interrupted as error:
        print(f"{error}; go on with: seedlab resume {out}")
        return 130
    return _show(run)


def dry_run(cfg, out: str | None) -> int:
    """Print what would run; raises UserError where it could not be configured."""
    from seedlab.config.presets import config_hash
    from seedlab.envs import PLANNED

    refuse_to_start(cfg)
    if cfg.env.name not in PLANNED:
        check_settings(cfg.env)
        from seedlab.train.prompt_limits import refuse_small_limits  # transformers, for the policy's tokenizer

        refuse_small_limits(cfg)
    print(f"{cfg.preset}, method {cfg.method}, seed {cfg.seed}, engine {cfg.engine}: configuration {config_hash(cfg)} is complete")
    if cfg.engine == "verl":
        from omegaconf import OmegaConf

        from seedlab.engines.verl.config import VERSION, compose

        composed = compose(cfg, **({} if out is None else {"run": out}))
        print(f"verl {VERSION} accepts this, on {cfg.cluster.nodes} x {cfg.cluster.gpus} GPUs:")
        print(OmegaConf.to_yaml(composed, resolve=True))
    return 0


def run_resume(args: argparse.Namespace) -> int:
    if args.background:
        make_room(find_run(args.folder), args.overrides)
        return announce(submit_resume(find_run(args.folder), **submission_options(args)))
    if args.at_most or args.slurm or args.ray or args.backend != "local":
        raise UserError("--at-most, --backend, --slurm and --ray are for a job: add --background")
    folder, results = find_run(args.folder), output_file(args.results, "--results", "results.jsonl", make_parent=True)
    configuration_of(folder)
    make_room(folder, args.overrides)
    # only now what takes seconds to import
    from seedlab.train.run import resume
    from seedlab.train.stage2 import Interrupted

    try:
        run = resume(folder, progress=ProgressLine(), results=results, until=args.until)
    except Interrupted as error:
        print(f"{error}; go on with: seedlab resume {folder}")
        return 130
    return _show(run)


def _show(run) -> int:
    print(f"{run.path}: {run.status['state']}")
    for row in run.evaluations.to_dict("records"):
        print(f"  {row['panel']:8s} success macro {row['success_macro']:.3f}  micro {row['success_micro']:.3f}  ({row['episodes']} episodes)")
    if run.status["state"] == "succeeded":
        print(f"look at it: seedlab report {run.path}   seedlab check {run.path}   in a notebook: seedlab.inspect_tokens({str(run.path)!r})")
    return 0


def run_rollout(args: argparse.Namespace) -> int:
    from seedlab.cli.replay import first_difference, read_rollout, record_of
    from seedlab.config.presets import config_hash

    saved, target = None, output_file(args.save, "--save", "rollout.json")
    if args.replay:
        saved = read_rollout(args.replay)
        preset, overrides, model, temperature, task = saved.preset, saved.overrides, saved.model, saved.temperature, saved.trajectory["task_id"]
    elif args.task:
        preset, overrides, model, task, temperature = args.preset, args.overrides, args.model, args.task, args.temperature
    else:
        raise UserError(f"give a TASK, or --replay FILE; `seedlab envs list {args.preset} --tasks dev` prints task ids")
    cfg = load_config(preset, overrides)
    temperature = cfg.rollout.temperature if temperature is None else temperature
    _check_task(cfg, task)
    # only now what takes seconds to import
    from seedlab.episodes.play import Episode
    from seedlab.policy.load import model_hash
    from seedlab.train.library import library_for, skill_of_task
    from seedlab.train.open_session import open_session

    library = library_for(cfg, model, wanted=True, overrides=overrides) if cfg.rollout.skill == "library" else None
    session, path = open_session(cfg, model, ProgressLine())
    trajectory = session.play([Episode(task, 0, skill_of_task(library, session.family)(task))], phase="rollout", update=0, seed=cfg.seed, temperature=temperature)[0]
    _show_trajectory(trajectory)
    if target is None and saved is None:
        return 0
    hashes = config_hash(cfg), model_hash(session.policy.model)
    if target is not None:
        write_output(target, record_of(preset, overrides, str(path), temperature, trajectory, *hashes))
        print(f"saved to {target}")
    if saved is None:
        return 0
    difference = first_difference(saved, trajectory, *hashes)
    print("replay is identical: every field of every step and of the trajectory" if difference is None else f"replay differs in {difference}")
    return 0 if difference is None else 1


def _check_task(cfg, task: str) -> None:
    from seedlab.envs import make_family

    family = make_family(cfg.env)
    try:
        family.make(task).close()
    except ValueError as error:
        raise UserError(f"{error}; `seedlab envs list {cfg.preset} --tasks dev` prints task ids") from error


def _show_trajectory(trajectory) -> None:
    print(f"task: {trajectory.goal}")
    if trajectory.prompt_skill:
        print(f"skill in the prompt: {trajectory.prompt_skill}")
    for step in trajectory.steps:
        print(f"\n{step.observation}\n> {step.action}{'' if step.admissible else '   (not admissible)'}")
    print(f"\n{trajectory.final_observation}\n{'success' if trajectory.success else 'failure'}, return {trajectory.returned:g}, {len(trajectory.steps)} steps")


def run_trace(args: argparse.Namespace) -> int:
    folder = find_run(args.folder)
    from seedlab.analysis.stage1 import sample

    print(sample(folder, args.sample))
    return 0
