"""In place of `seedlab train` and `resume`: a run folder with an evaluation, and nothing learned.

A file beside the run folder decides what goes wrong: NAME.fail exits with 3 halfway, NAME.hang waits.  Each start appends
a line to starts.txt in the sweep's folder.
"""

import os
import sys
import time
from pathlib import Path

import pandas as pd

from seedlab.config.presets import load_config
from seedlab.store import RunWriter
from seedlab.store.layout import configuration_of
from seedlab.store.reader import Run
from seedlab.store.results import append_result, result_row


def main(command, first, *rest):
    results = Path(rest[rest.index("--results") + 1]) if "--results" in rest else None
    if command == "resume":
        path = Path(first)
        config = configuration_of(path)
    else:
        path = Path(rest[rest.index("--out") + 1])
        config = load_config(first, [a for a in rest[: rest.index("--out")]])
    with open(path.parent / "starts.txt", "a") as log:
        log.write(f"{command} {path.name}\n")
    writer = RunWriter.create(path, config, resume=True)
    writer.start(heartbeat_s=0.05)
    print("up", flush=True)
    while path.with_name(f"{path.name}.hang").exists():
        time.sleep(0.05)
    if path.with_name(f"{path.name}.fail").exists():
        writer.finish("failed", exit_code=3, error="asked to fail")
        return 3
    writer.manifest({"code": {"source_hash": "fake"}, "hardware": {}, "panels": {}})
    score = 0.25 * config.seed + (0.5 if config.method == "seed" else 0.0)
    entry = {
        "panel_hash": "0", "success_macro": score, "success_micro": score, "episodes": 4, "by_type": {},
        "decoding": {"temperature": 0.0, "top_p": 1.0, "n": 1, "seed": 0},
    }  # fmt: skip
    episodes = pd.DataFrame(
        {"panel": [], "task": [], "task_type": [], "n": [], "return": [], "success": [], "steps": [], "truncated": [], "infra_failure": [], "inadmissible": []}
    )
    writer.evaluation(config.stage2.updates, episodes, {panel: entry for panel in config.evaluation.panels})
    if results is not None:
        append_result(results, result_row(Run(path)))
    writer.links([{"name": "evaluation", "state": "done", "seconds": 0.0}])
    writer.finish("succeeded", exit_code=0)
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
