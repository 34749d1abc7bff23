"""Notebooks 02 to 04 on the example that ships, as papermill runs them."""

import json

import pytest
from example_runs import EXAMPLE, ROOT


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """execute(stem, **parameters): the executed notebook as JSON."""
    papermill = pytest.importorskip("papermill", reason="running notebooks needs the extra `notebooks`")
    pytest.importorskip("ipykernel", reason="running notebooks needs the extra `notebooks`")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SEEDLAB_RUNS", str(EXAMPLE.parent))

    def run(stem, **parameters):
        out = tmp_path / f"{stem}.ipynb"
        papermill.execute_notebook(
            ROOT / "notebooks" / f"{stem}.ipynb", out, parameters=parameters, kernel_name="python3", progress_bar=False, cwd=tmp_path,
        )  # fmt: skip
        assert out.stat().st_size < 1_000_000
        executed = json.loads(out.read_text())
        counts = [cell["execution_count"] for cell in executed["cells"] if cell["cell_type"] == "code"]
        assert counts == list(range(1, len(counts) + 1))
        return executed

    return run


def outputs(executed, needle):
    """MIME bundles of the cell whose source contains `needle`."""
    [cell] = [c for c in executed["cells"] if c["cell_type"] == "code" and needle in "".join(c["source"])]
    return [o["data"] if "data" in o else o for o in cell["outputs"]]


def figures(executed):
    bundles = [o["data"] for c in executed["cells"] if c["cell_type"] == "code" for o in c["outputs"] if "data" in o]
    return [b["application/vnd.plotly.v1+json"] for b in bundles if "application/vnd.plotly.v1+json" in b]


def complaints(executed):
    return [o for c in executed["cells"] if c["cell_type"] == "code" for o in c["outputs"] if o.get("name") == "stderr"]


def test_stage_1(execute):
    executed = execute("02_stage1_sft", sample="2")
    assert complaints(executed) == []
    assert "<th>reason</th>" in "".join(outputs(executed, '~labels["accepted"]')[0]["text/html"])
    text = "".join(outputs(executed, "analysis.sample(run")[0]["text"])
    assert text.startswith("1. trajectory s1-") and "4. SFT row: split" in text
    assert len(figures(executed)) == 3


def test_stage_2(execute):
    executed = execute("03_stage2_seed", update=2, window=2)
    assert complaints(executed) == []
    # Live views leave a picture without scripts in the saved notebook.
    for needle in ("seedlab.watch(run)", "seedlab.inspect_tokens"):
        page = "".join(outputs(executed, needle)[0]["text/html"])
        assert len(page) > 2000 and "<script" not in page
    assert "update 2" in "".join(outputs(executed, "seedlab.inspect_tokens")[0]["text/html"])
    differing = "".join(outputs(executed, "differing_settings")[0]["text/html"])
    assert "objective.opd_coef" in differing and "learning_rate" not in differing
    assert len(figures(executed)) == 5


def test_analysis(execute, tmp_path):
    executed = execute("04_analysis", export=str(tmp_path / "exported"))
    assert complaints(executed) == []
    drawn = figures(executed)
    assert len(drawn) == 10 and all(f["layout"]["title"]["text"] for f in drawn)
    assert all(f["config"]["showSendToCloud"] is False for f in drawn)  # plotly's own button uploads the chart
    assert {p.name for p in (tmp_path / "exported").iterdir()} >= {"analysis.html", "gates.csv", "differences.csv"}
