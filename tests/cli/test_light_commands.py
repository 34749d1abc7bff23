"""Commands that compute nothing load nothing that takes seconds to import: each is run, and the modules are looked at."""

import json
import subprocess
import sys

from example_runs import EXAMPLE

CODE = """
import contextlib, io, json, sys
from seedlab.cli.main import main
wanted, heavy = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for argv, expected in wanted:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(argv)
    loaded = sorted(name for name in heavy if sys.modules.get(name))
    if loaded or code != expected:
        sys.exit(f"{argv}: exit code {code}, loaded {loaded}: {out.getvalue()[-500:]}")
"""
COMPUTING = ["torch", "transformers", "verl", "vllm", "IPython"]


def run_all(commands, heavy, folder):
    wanted = [[[str(word) for word in argv], code] for argv, code in commands]
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(wanted), json.dumps(heavy)], capture_output=True, text=True, cwd=folder, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_only_reads_settings_and_status_loads_neither_torch_nor_pandas(tmp_path):
    (tmp_path / "runs").mkdir()
    commands = [
        (["--help"], 0), (["config", "--list"], 0), (["config", "tiny"], 0), (["config", "--explain"], 0), (["diff", "tiny"], 0),
        (["jobs"], 0), (["logs", "nothing"], 2), (["cancel", "nothing"], 2), (["plan", "tiny"], 0), (["plan", "paper/alfworld-qwen2.5-3b"], 0),
        (["envs", "micro"], 0), (["doctor", "--help"], 0),
    ]  # fmt: skip
    run_all(commands, [*COMPUTING, "pandas", "scipy", "plotly"], tmp_path)


def test_a_mistake_is_told_before_anything_heavy_is_loaded(tmp_path):
    small = "stage2.tasks_per_update=100000"
    commands = [
        (["train", "mikro"], 2), (["train", "tiny", "env.name=houshold"], 2), (["train", "tiny", small], 2), (["submit", "tiny", small], 2),
        (["resume", "nothing"], 2), (["resume", tmp_path], 2), (["check", "nothing"], 2), (["report", "nothing"], 2), (["trace", "nothing"], 2),
    ]  # fmt: skip
    run_all(commands, [*COMPUTING, "pandas", "plotly"], tmp_path)


def test_reading_a_run_loads_what_reads_and_nothing_that_computes(tmp_path):
    """scipy.stats and the parser behind jsonschema's check of international addresses take longer than the work."""
    root = EXAMPLE / "seed-s0"
    commands = [
        (["trace", root, "0"], 0), (["compare", root, EXAMPLE / "grpo-s0"], 0), (["check", root], 0), (["milestones", root], 0),
        (["report", root, "--out", tmp_path / "report.html"], 0),
    ]  # fmt: skip
    run_all(commands, [name for name in COMPUTING if name != "IPython"] + ["scipy.stats", "rfc3987_syntax"], tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 1_000_000
