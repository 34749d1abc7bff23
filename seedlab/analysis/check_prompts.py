"""Whether each prompt contained the skill that it should have, as far as stored ids and texts can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from seedlab.analysis.check_results import Broken, Skipped
from seedlab.analysis.frames import token_updates
from seedlab.errors import UserError
from seedlab.skills.library import SkillLibrary, text_hash
from seedlab.store.layout import LIBRARY
from seedlab.store.reader import Run

_OF_STEP = "teacher of step "


def skills_in_prompts(run: Run) -> str:
    """The skill of each prompt and each teacher: found in its ids, and the one that the method takes it from."""
    library = _library(run)
    taught = told = 0
    texts: set[str] = set()
    for update in run.updates:
        frame = run.prompt_skills(update)
        where = f"update {update}"
        _each_line(where, frame)
        _sources(where, frame[~frame["place"].str.startswith(_OF_STEP)], _texts_of(run, update), library)
        _steps_of_teachers(where, frame[frame["place"].str.startswith(_OF_STEP)], run.step_skills(update))
        told += _played_with(run, update, frame)
        taught += _taught_with(run, update, frame)
        texts |= set(frame["hash"])
    evaluated = _evaluated_with(run, library)
    if not texts and not evaluated:
        raise Skipped("no prompt of the run had a skill, or the run is older than this record")
    name = f", library {library.hash} with {len(library.texts)} texts" if library else ""
    return f"{len(texts)} distinct skills in the prompts of {told} and for the teachers of {taught} trajectories{evaluated}{name}"


def _library(run: Run) -> SkillLibrary | None:
    if not run.config.uses_library:
        return None
    file = run.path / LIBRARY
    if not file.exists():
        if run.updates or len(run.evaluations):
            raise Broken(f"{file} is missing, although prompts of the run have skills from it; restore it from a copy")
        raise Skipped("the run has no skill library yet")
    try:
        return SkillLibrary.load(file, run.config.skills.retrieve)
    except UserError as error:
        raise Broken(str(error)) from error


def _each_line(where: str, frame: pd.DataFrame) -> None:
    for row in frame.to_dict("records"):
        if text_hash(row["text"]) != row["hash"]:
            raise Broken(f"{where}: the skill of {row['trajectory']} ({row['place']}) has the hash {row['hash']}, but its text gives {text_hash(row['text'])}")
        if row["found"] != row["prompts"]:
            raise Broken(f"{where}: {row['found']} of {row['prompts']} {row['place']} prompts of {row['trajectory']} contain its skill {row['text']!r}")


def _texts_of(run: Run, update: int) -> dict[str, list[str]]:
    """{trajectory: skills written about it}; several where the analyzer was asked more than once."""
    out: dict[str, list[str]] = {}
    for frame in (run.skills(update), run.more_skills(update)):
        for name, text in zip(frame["trajectory"], frame["text"]):
            out.setdefault(name, []).append(text)
    return out


def _sources(where: str, frame: pd.DataFrame, written: Mapping[str, Sequence[str]], library: SkillLibrary | None) -> None:
    """Each text is that of its source: a library's by task type, its own trajectory's, or that of another one, `name:ID`."""
    for row in frame.to_dict("records"):
        source, owner = row["source"], row["trajectory"]
        if source == "empty":
            expected = [""]
        elif source in ("static", "library"):
            if library is None:
                raise Broken(f"{where}: {owner} has a skill of a library, but the configuration has none")
            try:
                expected = [library.text_for(row["task_type"])]
            except UserError as error:
                raise Broken(f"{where}: {owner}: {error}") from error
        else:
            other = source.partition(":")[2]
            expected = written.get(other if other in written else owner, [])
        if row["text"] not in expected:
            given = " or ".join(map(repr, expected)) or "none"
            raise Broken(f"{where}: the {row['place']} of {owner} had the skill {row['text']!r}, but {source} gives {given}")


def _steps_of_teachers(where: str, frame: pd.DataFrame, written: pd.DataFrame) -> None:
    """A critical step's teacher read the usable skill that was written for that step."""
    usable = written[written["accepted"].astype(bool)]
    texts = {(name, f"{_OF_STEP}{step}"): text for name, step, text in zip(usable["trajectory"], usable["step"], usable["text"])}
    for row in frame.to_dict("records"):
        expected = texts.get((row["trajectory"], row["place"]))
        if row["text"] != expected:
            raise Broken(f"{where}: the {row['place']} of {row['trajectory']} had the skill {row['text']!r}, but {expected!r} was written for that step")


