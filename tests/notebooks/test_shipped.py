"""The notebooks as they ship: stripped, with one parameters cell, and without logic of their own."""

import ast
import json
import logging

import pytest
from example_runs import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LOGIC = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While, ast.If, ast.Try, ast.With, ast.Lambda)


def cells(path, kind="code"):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell):
    return "".join(cell["source"])


def parameters(path):
    [tagged] = [cell for cell in cells(path) if "parameters" in cell["metadata"].get("tags", [])]
    return [node.targets[0].id for node in ast.parse(source(tagged)).body]


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == ["01_theory_checks", "02_stage1_sft", "03_stage2_seed", "04_analysis"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_ships_stripped(path):
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert set(whole["metadata"]) == {"kernelspec", "language_info"}
    for cell in whole["cells"]:
        assert set(cell["metadata"]) <= {"tags"} and cell["id"]
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    assert len({cell["id"] for cell in whole["cells"]}) == len(whole["cells"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_holds_no_logic(path):
    for cell in cells(path):
        assert not [n for n in ast.walk(ast.parse(source(cell))) if isinstance(n, LOGIC)], source(cell)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_papermill_sees_every_parameter(path, caplog):
    papermill = pytest.importorskip("papermill", reason="needs the extra `notebooks`")
    with caplog.at_level(logging.WARNING):
        assert list(papermill.inspect_notebook(path)) == parameters(path)
    assert "Unable to parse" not in caplog.text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_explains_itself_and_says_how_to_go_on(path):
    words = cells(path, "markdown")
    assert source(words[0]).startswith(f"# {path.stem[:2]} ·") and sum(len(source(c).split()) for c in words) > 150
    if path.stem != "01_theory_checks":
        assert source(words[-1]).startswith("## What to try next")


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem != "01_theory_checks"], ids=lambda p: p.stem)
def test_unknown_parameters_are_refused_before_anything_else(path):
    first = next(cell for cell in cells(path) if "parameters" not in cell["metadata"].get("tags", []))
    calls = [node for node in ast.parse(source(first)).body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    assert ast.unparse(calls[0]) == "notebook.begin(In)"
    assert source(cells(path)[0]).startswith("# Papermill replaces these values.\n")
