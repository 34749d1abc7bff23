"""The verdict v_tau on an analyzer's answer, with a reason for each rejection (paper section 2, item 3)."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Iterable

from seedlab.config.schema import AnalyzerConfig
from seedlab.episodes.records import Skill
from seedlab.skills.prompts import MARKER, SKILL_KEY

REASONS = ("ok", "empty", "cut", "unparseable", "too_short", "too_long", "copied", "prompt_too_long")
WINDOW = 8  # words
_WORD = re.compile(r"\w+")


def validate(raw: str, contract: str, cfg: AnalyzerConfig, transcript: str, finish: str) -> tuple[str, bool, str]:
    """(skill text, accepted, reason) of a raw answer.

    `finish` is how the generation ended; anything but "stop" is `cut`.  `copied`: more than `cfg.max_copied_fraction`
    of the skill's 8-word windows stand in the transcript.  The text of a rejected answer is returned where there is
    one, so that it can be shown.  Control tokens in it stay the plain text that they are.
    """
    if not raw.strip():
        return "", False, "empty"
    text = parse(raw, contract)
    if finish != "stop":
        return text or "", False, "cut"
    if text is None:
        return "", False, "unparseable"
    words = len(text.split())
    if not words:
        return "", False, "empty"
    if words < cfg.min_words:
        return text, False, "too_short"
    if words > cfg.max_words:
        return text, False, "too_long"
    if copied_fraction(text, transcript) > cfg.max_copied_fraction:
        return text, False, "copied"
    return text, True, "ok"


def parse(raw: str, contract: str) -> str | None:
    """The skill in a raw answer, stripped; None where a JSON answer holds no object with a text under the key."""
    if contract == "marker":
        text = raw.strip()
        return text.removeprefix(MARKER).strip()
    if contract != "json":
        raise ValueError(f"unknown analyzer contract {contract!r}; use marker or json")
    found = [o[SKILL_KEY] for o in json_objects(raw.rpartition("</think>")[2]) if isinstance(o.get(SKILL_KEY), str)]
    return found[-1].strip() if found else None  # an earlier object is a draft, or the form repeated


def json_objects(text: str) -> Iterable[dict]:
    """Outermost JSON objects in `text`, whatever stands around them (prose, code fences, stray braces)."""
    decoder = json.JSONDecoder(strict=False)  # models put line breaks into strings
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):  # no JSON here; numbers or nesting without end are no JSON either
            end = place + 1
        else:
            yield value
        place = text.find("{", end)


def copied_fraction(text: str, transcript: str) -> float:
    """Share of the 8-word windows of `text` that stand in `transcript`; 0 for a text without a whole window."""
    windows = _windows(text)
    if not windows:
        return 0.0
    known = set(_windows(transcript))
    return sum(window in known for window in windows) / len(windows)


def _windows(text: str) -> list[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return [tuple(words[i : i + WINDOW]) for i in range(len(words) - WINDOW + 1)]


def count_reasons(skills: Iterable[Skill]) -> dict[str, int]:
    """How many skills each reason took, reasons without any included (C9)."""
    counts = Counter(skill.reason for skill in skills)
    return {reason: counts.pop(reason, 0) for reason in REASONS} | dict(counts)
