"""``seedlab submit``, ``jobs``, ``logs`` and ``cancel``."""

import argparse
import io
import json

import pytest

from seedlab.cli import jobs_cli
from seedlab.cli.main import build_parser
from seedlab.errors import UserError
from seedlab.jobs import submit

SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def call(*arguments):
    args = build_parser(["seedlab.cli.jobs_cli"]).parse_args([str(a) for a in arguments])
    return args.run(args)


def test_jobs_lists_what_runs_and_how_it_ended(start, tmp_path, until, capsys):
    start("runs/bad", "import sys; sys.exit(3)").wait(10)
    running = start("runs/good", SLEEP)
    until(lambda: "up" in running.logs())
    assert call("jobs", "--root", tmp_path / "runs") == 0
    header, bad, good = capsys.readouterr().out.splitlines()
    assert header.split() == ["RUN", "STATE", "PHASE", "PROGRESS", "AGE", "PID", "NOTE"]
    assert bad.split()[:2] == ["bad", "failed"] and bad.endswith("exit code 3; the end of log.txt says why")
    assert good.split()[:3] == ["good", "running", "starting"] and good.split()[-1] == str(running.status()["pid"])
    assert call("jobs", "--root", tmp_path / "runs", "--json") == 0
    assert [row["state"] for row in json.loads(capsys.readouterr().out)] == ["failed", "running"]
    (tmp_path / "empty").mkdir()
    call("jobs", "--root", tmp_path / "empty")
    assert capsys.readouterr().out == f"no runs below {tmp_path / 'empty'}\n"


def test_logs_print_and_follow_with_the_jobs_exit_code(start, capsys):
    job = start("a", "import sys, time; print('one'); print('10%\\r100%', flush=True); time.sleep(0.4); print('two'); sys.exit(3)")
    assert call("logs", job.path, "--follow") == 3
    captured = capsys.readouterr()
    assert captured.out == "one\n100%\ntwo\n"
    assert captured.err == f"{job.path}: failed (exit code 3; the end of log.txt says why)\n"
    assert call("logs", job.path, "--tail", "1") == 0
    assert capsys.readouterr().out == "two\n"
    assert call("logs", start("b", "pass").path, "-f") == 0
    with pytest.raises(SystemExit):
        call("logs", job.path, "--tail", "-1")


def test_cancel_says_what_it_did(start, until, capsys):
    job = start("a", SLEEP)
    until(lambda: "up" in job.logs())
    assert call("cancel", job.path, "--grace", "5") == 0
    assert capsys.readouterr().out == f"{job.path}: cancelled; `seedlab resume {job.path}` goes on with it\n"
    assert call("cancel", job.path) == 0
    assert capsys.readouterr().out == f"{job.path} had already ended: cancelled\n"


def test_every_command_names_a_run_as_one_types_it(start, tmp_path, until, capsys, monkeypatch):
    """Relative below the present folder, absolute elsewhere: what is printed can be typed again."""
    monkeypatch.chdir(tmp_path)
    job = start("runs/a", SLEEP)
    until(lambda: "up" in job.logs())
    with pytest.raises(UserError, match=r"^runs/a is still running .*; `seedlab cancel runs/a` ends it"):
        submit(["true"], job.path)
    assert call("cancel", job.path, "--grace", "5") == 0
    assert capsys.readouterr().out == "runs/a: cancelled; `seedlab resume runs/a` goes on with it\n"
    assert call("cancel", "a") == 0 and capsys.readouterr().out == "runs/a had already ended: cancelled\n"
    call("logs", "a", "--follow")
    assert capsys.readouterr().err.startswith("runs/a: cancelled")
    assert call("jobs", job.path) == 0 and str(tmp_path) not in capsys.readouterr().out
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call("cancel", job.path) == 0 and capsys.readouterr().out == f"{job.path} had already ended: cancelled\n"


def test_a_folder_that_is_no_job_is_an_error_for_the_user(tmp_path):
    for command in ("logs", "cancel"):
        with pytest.raises(UserError, match="is not a run folder: it has no config.json"):
            call(command, tmp_path)
        with pytest.raises(UserError, match="is not a run folder"):
            call(command, tmp_path / "nothing")


def test_every_command_has_an_example():
    parser = build_parser(["seedlab.cli.jobs_cli"])
    (action,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    assert set(action.choices) == {"submit", "jobs", "logs", "cancel"}
    assert all(sub.epilog.startswith("example: seedlab ") for sub in action.choices.values())


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_redraws_the_unfinished_line_and_a_file_gets_each_thing_once():
    updates = [(["one"], "10"), ([], "10%"), ([], "20%"), (["100%"], "")]
    screens = {}
    for stream in (io.StringIO(), _Terminal()):
        screen = jobs_cli._Screen(stream)
        for lines, current in updates:
            screen.show(lines, current)
        screen.close()
        screens[type(stream)] = stream.getvalue()
    assert screens[io.StringIO] == "one\n10%\n20%\n100%\n"
    assert screens[_Terminal].endswith("\r\x1b[2K20%\r\x1b[2K100%\n\r\x1b[2K")


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (65, "1 min"), (3725, "1 h 02"), (200_000, "2 d")])
def test_durations(seconds, text):
    assert jobs_cli._duration(seconds) == text
