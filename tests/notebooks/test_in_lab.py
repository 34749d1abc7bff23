"""The notebooks in a real JupyterLab: run all, move a slider, see the picture change."""

import shutil

import pytest
from browser import chromium, jupyter_lab, open_notebook, run_all
from example_runs import EXAMPLE, ROOT

from seedlab.notebook import update_with_tokens
from seedlab.store import open_run
from seedlab.views import inspect_tokens

pytestmark = [pytest.mark.full, pytest.mark.browser, pytest.mark.timeout(900)]
SHOTS = ROOT / "build" / "screenshots"  # kept, to be looked at
DONE = """() => {
    const cells = [...window.jupyterapp.shell.currentWidget.content.widgets].filter(c => c.model.type === "code");
    const failed = cells.some(c => c.model.sharedModel.getOutputs().some(o => o.output_type === "error"));
    return failed || (cells.length > 0 && cells.every(c => c.model.executionCount !== null && c.model.executionState !== "running"));
}"""
ERRORS = """() => window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === "code").flatMap(
    c => c.model.sharedModel.getOutputs().filter(o => o.output_type === "error" || o.name === "stderr").map(o => o.evalue || String(o.text)))"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A browser and the address of a JupyterLab on a copy of the notebooks, beside the example runs."""
    root = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", root / "notebooks")
    shutil.copytree(EXAMPLE, root / "runs" / "example")
    with chromium() as browser, jupyter_lab(root, tmp_path_factory.mktemp("settings")) as address:
        yield browser, address


@pytest.fixture
def ran(lab):
    """ran(name): the page of a notebook with all its cells run."""
    browser, address = lab
    context = browser.new_context(viewport={"width": 1360, "height": 1000})

    def run(name):
        page = context.new_page()
        open_notebook(page, address, f"notebooks/{name}.ipynb")
        run_all(page)
        page.wait_for_function(DONE, timeout=300_000)
        assert page.evaluate(ERRORS) == []
        return page

    yield run
    context.close()


def shot(page, locator, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    locator.scroll_into_view_if_needed()
    page.wait_for_timeout(400)
    page.screenshot(path=SHOTS / f"{name}.png")


def test_04_selectors_move_all_three_panels(ran):
    page = ran("04_analysis")
    page.wait_for_selector(".widget-hslider", timeout=60_000)
    charts = page.locator(".jp-OutputArea .widget-html svg")
    assert charts.count() == 3
    before = [charts.nth(i).inner_html() for i in range(3)]
    handle = page.locator(".widget-hslider .noUi-handle").last  # the trailing mean
    handle.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(old) => document.querySelectorAll('.widget-html svg')[2].innerHTML !== old", arg=before[2], timeout=30_000)
    assert charts.nth(0).inner_html() != before[0]
    shot(page, charts.nth(1), "notebook_04_selectors")
    arms = page.locator(".widget-select-multiple select")
    arms.select_option(index=0)
    page.wait_for_function("() => document.querySelectorAll('.widget-html svg')[2].querySelectorAll('polyline').length === 1", timeout=30_000)
    figures = page.locator(".js-plotly-plot")
    assert figures.count() == 10
    for place in range(figures.count()):
        shot(page, figures.nth(place), f"notebook_04_figure_{place}")


def test_02_opens_with_real_content(ran):
    page = ran("02_stage1_sft")
    assert page.locator(".js-plotly-plot").count() == 3
    assert "1. trajectory s1-" in page.inner_text(".jp-Notebook")
    shot(page, page.locator(".js-plotly-plot").nth(0), "notebook_02_verdicts")
    shot(page, page.locator(".js-plotly-plot").nth(2), "notebook_02_before_after")


def test_03_from_opening_it_to_the_gate_of_one_token(ran):
    page = ran("03_stage2_seed")
    page.wait_for_selector(".sl-map .t", timeout=60_000)
    page.locator(".sl-map").scroll_into_view_if_needed()
    page.click('.sl-map .t[data-i="0"]')
    page.wait_for_function("() => [...document.querySelectorAll('.sl-card tr')].some(r => r.cells[0].textContent === 'gate')", timeout=30_000)
    gate = page.evaluate("() => [...document.querySelectorAll('.sl-card tr')].find(r => r.cells[0].textContent === 'gate').cells[1].textContent")
    run = open_run(EXAMPLE / "seed-s0")
    first = inspect_tokens(run, update=update_with_tokens(run)).story.tokens.iloc[0]
    assert float(gate.replace("−", "-")) == pytest.approx(first["gate"], abs=6e-4)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "notebook_03_token.png")
    shot(page, page.locator(".js-plotly-plot").nth(2), "notebook_03_gates")
