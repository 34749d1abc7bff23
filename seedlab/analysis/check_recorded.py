"""Whether a run's small files, which are easily edited, say what its large ones do: config.json, metrics.jsonl."""

from __future__ import annotations

from seedlab.analysis.check_metrics import expected_metrics, metrics_mismatch
from seedlab.analysis.check_results import Broken, Skipped
from seedlab.analysis.frames import token_updates
from seedlab.config.presets import hash_of_values
from seedlab.store.files import read_json
from seedlab.store.layout import complete
from seedlab.store.reader import Run


def recorded_settings(run: Run) -> str:
    """config.json is the configuration that the manifest was written for."""
    if not (run.path / "manifest.json").exists():
        if run.status["state"] == "succeeded":
            raise Broken(f"{run.path / 'manifest.json'} is missing, although the run succeeded; restore it from a copy")
        raise Skipped("the run has no manifest yet")
    manifest, stored = run.manifest, read_json(run.path / "config.json")
    run.config  # a text that is no configuration is said first
    for key in ("preset", "method", "seed"):
        if key in manifest and manifest[key] != stored.get(key):
            raise Broken(f"config.json has {key}={stored.get(key)!r}, the manifest was written for {manifest[key]!r}: one of them was edited")
    if "config_hash" not in manifest:
        raise Skipped("the manifest has no config_hash")
    found = hash_of_values(stored)
    if found != manifest["config_hash"]:
        raise Broken(f"config.json has the hash {found}, the manifest was written for {manifest['config_hash']}: a setting was edited; restore config.json from a copy")
    return f"config.json has the manifest's hash {found}"


def metrics_from_tables(run: Run) -> str:
    """Each line of metrics.jsonl against the update's parquet files, and a line for each update."""
    metrics, status = run.metrics, run.status
    said, stored = metrics["update"].tolist(), run.updates
    # The tables are written just before the line: a run that lives, or was killed in between, may lack the last one.
    pending = stored[-1:] if stored and stored[-1] not in said and status["state"] != "succeeded" else []
    for what, numbers in (("metrics.jsonl has no line for", set(stored) - set(said) - set(pending)), ("updates/ has no tables of", set(said) - set(stored))):
        if numbers:
            raise Broken(f"{what} update {min(numbers)} ({len(numbers)} such): a file was edited or removed")
    if status["state"] == "succeeded" and complete(status) and len(said) < run.config.stage2.updates:
        raise Broken(f"the run succeeded, but metrics.jsonl has {len(said)} of {run.config.stage2.updates} updates")
    if not said:
        raise Skipped("the run has no complete update yet")
    tokens, count = set(token_updates(run)), 0
    for row in metrics.to_dict("records"):
        update = int(row["update"])
        played, steps = run.trajectories(update), run.steps(update)
        sizes = played["id"].map(steps.groupby("trajectory").size()).fillna(0)
        if (sizes != played["steps"]).any():
            odd = played[sizes != played["steps"]].iloc[0]
            raise Broken(f"update {update}: {odd['id']} has {odd['steps']} steps, but steps.parquet has {int(sizes[odd.name])} of it")
        expected = expected_metrics(played, steps, run.skills(update), run.tokens(update=update) if update in tokens else None, run.config)
        problem = metrics_mismatch(row, expected)
        if problem:
            raise Broken(f"metrics.jsonl, update {update}: {problem}")
        count += len(expected)
    return f"{count} values of {len(said)} updates as their tables give them; seconds, gradients and losses have no table"
