"""The static skills of a run: named by the configuration, or written once by its first snapshot; kept in its folder.

What lies in the folder is what the run uses, also after it was resumed: the skills are never refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from seedlab.config.schema import Config
from seedlab.envs import make_family
from seedlab.episodes.keys import stream_key
from seedlab.episodes.play import Episode
from seedlab.episodes.records import Skill, Trajectory
from seedlab.errors import UserError
from seedlab.skills import OwnAnalyzer, SkillLibrary, count_reasons, write_skills
from seedlab.skills.library import BUILTIN, SNAPSHOT
from seedlab.store import RunError, RunWriter
from seedlab.store.files import write_folder
from seedlab.store.layout import LIBRARY, configuration_of


def library_of(cfg: Config, family) -> SkillLibrary | None:
    """The library that `cfg` names, as its texts stand in prompts; None where no prompt gets one, and for `snapshot`.

    Raises UserError where it lacks a task type of the family, or has one that the family does not know.
    """
    source, retrieve = cfg.skills.library, cfg.skills.retrieve
    if not cfg.uses_library or source == SNAPSHOT:
        return None
    library = SkillLibrary.builtin(cfg.env.name, retrieve) if source == BUILTIN else SkillLibrary.load(source, retrieve)
    library = library.covering(family.task_types)
    return library if cfg.env.prompt == "instruct" else library.spaced()


def stored_library(cfg: Config, run: Path, family) -> SkillLibrary | None:
    """The copy in a run's folder; None where there is none."""
    file = run / LIBRARY
    return SkillLibrary.load(file, cfg.skills.retrieve).covering(family.task_types) if file.exists() else None


def run_library(cfg: Config, run: Path, session, writer: RunWriter, *, next_update: int) -> SkillLibrary | None:
    """The run's library, from its folder or made now and put there.  Raises RunError where a run under way lost it."""
    if not cfg.uses_library:
        return None
    found = stored_library(cfg, run, session.family)
    if found is not None:
        return found
    if next_update:
        raise RunError(f"{run / LIBRARY} is gone, which the run's first {next_update} updates used; restore it from a copy")
    library = library_of(cfg, session.family) or snapshot_library(cfg, session)
    write_folder((run / LIBRARY).parent, lambda folder: library.save(folder / Path(LIBRARY).name))
    writer.event("skill library", source=cfg.skills.library, hash=library.hash, texts=len(library.texts))
    return library


def library_for(cfg: Config, model: str | None, *, wanted: bool, overrides: Sequence[str]) -> SkillLibrary | None:
    """The static skills of something outside a run, such as an evaluation of the weights `model` under `cfg`.

    A run's own library, where `model` is a run or a checkpoint in one and no override of skills.library names another; an
    override of skills.retrieve chooses among its texts.  Else, if a prompt is to have a skill (`wanted`), that of `cfg`.
    Raises UserError where only a run's first snapshot could write it.
    """
    family = make_family(cfg.env)
    run = None if model is None else _run_of(Path(model))
    keys = {text.partition("=")[0].strip() for text in overrides}
    if run is not None and "skills.library" not in keys:
        return stored_library(cfg if "skills.retrieve" in keys else configuration_of(run), run, family)
    if not wanted:
        return None
    if cfg.skills.library == SNAPSHOT:
        raise UserError(f"skills.library={SNAPSHOT} is written by a run's first snapshot, and {model or 'no model'} is no run that has it; name a file")
    return library_of(cfg, family)


def _run_of(model: Path) -> Path | None:
    """The run with a library of its own that `model` is, or that it is a checkpoint of."""
    folder = model.resolve()
    return next((place for place in (folder, *folder.parents[:2]) if (place / LIBRARY).exists()), None)


def task_type_of(family, task_id: str) -> str:
    env = family.make(task_id)
    try:
        return env.task_type
    finally:
        env.close()


def skill_of_task(library: SkillLibrary | None, family) -> Callable[[str], str]:
    """From a task's id to the text that its prompts get; the empty text without a library."""
    return lambda task_id: "" if library is None else library.text_for(task_type_of(family, task_id))


def snapshot_library(cfg: Config, session) -> SkillLibrary:
    """One skill per task type, written by the session's weights about their own episodes on tasks of panel `stage1`.

    Raises UserError where a task type has no task there, or no usable skill in `skills.snapshot_tries` episodes.
    """
    tries = cfg.skills.snapshot_tries
    tasks = _tasks_by_type(session, tries)
    episodes = [Episode(of_type[i % len(of_type)], i // len(of_type)) for of_type in tasks.values() for i in range(tries)]
    played = session.play(episodes, phase="library-", update=0, seed=cfg.seed, temperature=cfg.rollout.temperature)
    with session.compute():
        skills = write_skills(
            played, OwnAnalyzer(session.generator, session.chat, cfg.analyzer), session.prompts, session.chat, cfg.analyzer, snapshot=0,
            key=lambda t: stream_key(cfg.seed, "library", t.id),
        ).skills
    session.forget(played)
    texts = {kind: _choose(kind, [t for t in played if t.task_type == kind], skills, cfg) for kind in tasks}
    return SkillLibrary.of(texts, SNAPSHOT, cfg.skills.retrieve)


def _tasks_by_type(session, wanted: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {kind: [] for kind in session.family.task_types}
    for task_id in session.panels["stage1"].task_ids:
        if all(len(tasks) >= wanted for tasks in found.values()):
            break
        of_type = found[task_type_of(session.family, task_id)]
        if len(of_type) < wanted:
            of_type.append(task_id)
    empty = [kind for kind, tasks in found.items() if not tasks]
    if empty:
        raise UserError(f"panel stage1 has no task of type {empty[0]!r} for skills.library={SNAPSHOT}; enlarge env.panel_sizes.stage1")
    return found


def _choose(kind: str, played: list[Trajectory], skills: list[Skill], cfg: Config) -> str:
    won = {t.id: t.success for t in played}
    about = [skill for skill in skills if skill.trajectory_id in won]
    usable = [s for s in about if s.accepted] or [s for s in about if s.text.strip() and not cfg.analyzer.drop_unusable]
    if not usable:
        reasons = {reason: count for reason, count in count_reasons(about).items() if count}
        raise UserError(
            f"skills.library={SNAPSHOT}: the policy wrote no usable skill for task type {kind!r} in {len(about)} episodes ({reasons}); raise "
            "skills.snapshot_tries, or start from weights that write skills (initial=stage1)"
        )
    return next((s for s in usable if won[s.trajectory_id]), usable[0]).text
