"""A notebook has run when its kernel says so, whatever the saved file says."""

import json
import os
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from seedlab.cli.main import main
from seedlab.jobs.notebooks import NotebookError, NotebookFailed, check_parameters, failed_file, is_done, parameters_of, run_notebook

PARAMETERS = "a = 1\nname = 'x'"


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """notebook(*sources): a file whose first cell holds the parameters a and name; signatures go to a folder of the test's own."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))

    def write(*sources, tag="parameters"):
        cells = [nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": [tag]}), *map(nbformat.v4.new_code_cell, sources)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "nb.ipynb")
        return tmp_path / "nb.ipynb"

    return write


def trusted(path):
    notary = NotebookNotary()
    try:
        return notary.check_signature(nbformat.read(path, as_version=4))
    finally:
        notary.store.close()


def test_parameters_are_read_and_strangers_refused(notebook, tmp_path):
    path = notebook("print(a)")
    assert parameters_of(path) == {"a": "1", "name": "'x'"}
    with pytest.raises(NotebookError, match="no parameter 'nam'; did you mean 'name'. .it has: a, name."):
        check_parameters(path, {"nam": 1})
    with pytest.raises(NotebookError, match="no cell with the tag `parameters`"):
        run_notebook(notebook("print(a)", tag="other"), tmp_path / "out.ipynb", {"a": 2})
    (tmp_path / "nb.ipynb").write_text("{")
    with pytest.raises(NotebookError, match="is not a notebook"):
        parameters_of(tmp_path / "nb.ipynb")
    assert not (tmp_path / "out.ipynb").exists()


def test_a_notebook_runs_with_its_parameters_and_is_signed(notebook, tmp_path):
    path = notebook("print(a * 21, name)", "import warnings; b = 1")
    out = run_notebook(path, tmp_path / "kept" / "out.ipynb", {"a": 2})
    executed = nbformat.read(out, as_version=4)
    assert any(o.get("text") == "42 x\n" for cell in executed.cells for o in cell.get("outputs", []))
    assert "seedlab-last-cell" not in out.read_text() and trusted(out)
    counts = [cell.execution_count for cell in executed.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert is_done(path, out, {"a": 2}) and not is_done(path, out, {"a": 3})
    out.write_text(out.read_text() + " ")
    assert not is_done(path, out, {"a": 2})
    notebook("print(a * 21, name)", "c = 1")  # the notebook was edited
    assert not is_done(path, run_and_forget(out), {"a": 2})


def test_ten_thousand_flushed_lines_leave_a_small_notebook_and_the_whole_log(notebook, tmp_path):
    """F4"""
    lines = "import sys\nfor i in range(10_000):\n    print(f'line {i} of a long story', flush=True)\nprint('bar 1\\rbar 2', file=sys.stderr)"
    out = run_notebook(notebook(lines), tmp_path / "out.ipynb", {})
    assert out.stat().st_size < 100_000 and is_done(tmp_path / "nb.ipynb", out, {}) and trusted(out)
    stdout, stderr = nbformat.read(out, as_version=4).cells[-1].outputs
    assert stdout.text.startswith("line 0 of") and stdout.text.endswith("line 9999 of a long story\n") and "out.log has all of them" in stdout.text
    assert stderr.text == "bar 2\n"
    log = (tmp_path / "out.log").read_text().splitlines()
    assert log == ["--- cell 2, stdout ---", *(f"line {i} of a long story" for i in range(10_000))]
    run_notebook(notebook("print(1)"), out, {})
    assert not (tmp_path / "out.log").exists()


def run_and_forget(out):
    out.write_text(out.read_text()[:-1])
    return out


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ValueError('no such run')", "cell 2 failed: ValueError: no such run"),
        ("import sys; sys.exit(0)", "its kernel ended before the last cell"),
        pytest.param("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "kernel", marks=pytest.mark.full),
        pytest.param("import os; os._exit(0)", "kernel", marks=pytest.mark.full),
    ],
)
def test_what_does_not_come_to_its_end_has_failed(notebook, tmp_path, source, message, capsys):
    path, out = notebook(source, "print('after')"), tmp_path / "out.ipynb"
    out.write_text("an older result")
    with pytest.raises(NotebookFailed, match=message) as caught:
        run_notebook(path, out)
    assert caught.value.exit_code == 1
    assert not out.exists() and not is_done(path, out, {})
    assert "after\\n" not in failed_file(out).read_text()


def test_a_mistyped_parameter_is_exit_code_2_before_a_kernel_starts(notebook, tmp_path, capsys):
    assert main(["notebook", str(notebook("print(a)")), str(tmp_path / "out.ipynb"), "aa=3"]) == 2
    assert "no parameter 'aa'; did you mean 'a'" in capsys.readouterr().err


@pytest.mark.full
def test_the_command_fails_with_its_notebook_and_a_stopped_one_leaves_no_kernel(notebook, tmp_path):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-m", "seedlab", "notebook"]
    failed = subprocess.run([*argv, notebook("1 / 0"), tmp_path / "out.ipynb"], env=env, capture_output=True, text=True)
    assert failed.returncode == 1 and "cell 2 failed: ZeroDivisionError" in failed.stderr
    path = notebook(f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(120)")
    running = subprocess.Popen([*argv, path, tmp_path / "out.ipynb"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    kernel = int((tmp_path / "pid").read_text())
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 130 and not (tmp_path / "out.ipynb").exists()
    while os.path.exists(f"/proc/{kernel}"):
        assert time.monotonic() < deadline, "the kernel lives on"
        time.sleep(0.1)


@pytest.mark.full
def test_a_kernel_ends_with_the_job_that_runs_its_notebook(notebook, tmp_path, start, until):
    """A kernel has a process group of its own; the job's id in its environment says whose it is (E6, F6)."""
    from seedlab.jobs import group

    path = notebook(f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(120)")
    code = f"import sys; from seedlab.cli.main import main; sys.exit(main(['notebook', {str(path)!r}, {str(tmp_path / 'out.ipynb')!r}]))"
    job = start("job", code, env={"JUPYTER_DATA_DIR": str(tmp_path / "jupyter")})
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.1)
    kernel = int((tmp_path / "pid").read_text())
    assert os.getpgid(kernel) != job.record.pgid and kernel in group.members(job.record)
    os.kill(job.record.pid, signal.SIGKILL)
    command = [pid for pid in group.members(job.record) if pid != kernel]
    for pid in command:
        os.kill(pid, signal.SIGKILL)
    job.cancel(grace_s=5)
    assert group.members(job.record) == []
    assert json.loads((job.path / "status.json").read_text())["state"] == "cancelled"
