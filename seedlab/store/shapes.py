"""What the JSON of a run folder must hold, field by field: an edited or half-copied file is named, with the field at
fault, where it would otherwise end in a traceback or in a wrong number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from seedlab.store.errors import RunError


@dataclass(frozen=True)
class Kind:
    """What a value must be: `says` completes "it must be …"."""

    says: str
    fits: Callable[[object], bool]


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


NUMBER = Kind("a number", _number)
COUNT = Kind("a whole number from 0 up", _count)
SHARE = Kind("a number from 0 to 1", lambda value: _number(value) and 0 <= value <= 1)
TEXT = Kind("a text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
LIST = Kind("a list", lambda value: isinstance(value, list))
# as `files.plain` writes a metric: NaN is null, an infinity its name
METRIC = Kind("a number, null, or the text of an infinity", lambda value: value is None or _number(value) or value in ("Infinity", "-Infinity"))


def maybe(kind: Kind) -> Kind:
    return Kind(f"{kind.says}, or null", lambda value: value is None or kind.fits(value))


def each(kind: Kind) -> Kind:
    """An object whose values are of `kind`."""
    return Kind(f"an object whose values are each {kind.says}", lambda value: isinstance(value, dict) and all(map(kind.fits, value.values())))


def several(kind: Kind) -> Kind:
    return Kind(f"a list whose items are each {kind.says}", lambda value: isinstance(value, list) and all(map(kind.fits, value)))


RESTORE = "restore it from a copy"


def check_fields(
    value: object, needed: Mapping[str, Kind], where: object, *, optional: Mapping[str, Kind] | None = None, advice: str = RESTORE
) -> dict:
    """`value`, which must be an object with the fields `needed`, and those of `optional` that it has.

    Raises RunError naming `where`, the field, what it is and what it must be.
    """
    if not isinstance(value, dict):
        raise RunError(f"{where} is damaged: it holds {shown(value)}, and must be an object; {advice}")
    missing = [key for key in needed if key not in value]
    if missing:
        raise RunError(f"{where} is damaged: it lacks {', '.join(missing)}; {advice}")
    for key, kind in {**needed, **(optional or {})}.items():
        if key in value and not kind.fits(value[key]):
            raise RunError(f"{where} is damaged: {key} is {shown(value[key])}, and must be {kind.says}; {advice}")
    return value


def shown(value: object) -> str:
    """A value as an error message shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---- the files, each with the fields that its readers rely on

DONE_FIELDS = {"update": COUNT, "rows": each(COUNT)}
COMPLETE_FIELDS = {"update": COUNT, "files": each(COUNT)}
SUMMARY_FIELDS = {"update": COUNT, "panels": each(OBJECT)}
PANEL_FIELDS = {"success_macro": SHARE, "success_micro": SHARE, "panel_hash": TEXT, "decoding": OBJECT}  # what the writer insists on
PANEL_MORE = {
    "episodes": COUNT, "by_type": each(OBJECT), "mean_steps": NUMBER, "mean_return": NUMBER, "infra_failures": COUNT, "inadmissible_rate": SHARE, "tasks": COUNT, "update": COUNT,
    "prompts_without_skill": FLAG, "skill": OBJECT,
}  # fmt: skip
DECODING_FIELDS = {"temperature": NUMBER, "top_p": NUMBER, "n": COUNT, "seed": COUNT}
TYPE_FIELDS = {"successes": COUNT, "episodes": COUNT}
MANIFEST_MORE = {
    "code": OBJECT, "hardware": OBJECT, "panels": each(OBJECT), "panel_tasks": each(several(TEXT)), "config_hash": TEXT, "preset": TEXT,
    "method": TEXT, "seed": COUNT, "model": OBJECT, "packages": each(TEXT), "distributions": each(TEXT), "python": TEXT,
}  # fmt: skip
STAGE1_FIELDS = {
    "tasks": COUNT, "trajectories": COUNT, "successes": COUNT, "labels": COUNT, "accepted": COUNT, "reasons": each(COUNT),
    "train_rows": COUNT, "held_out_rows": COUNT, "replay_documents": COUNT, "before": OBJECT, "after": OBJECT, "external_analyzer": TEXT,
}  # fmt: skip
STAGE1_MORE = {"losses": several(NUMBER), "first_loss": NUMBER, "last_loss": NUMBER, "rollouts_cache": TEXT, "labels_cache": TEXT, "sft_steps": COUNT}
LINK_FIELDS = {"name": TEXT, "state": TEXT, "seconds": maybe(NUMBER)}  # of a status


def check_metrics_row(row: dict, where: str) -> None:
    """A line of metrics.jsonl."""
    advice = "repair or remove that line"
    check_fields(row, {"update": COUNT, "time": NUMBER}, where, optional={key: METRIC for key in row if "/" in key}, advice=advice)


def check_event_row(row: dict, where: str) -> None:
    """A line of events.jsonl."""
    check_fields(row, {"kind": TEXT, "time": NUMBER}, where, optional={"update": COUNT}, advice="repair or remove that line")


def check_summary(value: object, where: object) -> dict:
    """An evaluation's summary.json, with each panel's entry."""
    summary = check_fields(value, SUMMARY_FIELDS, where)
    for panel, entry in summary["panels"].items():
        place = f"{where}, panel {panel}"
        check_fields(entry, PANEL_FIELDS, place, optional=PANEL_MORE)
        check_fields(entry["decoding"], DECODING_FIELDS, f"{place}, decoding")
        for kind, counts in entry.get("by_type", {}).items():
            check_fields(counts, TYPE_FIELDS, f"{place}, by_type {kind}")
    return summary
