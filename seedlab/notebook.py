"""What the notebooks do before they look at a run: refuse unknown parameters, find the run or start one, wait for it."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from seedlab.errors import UserError
from seedlab.store.errors import RunError
from seedlab.store.layout import runs_root

ACTIONS = ("show", "submit", "resume")
DECLARED, INJECTED = "# Papermill replaces these values.", "# Parameters"


def begin(executed: Sequence[str]) -> None:
    """What every notebook does first: refuse unknown parameters, and show whole texts in tables and figures in one style.

    `executed` is IPython's list `In`.
    """
    import pandas as pd

    from seedlab.views import theme

    refuse_unknown_parameters(executed)
    pd.set_option("display.max_colwidth", 160)
    theme.use()


def refuse_unknown_parameters(executed: Sequence[str]) -> None:
    """Raise UserError where papermill injected a name that the notebook's parameters cell does not have.

    `executed` is IPython's list `In`.  Papermill itself only warns of a misspelt parameter, and the notebook would run
    with the default value.
    """
    from seedlab.config.names import suggestion

    declared = _assigned(_last(executed, DECLARED))
    if not declared:
        raise UserError("the cell with the parameters has not run; run it first")
    for name in _assigned(_last(executed, INJECTED)):
        if name not in declared:
            raise UserError(f"there is no parameter {name!r}{suggestion(name, declared)} (parameters: {', '.join(declared)})")


def _last(executed: Sequence[str], first_line: str) -> str:
    return next((source for source in reversed(executed) if source.split("\n", 1)[0].strip() == first_line), "")


def _assigned(source: str) -> list[str]:
    return [target.id for node in ast.parse(source).body if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)]


def find(run: str | Path, *, several: bool = False) -> Path:
    """The run folder meant by a path or by a name below `runs_root()`; with `several` also a folder that holds runs.
    Raises JobError naming near ones."""
    from seedlab.jobs import find_run

    return find_run(run, runs_root(), several=several)


def choose_run(
    action: str = "show", run: str | Path = "", *, preset: str = "tiny", method: str = "seed", overrides: str | Iterable[str] = (), out: str | Path = "",
    until: str | None = None, wait: bool = False,
) -> Path:  # fmt: skip
    """The folder of the run that the notebook is about.

    show: the run `run`.  submit: a new run of `preset` by `method` in the background, in the folder `out` (empty: a new
    one below `runs_root()`), up to link `until`.  resume: `run` goes on in the background.  With `wait` this returns when
    the run has ended, and raises RunError where it did not succeed, with the end of its log.  Raises UserError for an
    unknown action, ConfigError for a wrong setting, before anything starts.
    """
    from seedlab import jobs
    from seedlab.config.names import suggestion

    if action not in ACTIONS:
        raise UserError(f"action={action!r}{suggestion(str(action), ACTIONS)}: use one of {', '.join(ACTIONS)}")
    if action == "show":
        return find(run)
    options = {} if until is None else {"until": until}
    if action == "resume":
        job = jobs.submit_resume(find(run), **options)
    else:
        settings = [f"method={method}", *(shlex.split(overrides) if isinstance(overrides, str) else overrides)]
        job = jobs.submit_train(preset, settings, run_path=Path(out) if str(out) else new_folder(preset, method), **options)
    if wait:
        job.wait()
        refuse_unfinished(job.path)
    return job.path


def new_folder(preset: str, method: str) -> Path:
    """runs/PRESET-METHOD, or with -2, -3, … where that is taken."""
    name = f"{preset}-{method}".replace("/", "-").replace("*", "star")
    root = runs_root()
    return next(p for k in range(1, 10**6) if not (p := root / (name if k == 1 else f"{name}-{k}")).exists())


def refuse_unfinished(run: Path) -> None:
    """Raise RunError with the end of the log where a run has ended otherwise than well."""
    from seedlab.jobs import attach

    job = attach(run)
    status = job.status()
    if status["state"] != "succeeded":
        raise RunError(f"{run} {status['state']} (exit code {status.get('exit_code')}): {status.get('error') or 'see its log'}\n{job.logs(tail=8)}")


def ready(run: str | Path, part: str):
    """The reader of a run whose `part` (stage1, stage2 or evaluation) is there; RunError saying how far it is otherwise.

    stage2 is there with the first finished update, so that a run can be looked at while it trains.
    """
    from seedlab.store import open_run

    try:
        opened = open_run(run)
    except RunError:
        if not (Path(run) / "job.json").exists():
            raise
        opened = None
    there = opened is not None and {
        "stage1": lambda: opened.stage1 is not None, "stage2": lambda: bool(opened.updates), "evaluation": lambda: len(opened.evaluations) > 0
    }[part]()  # fmt: skip
    if not there:
        from seedlab.store.status import read_status

        status = read_status(Path(run))
        done = f", {status['phase']} {status['done']} of {status['total']}" if status.get("phase") else ""
        raise RunError(f"{run} has no {part} yet: it is {status['state']}{done}. Watch it above, and run this cell and those below again once it is there.")
    return opened


def update_with_tokens(run, update: int = -1) -> int:
    """`update`, or the last one whose tokens are stored for -1.  Raises RunError where its tokens are not stored."""
    from seedlab.analysis.frames import token_updates

    stored = token_updates(run)
    if not stored or (update != -1 and update not in stored):
        which = "update" if update == -1 else f"update {update}"
        raise RunError(f"{run.path} has no {which} with stored tokens (store.tokens={run.config.store.tokens}; stored: {', '.join(map(str, stored)) or 'none'})")
    return stored[-1] if update == -1 else update
