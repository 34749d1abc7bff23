"""The command line's frame, `config`, `diff` and `doctor`."""

import argparse
import json
import subprocess
import sys

import pytest

from seedlab.cli import doctor, main as cli
from seedlab.envs.household.official import official_games
from seedlab.cli.main import main
from seedlab.config.presets import from_json, load_config
from seedlab.errors import UserError


def test_config_prints_the_exact_json_form(capsys):
    assert main(["config", "tiny", "method=grpo", "stage2.updates=4"]) == 0
    assert from_json(capsys.readouterr().out) == load_config("tiny", ["method=grpo", "stage2.updates=4"])


def test_an_unknown_key_is_one_line_and_exit_code_2(capsys):
    assert main(["config", "tiny", "stage2.update=4"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: unknown key 'stage2.update'; did you mean 'stage2.updates'?\n"


@pytest.mark.parametrize("argv", [["config"], ["config", "tniy"], ["config", "tiny", "method=sdra"], ["diff", "tiny", "--against", "tniy"]])
def test_bad_input_ends_with_2(argv, capsys):
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_an_unknown_command_gets_the_closest_one(capsys):
    assert main(["confgi", "tiny"]) == 2
    assert "unknown command 'confgi'; did you mean 'config'?" in capsys.readouterr().err


def test_no_command_is_bad_input(capsys):
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("seedlab 0.1.0")
    assert main(["--help"]) == 0
    assert "example: seedlab config tiny" in capsys.readouterr().out


def test_every_command_has_help_with_an_example(capsys):
    [commands] = [a for a in cli.build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    for name in commands.choices:
        assert main([name, "--help"]) == 0
        assert f"seedlab {name}" in capsys.readouterr().out.split("example", 1)[1], f"{name} --help has no example"


def test_list_names_presets_and_what_is_not_built(capsys):
    assert main(["config", "--list"]) == 0
    out = capsys.readouterr().out
    assert "  paper/search-qwen2.5-7b\n" in out
    assert "(not built yet: needs the visual environments and their reason-act prompt)" in out


def test_diff_explains_tiny_and_exits_0(capsys):
    assert main(["diff", "tiny", "--against", "paper"]) == 0
    out = capsys.readouterr().out
    assert "stage2.updates: 24   paper: 150 (Table 5)\n    sized for minutes on two CPU cores\n" in out
    assert out.endswith("without a recorded reason\n") and ", 0 without" in out


def test_diff_fails_on_what_nobody_explained(capsys):
    assert main(["diff", "tiny", "objective.beta=10"]) == 1
    out = capsys.readouterr().out
    assert "objective.beta: 10.0   paper: 5.0 (Table 5)\n    NO RECORDED REASON\n" in out
    assert "Own assembly: set on top of the method 'seed'\n    objective.beta: 10.0   method: 5.0\n" in out
    assert out.endswith("  unexplained: objective.beta\n")


def test_diff_as_json(capsys):
    assert main(["diff", "tiny", "objective.beta=10", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["unexplained"] == ["objective.beta"]
    assert report["own_assembly"] == {"objective.beta": {"method": 5.0, "this": 10.0}}
    [row] = [row for row in report["differences"] if row["key"] == "objective.beta"]
    assert (row["paper"], row["this"], row["reason"], row["source"]) == ("5.0", 10.0, None, "Table 5")


def test_diff_between_presets(capsys):
    assert main(["diff", "authors/search-qwen2.5-3b", "--against", "paper/search-qwen2.5-3b", "--json"]) == 0
    rows = {row["key"]: (row["this"], row["paper"]) for row in json.loads(capsys.readouterr().out)}
    assert rows == {
        "analyzer.max_copied_fraction": (1.0, 0.9),
        "env.history_lines": ("bracketed", "plain"),
            "external.max_tokens": (1024, 4096),
        "objective.kl_coef": (0.001, 0.01),
        "objective.advantage_ddof": (1, 0),
        "objective.group_statistics": ("steps", "trajectories"),
        "objective.group_of_one": ("identity", "zero"),
        "objective.invalid_penalty": (0.01, 0.0),
        "objective.teacher": ("once", "live"),
    }


def run_with(monkeypatch, error):
    def add_commands(subparsers):
        def run(args):
            raise error

        subparsers.add_parser("boom").set_defaults(run=run)

    module = type(sys)("boom_cli")
    module.add_commands = add_commands
    monkeypatch.setitem(sys.modules, "boom_cli", module)
    monkeypatch.setattr(cli, "COMMAND_MODULES", ["boom_cli"])
    return main(["boom"])


def test_an_errors_own_exit_code_counts(monkeypatch, capsys):
    error = UserError("the disk is full")
    error.exit_code = 1
    assert run_with(monkeypatch, error) == 1
    assert capsys.readouterr().err == "error: the disk is full\n"


def test_an_interruption_ends_with_130(monkeypatch):
    assert run_with(monkeypatch, KeyboardInterrupt()) == 130


def test_a_fault_of_our_own_keeps_its_traceback(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        run_with(monkeypatch, ZeroDivisionError())


def test_a_closed_pipe_is_quiet():
    done = subprocess.run(
        ["bash", "-c", f"for i in 1 2 3 4; do {sys.executable} -m seedlab config --explain; done | head -1"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("### Run\n", "")


# --- doctor -----------------------------------------------------------------------------------------------------------

REQUIREMENTS = [
    "torch<2.14,>=2.11", "rich==15.0.0", "gone==1.0", 'windows-only==1; sys_platform == "win32"',
    'papermill==2.7.0; extra == "notebooks"', 'vllm==0.24.0; extra == "cluster"', 'verl==0.9.1; extra == "cluster"',
    'pytest==9.2.0; extra == "dev"',
]  # fmt: skip
INSTALLED = {"torch": "2.13.0+cpu", "rich": "14.0.0", "papermill": "2.7.0", "pytest": "8.0.0"}


def test_doctor_compares_versions_with_what_is_declared():
    checks = {c.name: c for c in doctor.check_requirements(REQUIREMENTS, INSTALLED.get)}
    assert {name: check.status for name, check in checks.items()} == {
        "torch": "ok", "rich": "wrong", "gone": "wrong", "[notebooks]": "ok", "[cluster]": "absent", "[dev]": "wrong",
    }  # fmt: skip
    assert (checks["rich"].detail, checks["rich"].mend) == ("14.0.0, needs ==15.0.0", "pip install 'rich==15.0.0'")
    assert checks["gone"].detail == "missing, needs ==1.0"
    assert checks["[cluster]"].detail == "for engine=verl on GPUs; lacks vllm, verl"
    assert checks["[cluster]"].mend == "conda env create --file environment.yml"
    assert checks["[dev]"].mend == "pip install --constraint requirements/cpu.lock --editable '.[dev]'"
    assert checks["[dev]"].detail == "pytest 8.0.0, needs ==9.2.0"


def test_doctor_on_python_disk_and_data(tmp_path):
    assert doctor.check_python((3, 12)).status == "ok"
    assert doctor.check_python((3, 13)).status == doctor.check_python((3, 10)).status == "wrong"
    assert doctor.check_disk(tmp_path, 10**9).status == "wrong"
    assert doctor.check_disk(tmp_path, 10**11).detail == f"100 GB free in {tmp_path}"
    assert doctor.check_data({}).status == "absent"
    assert doctor.check_data({"ALFWORLD_DATA": str(tmp_path / "no")}).detail == f"{tmp_path / 'no'} is not a folder"
    empty = doctor.check_data({"ALFWORLD_DATA": str(tmp_path)})
    assert empty.status == "wrong" and "train, valid_seen, valid_unseen" in empty.detail and "alfworld-download" in empty.mend


def test_doctor_names_missing_games_of_the_evaluation_splits(tmp_path):
    for split, games in official_games().items():
        for game in games:
            folder = tmp_path / "json_2.1.1" / split / game
            folder.mkdir(parents=True)
            (folder / "game.tw-pddl").write_text('{"solvable": true}')
    train = tmp_path / "json_2.1.1" / "train" / "pick_and_place_simple-Mug-None-Shelf-1" / "trial_1"
    train.mkdir(parents=True)
    (train / "game.tw-pddl").write_text('{"solvable": true}')
    data = {"ALFWORLD_DATA": str(tmp_path)}
    check = doctor.check_data(data)
    assert check.status == "ok" and "train 1 of 3553, valid_seen 140 of 140, valid_unseen 134 of 134" in check.detail
    lost = sorted(official_games()["valid_unseen"])[5]
    (tmp_path / "json_2.1.1" / "valid_unseen" / lost / "game.tw-pddl").unlink()
    check = doctor.check_data(data)
    assert check.status == "wrong" and check.detail == f"valid_unseen: 133 of 134 official games; it lacks {lost}"


def test_doctor_finds_the_official_engine(monkeypatch):
    monkeypatch.setenv("SEEDLAB_ALFWORLD_PYTHON", "/no/such/python")
    check = doctor.check_official_engine()
    assert check.status == "wrong" and "/no/such/python" in check.mend
    monkeypatch.setenv("SEEDLAB_ALFWORLD_PYTHON", sys.executable)
    assert doctor.check_official_engine().detail == sys.executable


@pytest.mark.parametrize("status, code", [("ok", 0), ("absent", 0), ("wrong", 1)])
def test_doctors_exit_code(status, code, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "run_checks", lambda: [doctor.Check("thing", status, "detail", "mend it")])
    assert main(["doctor"]) == code
    assert "mend: mend it" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == [{"name": "thing", "status": status, "detail": "detail", "mend": "mend it"}]


def test_doctor_runs_on_this_machine(capsys):
    assert main(["doctor", "--json"]) in (0, 1)
    names = [check["name"] for check in json.loads(capsys.readouterr().out)]
    assert names[:2] == ["python", "seedlab"]
    assert names[-4:] == ["ALFWORLD_DATA", "alfworld engine", "disk", "chromium"]
