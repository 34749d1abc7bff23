"""The library of static skills: one general text and one per task type, written once and never refreshed.

A file is JSON lines, ``{"task_type": "pick", "text": "..."}`` a line, or one JSON object ``{"pick": "..."}``.  The general
skill stands under ``general``.  A library that lacks a task type is refused before anything runs: with a general text in
its place nobody would notice that the specific ones are not there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seedlab.config.names import suggestion
from seedlab.episodes.prompts import spaced_text
from seedlab.errors import UserError

GENERAL = "general"
BUILTIN, SNAPSHOT = "builtin", "snapshot"  # values of skills.library that are no files
RETRIEVE = ("both", "task_type", "general")
_FOLDER = Path(__file__).parent / "libraries"


def text_hash(text: str) -> str:
    """16 digits that name a skill text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SkillLibrary:
    """Skill texts by task type, `general` among them.  `hash` names them all; `retrieve` is skills.retrieve."""

    texts: Mapping[str, str]
    hash: str
    name: str = "library"
    retrieve: str = "task_type"

    @classmethod
    def of(cls, texts: Mapping[str, str], name: str = "library", retrieve: str = "task_type") -> "SkillLibrary":
        """Raises UserError where there is no text, or one that is not a non-empty text."""
        if retrieve not in RETRIEVE:
            raise ValueError(f"unknown skills.retrieve={retrieve!r}; use one of {', '.join(RETRIEVE)}")
        return cls._of([_Entry(kind, text, name) for kind, text in texts.items()], name, retrieve)

    @classmethod
    def _of(cls, entries: list["_Entry"], name: str, retrieve: str) -> "SkillLibrary":
        if not entries:
            raise UserError(f"the skill library {name} is empty; it must map task types to skill texts")
        texts: dict[str, str] = {}
        for entry in entries:
            if not isinstance(entry.kind, str) or not entry.kind.strip():
                raise UserError(f"{entry.place}: task_type is {entry.kind!r}; it must name a task type, or {GENERAL!r}")
            if not isinstance(entry.text, str) or not any(char.isalnum() for char in entry.text):
                raise UserError(f"{entry.place}: the skill of task type {entry.kind!r} has no text")
            if not _is_unicode(entry.kind) or not _is_unicode(entry.text):
                raise UserError(f"{entry.place}: the skill of task type {entry.kind!r} holds half of a surrogate pair, which is no character; mend it")
            if entry.kind in texts:
                raise UserError(f"{entry.place}: task type {entry.kind!r} has a skill already; a library has one text per task type")
            texts[entry.kind] = entry.text.strip()
        payload = json.dumps(sorted(texts.items()), ensure_ascii=False).encode()
        return cls(texts, hashlib.sha256(payload).hexdigest()[:16], name, retrieve)

    @classmethod
    def load(cls, path: str | Path, retrieve: str = "task_type") -> "SkillLibrary":
        """Read a file of JSON lines (name ending in .jsonl) or one JSON object.  Raises UserError with file and line."""
        path = Path(path)
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read the skill library {path}: {error}") from error
        entries = _from_lines(content, path) if path.suffix == ".jsonl" else _from_object(content, path)
        return cls._of(entries, str(path), retrieve)

    @classmethod
    def builtin(cls, environment: str, retrieve: str) -> "SkillLibrary":
        """seedlab's own library of an environment.  Raises UserError where there is none."""
        file = _FOLDER / f"{environment}.jsonl"
        if not file.is_file():
            known = ", ".join(sorted(found.stem for found in _FOLDER.glob("*.jsonl")))
            raise UserError(
                f"skills.library={BUILTIN}: seedlab has no skill library for env.name={environment} (it has: {known}); name a file with a skill "
                f"for each task type, or skills.library={SNAPSHOT}"
            )
        return cls.load(file, retrieve)

    def save(self, path: str | Path) -> None:
        """JSON lines that `load` reads back."""
        lines = (json.dumps({"task_type": kind, "text": text}, ensure_ascii=False) + "\n" for kind, text in self.texts.items())
        Path(path).write_text("".join(lines), encoding="utf-8")

    def covering(self, task_types: Iterable[str]) -> "SkillLibrary":
        """This library, checked against the task types of an environment.

        Raises UserError for a type without a skill, for one that the environment does not have, and for a missing
        general skill where `retrieve` asks for it.
        """
        known = list(task_types)
        for kind in self.texts:
            if kind not in (*known, GENERAL):
                raise UserError(f"the skill library {self.name} has a skill for {kind!r}, which is no task type here{suggestion(kind, known)} (task types: {', '.join(known)})")
        for kind in known:
            self.text_for(kind)
        return self

    def text_for(self, task_type: str) -> str:
        """What a prompt of this task type gets.  A missing text is an error: another in its place would go unnoticed."""
        wanted = {"both": (GENERAL, task_type), "task_type": (task_type,), "general": (GENERAL,)}[self.retrieve]
        missing = [kind for kind in wanted if kind not in self.texts]
        if missing:
            what = "general skill" if missing[0] == GENERAL else f"skill for task type {missing[0]!r}"
            raise UserError(f"the skill library {self.name} has no {what} (skills.retrieve={self.retrieve}); it has: {', '.join(sorted(self.texts))}")
        return " ".join(self.texts[kind] for kind in wanted)

    def spaced(self) -> "SkillLibrary":
        """As the short prompts of the tiny policy write everything: lower case, marks apart from words."""
        return SkillLibrary.of({kind: spaced_text(text) for kind, text in self.texts.items()}, self.name, self.retrieve)


@dataclass(frozen=True)
class _Entry:
    kind: object
    text: object
    place: str


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Pairs(list):
    """The keys and values of a JSON object, in order and with those that stand twice: a dictionary would keep the last
    without a word."""


def _from_lines(content: str, path: Path) -> list[_Entry]:
    entries = []
    for number, line in enumerate(content.split("\n"), 1):  # not splitlines: U+2028 and its like may stand inside a text
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            pairs = json.loads(line, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: {error}") from error
        row = dict(pairs) if isinstance(pairs, _Pairs) else {}
        if set(row) != {"task_type", "text"} or len(pairs) != 2:
            held = ", ".join(key for key, _ in pairs) if isinstance(pairs, _Pairs) else type(pairs).__name__
            raise UserError(f"{place}: a line is an object with the keys task_type and text; this one has: {held or 'nothing'}")
        entries.append(_Entry(row["task_type"], row["text"], place))
    return entries


def _from_object(content: str, path: Path) -> list[_Entry]:
    try:
        pairs = json.loads(content, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        raise UserError(f"cannot read the skill library {path}: {error}") from error
    if not isinstance(pairs, _Pairs):
        raise UserError(f"the skill library {path} must be a JSON object that maps task types to skill texts")
    entries, searched = [], 0
    for kind, text in pairs:
        found = re.compile(re.escape(json.dumps(kind, ensure_ascii=False)) + r"\s*:").search(content, searched)
        searched = found.end() if found else searched  # a key that is spelt with escapes is not found: its place is the one before
        entries.append(_Entry(kind, text, f"{path}, line {content.count(chr(10), 0, searched) + 1}"))
    return entries
