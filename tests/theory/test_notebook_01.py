import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_theory_checks.ipynb"
ROOT = NOTEBOOK.parents[1]


def load():
    nbformat = pytest.importorskip("nbformat", reason="reading notebooks needs the extra `notebooks`")
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_holds_parameters_and_no_logic():
    code = [cell for cell in load().cells if cell.cell_type == "code"]
    tagged = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    names = [node.targets[0].id for node in ast.parse(tagged[0].source).body]
    assert names == ["seed", "instances", "vocabulary", "beta", "quick", "run"]
    for cell in code:
        forbidden = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.If)
        assert not [n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, forbidden)], cell.source
        assert cell.outputs == [] and cell.execution_count is None  # shipped stripped


def test_the_notebook_runs_quickly(tmp_path, monkeypatch):
    papermill = pytest.importorskip("papermill", reason="running notebooks needs the extra `notebooks`")
    pytest.importorskip("ipykernel", reason="running notebooks needs the extra `notebooks`")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    out = tmp_path / "out.ipynb"
    papermill.execute_notebook(
        NOTEBOOK, out, parameters={"quick": True, "instances": 60, "vocabulary": 8}, kernel_name="python3",
        progress_bar=False, cwd=tmp_path,
    )
    executed = json.loads(out.read_text())
    counts = [cell["execution_count"] for cell in executed["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert out.stat().st_size < 1_000_000
    assert "".join(executed["cells"][-1]["outputs"][0]["text"]) == "25 of 25 claims hold\n"
