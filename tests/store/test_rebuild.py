"""The environment of a run from its manifest: what is printed, what is refused, and a real one (full tier)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seedlab.cli.main import main
from seedlab.errors import UserError
from seedlab.store import rebuild
from seedlab.train.manifest import environment_manifest

ROOT = Path(__file__).resolve().parents[2]


def manifest(folder, **changed):
    content = {"schema_version": 1, **environment_manifest(), **changed}
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder / "manifest.json"


def test_a_manifest_names_every_package_of_its_environment(tmp_path):
    recipe = rebuild.read_recipe(manifest(tmp_path))
    import numpy
    import torch

    assert recipe.pins["torch"] == torch.__version__.split("+")[0]
    assert recipe.pins["numpy"] == numpy.__version__
    assert not {"seedlab", "pip", "setuptools"} & set(recipe.pins)
    assert recipe == rebuild.read_recipe(tmp_path)  # the run folder will do


def test_what_is_not_the_same_again_is_said(tmp_path):
    code = {"source_hash": "abc", "commit": "0123456789abcdef", "dirty": True, "diff_hash": "d1ff"}
    recipe = rebuild.read_recipe(manifest(tmp_path, distributions={"torch": "2.13.0+cpu", "rich": "15.0.0"}, code=code))
    assert recipe.pins == {"torch": "2.13.0", "rich": "15.0.0"}
    assert "torch 2.13.0+cpu" in recipe.notes[0]
    assert "uncommitted changes on top of 0123456789ab (hash d1ff)" in recipe.notes[1]
    [note] = rebuild.read_recipe(manifest(tmp_path, distributions={"rich": "15.0.0"}, code={"source_hash": "abc"})).notes
    assert "source hash abc" in note


def test_manifests_that_say_too_little_are_refused(tmp_path):
    with pytest.raises(UserError, match="lists no distributions: it was written by an older seedlab"):
        rebuild.read_recipe(manifest(tmp_path, distributions=None))
    with pytest.raises(UserError, match="nowhere is missing"):
        rebuild.read_recipe(tmp_path / "nowhere")


def test_another_python_is_looked_for_and_missed_by_name(tmp_path, monkeypatch):
    recipe = rebuild.read_recipe(manifest(tmp_path, python="3.4.1"))
    monkeypatch.setattr(rebuild.shutil, "which", {"python3.4": "/opt/python3.4"}.get)
    assert rebuild.interpreter(recipe) == "/opt/python3.4"
    monkeypatch.setattr(rebuild.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="the run used Python 3.4.1, and there is no python3.4"):
        rebuild.interpreter(recipe)


def test_the_commands_check_the_commit_out(tmp_path, capsys):
    code = {"source_hash": "abc", "commit": "0123456789abcdef", "dirty": False}
    file = manifest(tmp_path, distributions={"rich": "15.0.0"}, code=code)
    assert main(["rebuild", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{sys.executable} -m venv seedlab-env"
    assert "--no-deps --requirement seedlab-env/requirements.txt" in lines[2]
    assert lines[4].endswith("seedlab-env/seedlab-source checkout --quiet 0123456789abcdef")
    assert lines[5].endswith("--no-deps seedlab-env/seedlab-source")
    assert main(["rebuild", str(file), "--requirements"]) == 0
    assert capsys.readouterr().out == "rich==15.0.0\n"


def test_a_folder_in_use_is_left_alone(tmp_path):
    file = manifest(tmp_path)
    assert main(["rebuild", str(file), "--venv", str(tmp_path)]) == 2


@pytest.mark.full
def test_an_environment_is_made_again_and_runs_seedlab(tmp_path, capsys):
    """Small packages only: what seedlab's command line needs without torch."""
    wanted = (
        "packaging", "pydantic", "pydantic_core", "annotated-types", "typing_extensions", "typing-inspection", "omegaconf",
        "antlr4-python3-runtime", "PyYAML", "psutil",
    )  # fmt: skip
    have = environment_manifest()["distributions"]
    by_key = {rebuild.canonicalize_name(name): version for name, version in have.items()}
    chosen = {name: by_key[key] for name in wanted if (key := rebuild.canonicalize_name(name)) in by_key}
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    if not commit:
        pytest.skip("wanted: a git checkout")
    file = manifest(tmp_path, distributions=chosen, code={"source_hash": "abc", "commit": commit, "dirty": False})
    folder = tmp_path / "env"
    assert main(["rebuild", str(file), "--venv", str(folder)]) == 0, capsys.readouterr()
    assert f"{len(chosen)} of {len(chosen)} packages as in the run" in capsys.readouterr().out
    done = subprocess.run([folder / "bin" / "seedlab", "config", "tiny"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["preset"] == "tiny"
    subprocess.run([folder / "bin" / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "omegaconf"], check=True)
    assert rebuild.differences(rebuild.read_recipe(file), folder) == [f"omegaconf: missing, the run had {chosen['omegaconf']}"]