def _played_with(run: Run, update: int, frame: pd.DataFrame) -> int:
    """Trajectories played with a skill; their prompts are decoded anew where the tokenizer is there."""
    played, wanted = run.trajectories(update), run.config.rollout.skill == "library"
    played = played[played["infra_failure"] == ""]
    skill = dict(zip(played["id"], played["prompt_skill"]))
    recorded = frame[frame["place"] == "prompt"]
    if not wanted:
        odd = [name for name, text in skill.items() if text] + recorded["trajectory"].to_list()
        if odd:
            raise Broken(f"update {update}: {odd[0]} was played with a skill in its prompts, although rollout.skill=none")
        return 0
    texts = dict(zip(recorded["trajectory"], recorded["text"]))
    for name, text in skill.items():
        if not text or texts.get(name) != text:
            raise Broken(f"update {update}: {name} should have been played with a library skill; recorded are {text!r} and {texts.get(name)!r}")
    _decode_anew(run, update, skill)
    return len(skill)


def _decode_anew(run: Run, update: int, skill: Mapping[str, str]) -> None:
    file = run.path / "checkpoints" / "reference" / "tokenizer.json"
    if not file.exists():
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    steps = run.steps(update)
    for name, number, ids in zip(steps["trajectory"], steps["step"], steps["prompt_ids"]):
        words = " ".join(skill.get(name, "").split())
        if words not in " ".join(tokenizer.decode(list(ids), skip_special_tokens=False).split()):
            raise Broken(f"update {update}: the prompt of {name} step {number} does not contain its skill {words!r}")


def _taught_with(run: Run, update: int, frame: pd.DataFrame) -> int:
    """Trajectories whose teacher read a skill: every distilled one is among them."""
    recorded = set(frame.loc[frame["place"] == "teacher", "trajectory"])
    if len(frame) == 0 and "prompt_skills" not in run.tables("updates", update):
        return 0  # without a skill in it, or from before this was recorded
    if update in token_updates(run):
        tokens = run.tokens(update=update)
        for name in sorted(set(tokens.loc[tokens["mask_opd"], "trajectory"]) - recorded):
            raise Broken(f"update {update}: {name} is distilled, but no skill is recorded for its teacher")
    return len(recorded)


def _evaluated_with(run: Run, library: SkillLibrary | None) -> str:
    wanted, said = run.config.evaluation.skill == "library", ""
    for update in sorted(set(run.evaluations["update"])) if len(run.evaluations) else ():
        frame = run.prompt_skills(update, "eval")
        where = f"evaluation at update {update}"
        _each_line(where, frame)
        _sources(where, frame, {}, library)
        for panel, entry in run.summary(update).items():
            if entry.get("prompts_without_skill", not wanted) == wanted:
                raise Broken(f"{where}, panel {panel}: its summary says prompts_without_skill={entry['prompts_without_skill']}, the configuration evaluation.skill={run.config.evaluation.skill}")
            if wanted and entry.get("skill", {}).get("library") != library.hash:
                raise Broken(f"{where}, panel {panel}: the summary names library {entry.get('skill', {}).get('library')}, the run's has {library.hash}")
        episodes = run.episodes(update)
        expected = int((episodes["infra_failure"] == "").sum()) if wanted else 0
        if len(frame) < expected or (not wanted and len(frame)):
            raise Broken(f"{where}: {len(frame)} episodes have a recorded skill, {expected} should")
        said = f", and in all prompts of {len(frame)} evaluated episodes" if wanted else said
    return said
