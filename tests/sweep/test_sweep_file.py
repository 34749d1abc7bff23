"""Everything in a sweep file is checked before anything starts."""

from pathlib import Path

import nbformat
import pytest

from seedlab.cli.main import main
from seedlab.errors import ConfigError
from seedlab.sweep import read_sweep


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """sweep(text): the file's sweep, read in a folder of the test's own, which has the notebook nb.ipynb(run, update)."""
    monkeypatch.chdir(tmp_path)
    cells = [nbformat.v4.new_code_cell("run = 'runs/x'\nupdate = 0", metadata={"tags": ["parameters"]}), nbformat.v4.new_code_cell("print(run)")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "nb.ipynb")
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("run = 1")]), tmp_path / "untagged.ipynb")

    def read(text):
        (tmp_path / "lr.yaml").write_text(text)
        return read_sweep(tmp_path / "lr.yaml")

    return read


def test_a_grid_is_every_combination_named_by_what_differs(sweep):
    found = sweep("preset: micro\nset: {stage2.updates: 1}\ngrid: {method: [grpo, seed/shuffled], stage2.learning_rate: [1e-4, 3e-4], seed: [0, 1]}")
    assert (found.name, str(found.out), found.keys) == ("lr", "runs/lr", ["method", "stage2.learning_rate", "seed"])
    assert [cell.name for cell in found.cells] == [
        f"method={m},learning_rate={r},seed={s}" for m in ("grpo", "seed-shuffled") for r in ("0.0001", "0.0003") for s in (0, 1)
    ]
    last = found.cells[-1].config
    assert (last.method, last.stage2.learning_rate, last.seed, last.stage2.updates) == ("seed/shuffled", 3e-4, 1, 1)
    assert found.cells[3].folder == found.out / found.cells[3].name


def test_every_entry_of_a_list_meets_every_point_of_the_grid(sweep):
    found = sweep("preset: micro\nlist:\n- {method: grpo}\n- {method: seed, objective.opd_coef: 0.3}\ngrid: {seed: [4, 5]}")
    assert [c.name for c in found.cells] == ["method=grpo,seed=4", "method=grpo,seed=5", "method=seed,opd_coef=0.3,seed=4", "method=seed,opd_coef=0.3,seed=5"]
    assert len(sweep("preset: micro\nlist: [{seed: 1}, {seed: 2}]").cells) == 2
    nested = sweep("preset: micro\ngrid: {stage2: {updates: [1, 2]}}")
    assert [c.config.stage2.updates for c in nested.cells] == [1, 2]


