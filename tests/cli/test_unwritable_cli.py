"""Commands that cannot write what they were asked for say so before they work."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def nowhere(tmp_path):
    """A path below a regular file: not even root can write there."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "out.json"


def test_no_command_works_before_it_finds_that_it_cannot_write(seedlab, finished, task, nowhere, monkeypatch):
    from seedlab.train import open_session, run
    from seedlab.views import report

    def worked(*args, **options):
        raise AssertionError("the work began")

    monkeypatch.setattr(open_session, "open_session", worked)
    monkeypatch.setattr(run, "RunWriter", worked)
    monkeypatch.setattr(report, "write_report", worked)
    for argv in (
        ["evaluate", "micro", "--model", finished.path, "--panel", "dev", "--out", nowhere],
        ["rollout", task, "--preset", "micro", "--model", finished.path, "--save", nowhere],
        ["report", finished.path, "--out", nowhere],
        ["train", "micro", "--out", nowhere.parent.parent / "run", "--results", nowhere],
        ["resume", finished.path, "--results", nowhere],
        ["submit", "micro", "--out", nowhere.parent.parent / "run", "--results", nowhere],
        ["submit", "micro", "--out", nowhere],
        ["envs", "manifest", "micro", "--out", nowhere],
        ["bench", "envs", "--results", nowhere],
        ["config", "--explain", "--write", nowhere],
    ):
        code, out, err = seedlab(*argv)
        assert (code, str(nowhere) in err, "Traceback" in err) == (2, True, False), (argv, out, err)
    assert not (nowhere.parent.parent / "run").exists()


def test_a_folder_in_place_of_a_report_gets_advice(seedlab, finished, tmp_path):
    code, _, err = seedlab("report", finished.path, "--out", tmp_path)
    assert (code, f"--out {tmp_path} is a folder; give a file, such as {tmp_path / 'report.html'}" in err) == (2, True)


@pytest.mark.parametrize("command", ["train", "submit"])
def test_a_cache_that_cannot_be_used_is_named_before_the_run(seedlab, nowhere, tmp_path, monkeypatch, command):
    monkeypatch.setenv("SEEDLAB_CACHE", str(nowhere))
    code, out, err = seedlab(command, "micro", "--out", tmp_path / "run")
    assert (code, str(nowhere) in err, "set SEEDLAB_CACHE" in err) == (2, True, True), (out, err)
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("argv", [["plan", "tiny"], ["--help"], ["config", "tiny"], ["envs", "tiny"]], ids=" ".join)
def test_a_reader_that_has_gone_is_no_failure(argv):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "seedlab", *argv], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    # argparse itself passes over a reader of its help that has gone
    assert (done.returncode, done.stderr) == (0 if argv == ["--help"] else 141, "")
