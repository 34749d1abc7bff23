"""The pages on notebooks and on the learning path say what is there."""

import re

from example_runs import EXAMPLE, ROOT

from seedlab import analysis
from seedlab.analysis.checks import CHECKS

NOTEBOOKS, PATH = (ROOT / "docs" / name for name in ("notebooks.md", "learning_path.md"))


def test_the_table_of_functions_is_complete():
    table = NOTEBOOKS.read_text().split("## The functions")[1]
    named = set(re.findall(r"`(\w+)`", table.split("Intervals over seeds")[0])) - {"seedlab"}
    assert named == set(analysis.__all__) - {"load", "verdict"}


def test_the_own_section_runs_on_the_example():
    [function, _] = re.findall(r"```python\n(.*?)```", NOTEBOOKS.read_text(), flags=re.S)
    names = {}
    exec(function, names)
    frame = names["gate_by_step"](EXAMPLE)
    assert list(frame.columns) == ["arm", "seed", "step", "gate", "tokens"]
    assert set(frame["seed"]) == {0, 1, 2} and frame["gate"].between(0, 1).all() and frame["arm"].nunique() == 1
    assert frame["tokens"].sum() == analysis.gates(EXAMPLE)["tokens"].sum()


def test_every_check_that_is_named_exists():
    named = re.findall(r"`seedlab check RUN`: \*(.*?)\*", PATH.read_text())
    assert len(named) > 5
    for name in re.findall(r"\*([^*]+)\*", " ".join(f"*{n}*" for n in named)):
        assert any(check.startswith(name.removesuffix("…").strip()) for check in CHECKS), name


def test_links_lead_somewhere():
    for page in (NOTEBOOKS, PATH):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