def test_keys_that_end_alike_are_shown_whole_and_long_names_end_in_a_hash(sweep):
    found = sweep("preset: micro\ngrid: {stage1.learning_rate: [1e-3], stage2.learning_rate: [1e-4]}")
    assert found.cells[0].name == "stage1.learning_rate=0.001,stage2.learning_rate=0.0001"
    keys = [f"tiny.{k}" for k in ("documents", "skill_fraction", "batch_tokens", "learning_rate", "observation_weight", "seed")]
    text = ", ".join(f"{k}: [{v}]" for k, v in zip(keys, (80, 0.333333333333, 4096, 0.00123456789, 0.12345678901, 3)))
    name = sweep(f"preset: micro\ngrid: {{{text}}}").cells[0].name
    assert len(name) == 120 and name[-9] == "-"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preset: micro\ngrid: {stage2.update: [1, 2]}", r"lr.yaml: cell update=1: unknown key 'stage2.update'; did you mean 'stage2.updates'"),
        ("preset: micro\ngrid: {method: [grpo, sed]}", "cell method=sed: .*did you mean 'seed'"),
        ("preset: mikro\ngrid: {seed: [1]}", "did you mean 'micro'"),
        ("preset: micro\ngrit: {seed: [1]}", "unknown key 'grit'; did you mean 'grid'"),
        ("preset: micro\ngrid: {seed: 1}", "grid.seed=1 has to be a list"),
        ("preset: micro\ngrid: {seed: []}", "grid.seed has no values"),
        ("preset: micro\nlist: []", "`list` is empty"),
        ("preset: micro\nlist: [seed]", "entry 1 of `list` is 'seed'"),
        ("preset: micro", "needs `grid` or `list`"),
        ("grid: {seed: [1]}", "needs `preset`"),
        ("preset: micro\ngrid: {seed: [1, 1]}", "have the same name"),
        ("preset: micro\nlist: [{seed: 0}, {stage2.updates: 2}]", "cells seed=0 and updates=2 are the same run"),
        ("preset: micro\nset: {seed: 1}\ngrid: {seed: [1, 2]}", "seed is both in `set` and swept"),
        ("preset: micro\nlist: [{seed: 1}]\ngrid: {seed: [2]}", "seed is both in `grid` and in entry 1"),
        ("preset: micro\ngrid: {seed: [1]}\ngrid: {seed: [2]}", "duplicate key grid"),
        ("preset: micro\ngrid: {seed: [1}", "cannot be read"),
        ("- a", "holds no sweep"),
        ("preset: micro\ngrid: {seed: [1]}\nat_most: 0", "at_most=0"),
        ("preset: micro\ngrid: {seed: [1]}\nat_most: two", "at_most='two' has to be a int"),
        ("preset: micro\ngrid: {seed: [1]}\nbackend: slrum", "did you mean 'slurm'"),
        ("preset: micro\ngrid: {seed: [1]}\nbackend: slurm\nslurm: {tme: 1}", "did you mean 'time'"),
        ("preset: micro\ngrid: {seed: [1]}\nslurm: {time: 1}", "`slurm` is for backend: slurm"),
        ("preset: micro\ngrid: {seed: [1]}\nnotebook: none.ipynb", "none.ipynb does not exist"),
        ("preset: micro\ngrid: {seed: [1]}\nnotebook: untagged.ipynb", "no cell with the tag `parameters`"),
        ("preset: micro\ngrid: {seed: [1]}\nnotebook: nb.ipynb\nparameters: {rum: 1}", "no parameter 'rum'; did you mean 'run'"),
        ("notebook: nb.ipynb\ngrid: {updat: [1, 2]}", "cell updat=1: nb.ipynb has no parameter 'updat'; did you mean 'update'"),
        ("notebook: nb.ipynb\nparameters: {run: x}\ngrid: {update: [1]}", "without a preset use `set`"),
    ],
)
def test_a_mistake_is_told_and_nothing_starts(sweep, tmp_path, text, message, capsys):
    with pytest.raises(ConfigError, match=message):
        sweep(text)
    assert main(["sweep", str(tmp_path / "lr.yaml")]) == 2 and "lr.yaml" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_notebook_gets_the_parameters_of_its_run(sweep):
    found = sweep("preset: micro\ngrid: {seed: [3]}\nnotebook: nb.ipynb\nparameters: {run: '{run}', update: 7}")
    cell = found.cells[0]
    assert found.notebook_parameters(cell) == {"run": str(cell.folder), "update": 7}
    assert found.notebook_out(cell) == cell.folder / "notebook" / "nb.ipynb"
    assert sweep("preset: micro\ngrid: {seed: [3]}\nnotebook: nb.ipynb").notebook_parameters(cell) == {"run": str(cell.folder)}
    alone = sweep("notebook: nb.ipynb\nset: {run: 'a'}\ngrid: {update: [1, 2]}")
    assert [alone.notebook_parameters(c) for c in alone.cells] == [{"run": "a", "update": 1}, {"run": "a", "update": 2}]
    assert alone.notebook_out(alone.cells[1]) == alone.out / "update=2" / "nb.ipynb"


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="nothing.yaml does not exist; sweeps/ has examples"):
        read_sweep(tmp_path / "nothing.yaml")


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[2] / "sweeps").glob("*.yaml")), ids=lambda file: file.name)
def test_the_shipped_sweeps_are_sound(file, monkeypatch):
    monkeypatch.chdir(file.parents[1])
    assert len(read_sweep(file).cells) >= 4
