"""A run named as the README names it is found from the folder of the notebooks, too."""

import pytest
from example_runs import EXAMPLE

import seedlab
from seedlab.store.layout import located


def test_a_run_named_from_the_repository_is_found_from_the_notebooks_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("SEEDLAB_RUNS", raising=False)
    monkeypatch.chdir(EXAMPLE.parents[1] / "notebooks")
    view = seedlab.inspect_tokens("runs/example/seed-s0")
    assert view.run.path.resolve() == (EXAMPLE / "seed-s0").resolve()
    assert seedlab.watch("runs/example/seed-s0").path == EXAMPLE / "seed-s0"
    monkeypatch.chdir(tmp_path)
    assert str(located("runs/example/seed-s0")) == "runs/example/seed-s0"


def test_a_run_without_weights_offers_none_and_says_how_to_have_some():
    pytest.importorskip("ipywidgets", reason="controls need the extra `notebooks`")
    from seedlab.views import inspector_controls

    controls = inspector_controls._Controls(seedlab.inspect_tokens(EXAMPLE / "seed-s0"))
    assert controls.snapshot.options == () and controls.score.disabled and controls.skill.disabled
    assert "--keep-checkpoints" in controls.skill.placeholder == inspector_controls.NO_WEIGHTS
