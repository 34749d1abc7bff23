"""Run a notebook with parameters, as papermill does, but refuse what papermill lets pass.

Papermill ignores parameters of a notebook without a `parameters` cell, only warns of a misspelt one, and after a killed
kernel or an `exit()` saves a notebook that says that every cell completed.  Here such a notebook is refused or has
failed: what counts is a file that the kernel itself writes after the last cell.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from seedlab.config.names import suggestion
from seedlab.errors import UserError
from seedlab.jobs.notebook_outputs import shorten_streams
from seedlab.store.files import SCHEMA_VERSION, read_versioned, shown_path, write_json, write_text

KERNEL = "python3"  # whatever a saved notebook names, its cells run in this environment
LAST = "seedlab-last-cell"


class NotebookError(UserError):
    """A notebook that cannot be run as asked; the message names the notebook and the parameter."""


class NotebookFailed(NotebookError):
    """A notebook that was started and did not come to its end."""

    exit_code = 1


def parameters_of(path: str | Path) -> dict[str, str]:
    """{parameter: its default as it stands in the notebook}.  Raises NotebookError where no cell, or more than one, has
    the tag `parameters`."""
    nbformat = _library("nbformat")
    path = Path(path)
    try:
        notebook = nbformat.read(path, as_version=4)
    except FileNotFoundError as error:
        raise NotebookError(f"{path} does not exist; paths are taken from the present folder, {Path.cwd()}") from error
    except (OSError, ValueError, AttributeError, nbformat.ValidationError) as error:
        raise NotebookError(f"{path} is not a notebook: {error}") from error
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        what = "has no cell with the tag `parameters`, so that it would ignore every parameter" if not tagged else "has several cells with the tag `parameters`"
        raise NotebookError(f"{path} {what}; tag the one cell that sets them")
    _library("papermill")
    from papermill.translators import papermill_translators

    # not papermill.inspect_notebook: it wants to know a kernel, which a notebook need not name
    found = papermill_translators.find_translator(KERNEL, "python").inspect(tagged[0])
    return {parameter.name: parameter.default for parameter in found}


def check_parameters(path: str | Path, parameters: Mapping[str, Any]) -> None:
    """Raises NotebookError for a parameter that the notebook does not have; the message names the nearest one."""
    known = parameters_of(path)
    for name in parameters:
        if name not in known:
            raise NotebookError(f"{path} has no parameter {name!r}{suggestion(name, known)} (it has: {', '.join(known) or 'none'})")


def run_notebook(path: str | Path, out: str | Path, parameters: Mapping[str, Any] | None = None, *, timeout_s: int | None = None) -> Path:
    """Execute the notebook `path` with `parameters`, and save it at `out`, signed, so that JupyterLab trusts its outputs.

    `out` appears only when the last cell has run; what a failed attempt left is at OUT.failed.ipynb.  Where a cell printed
    more than fits a notebook, the whole text is in OUT.log beside it.  `timeout_s` is per cell.  Raises NotebookError before the start for an unknown parameter, NotebookFailed (exit code 1) for an error,
    a killed kernel and an early exit.
    """
    path, out, parameters = Path(path), Path(out).absolute(), dict(parameters or {})
    check_parameters(path, parameters)
    out.parent.mkdir(parents=True, exist_ok=True)
    for old in (out, _done_file(out), failed_file(out), log_file(out)):
        old.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="seedlab-notebook-") as folder:
        work, mark, nonce = Path(folder) / "work.ipynb", Path(folder) / "mark", uuid.uuid4().hex
        source = Path(folder) / path.name
        _with_last_cell(path, source, mark, nonce)
        problem = _execute(source, work, parameters, timeout_s)
        if problem is None and not (mark.exists() and mark.read_text() == nonce):
            problem = "its kernel ended before the last cell: it was killed, ran out of memory, or a cell called exit()"
        executed = _finished(work, log_file(out)) if work.exists() else None
    if problem is not None:
        if executed is not None:
            write_text(failed_file(out), executed)
        raise NotebookFailed(f"{path}: {problem}" + (f"; as far as it came: {shown_path(failed_file(out))}" if executed is not None else ""))
    write_text(out, executed)
    sign(out)
    record = {"schema_version": SCHEMA_VERSION, "notebook": _hash(path), "parameters": parameters, "output": _hash(out)}
    write_json(_done_file(out), record)
    return out


def is_done(path: str | Path, out: str | Path, parameters: Mapping[str, Any]) -> bool:
    """Whether `out` is the whole, unchanged result of running the notebook as it is now with these parameters."""
    out = Path(out)
    if not (out.exists() and _done_file(out).exists()):
        return False
    record = read_versioned(_done_file(out))
    return (record["notebook"], record["parameters"], record["output"]) == (_hash(Path(path)), dict(parameters), _hash(out))


def failed_file(out: Path) -> Path:
    return out.with_suffix(".failed.ipynb")


def log_file(out: Path) -> Path:
    return out.with_suffix(".log")


def sign(out: Path) -> None:
    """JupyterLab shows widgets and scripts of signed notebooks only."""
    nbformat = _library("nbformat")
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()
    try:
        notary.sign(nbformat.read(out, as_version=4))
    finally:
        notary.store.close()


def _done_file(out: Path) -> Path:
    return out.with_name(f"{out.name}.done")


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _library(name: str):
    try:
        return import_module(name)
    except ImportError as error:
        raise NotebookError(f"{error.name} is not installed; notebooks need the extra: pip install 'seedlab[notebooks]'") from error


def _with_last_cell(path: Path, target: Path, mark: Path, nonce: str) -> None:
    nbformat = _library("nbformat")
    notebook = nbformat.read(path, as_version=4)
    cell = nbformat.v4.new_code_cell(f"__import__('pathlib').Path({str(mark)!r}).write_text({nonce!r});", metadata={"tags": [LAST]})
    notebook.cells.append(cell)
    notebook.metadata["kernelspec"] = {"name": KERNEL, "language": "python", "display_name": "Python 3"}
    nbformat.write(notebook, target)


def _finished(work: Path, log: Path) -> str:
    """The executed notebook without our own last cell and with short outputs; what was cut is written to `log`."""
    nbformat = _library("nbformat")
    notebook = nbformat.read(work, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if LAST not in cell.metadata.get("tags", [])]
    if cut := shorten_streams(notebook.cells, log.name):
        write_text(log, cut)
    return nbformat.writes(notebook) + "\n"


def _execute(source: Path, work: Path, parameters: dict[str, Any], timeout_s: int | None) -> str | None:
    """What went wrong, or None where papermill saw nothing, which does not mean that all went well."""
    papermill = _library("papermill")
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillException, PapermillExecutionError

    try:
        papermill.execute_notebook(
            str(source), str(work), parameters=parameters, kernel_name=KERNEL, cwd=os.getcwd(), progress_bar=False, log_output=False,
            execution_timeout=timeout_s, store_widget_state=False,
        )  # fmt: skip
    except PapermillExecutionError as error:
        return f"cell {error.cell_index + 1} failed: {error.ename}: {error.evalue}"
    except DeadKernelError:
        return "its kernel died: it was killed, or ran out of memory"
    except CellTimeoutError as error:
        return f"a cell ran for more than {timeout_s} s: {str(error).splitlines()[0]}"
    except PapermillException as error:
        return str(error)
    return None
