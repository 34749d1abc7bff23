"""What a check of a run can answer."""

from __future__ import annotations

from dataclasses import dataclass

PASSED, FAILED, NOT_CHECKED = "passed", "failed", "not checked"


@dataclass(frozen=True)
class CheckResult:
    name: str
    state: str  # passed | failed | not checked
    detail: str


class Broken(Exception):
    """A check found something wrong; its text says what and where."""


class Skipped(Exception):
    """A check could not be made; its text says why."""
