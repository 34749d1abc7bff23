"""The views in a real Chromium: pages of their own, and both views in a live JupyterLab."""

import json
import re

import pandas as pd
import pytest
from browser import ROOT, chromium, jupyter_lab, notebook, open_notebook, run_all
from fake_run import config, fake_run

from seedlab.store.reader import open_run
from seedlab.views import inspect_tokens, watch
from seedlab.views.token_story import Story

pytestmark = [pytest.mark.full, pytest.mark.browser, pytest.mark.timeout(600)]
SHOTS = ROOT / "build" / "screenshots"  # kept, to be looked at
HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>\u2028\u202e\"'--><svg/onload=window.hit=1>"


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser):
    """opened(file, **options): the page of a file, with what it asked for and complained about."""
    contexts = []

    def open_(file, **options):
        context = browser.new_context(viewport={"width": 1360, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.asked, page.said = [], []
        page.on("request", lambda r: page.asked.append(r.url))
        page.on("console", lambda m: page.said.append(m.text))
        page.on("pageerror", lambda e: page.said.append(str(e)))
        page.goto(file.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {"seed": fake_run(root / "seed", config("seed")), "grpo": fake_run(root / "grpo", config("grpo", "base"))}


def screenshot(page, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def shown_values(page):
    """{name: cell} of the card beside the tokens."""
    return page.evaluate("() => Object.fromEntries([...document.querySelectorAll('.sl-card tr')].map(r => [r.cells[0].textContent, r.cells[1].textContent]))")


def focused(page):
    return page.evaluate("() => Number(document.querySelector('.t.cur').dataset.i)")


def test_hovering_and_the_keyboard_show_every_value(runs, tmp_path, opened):
    inspector = inspect_tokens(runs["seed"])
    page = opened(inspector.to_html(tmp_path / "page.html"))
    tokens = inspector.story.tokens
    page.hover('.t[data-i="1"]')
    values = shown_values(page)
    row = tokens.iloc[1]
    expected = {"gate": "gate", "Δ": "delta", "log-prob": "logp_student", "with the skill": "logp_teacher", "net coefficient": "net_coefficient", "entropy": "entropy"}
    for name, column in expected.items():
        assert float(values[name].replace("−", "-")) == pytest.approx(row[column], abs=6e-4), name
    assert json.loads(values["token"]) == row["text"] and values["id"] == str(row["token_id"])
    second = int((tokens["step"] == 0).sum())
    page.click('.t[data-i="0"]')
    for key, place in (("ArrowRight", 1), ("ArrowLeft", 0), ("End", second - 1), ("n", second), ("End", len(tokens) - 1), ("Home", second), ("p", 0), ("ArrowDown", second), ("ArrowUp", 0)):
        page.keyboard.press(key)
        if key in ("ArrowDown", "ArrowUp"):  # another line, at the nearest place
            assert tokens["step"].iloc[focused(page)] == (1 if key == "ArrowDown" else 0)
            page.click('.t[data-i="0"]')
            continue
        assert focused(page) == place, key
        assert json.loads(shown_values(page)["token"]) == tokens["text"].iloc[place]
    assert "gate" in page.inner_text(".sl-live")
    assert page.asked == [(tmp_path / "page.html").as_uri()] and page.said == []


def test_values_arrive_as_a_kernels_message_has_them(runs, tmp_path, opened):
    # There they are a DataView into a larger buffer, at any offset.
    inspector = inspect_tokens(runs["seed"], compare=runs["grpo"])
    text = inspector.to_html()
    script = re.search(r'<script type="module">(.*?)</script>', text, re.S)[1]
    whole = "Uint8Array.from(atob(state.values[name]), (c) => c.charCodeAt(0))"
    assert script.count(whole) == 1
    shifted = script.replace(whole, f"((all) => new DataView(new Uint8Array([7, 7, 7, ...all, 9]).buffer, 3, all.length))({whole})")
    file = tmp_path / "page.html"
    file.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text).replace(script, shifted), encoding="utf-8")
    page = opened(file)
    for pane, story in enumerate(inspector.stories):
        last = len(story.tokens) - 1
        page.hover(f'[data-pane="{pane}"] .t[data-i="{last}"]')
        cells = page.evaluate("() => [...document.querySelectorAll('.sl-card tr')].find(r => r.cells[0].textContent === 'log-prob').cells[%d].textContent" % (pane + 1))
        assert float(cells.replace("−", "-")) == pytest.approx(story.tokens["logp_student"].iloc[last], abs=6e-4)
    assert page.said == []


def test_tab_reaches_the_tokens_and_leaves_them(runs, tmp_path, opened):
    page = opened(inspect_tokens(runs["seed"]).to_html(tmp_path / "page.html"))
    page.focus(".sl-bar [aria-checked=true]")
    page.keyboard.press("Tab")
    assert focused(page) == 0 and "gate" in shown_values(page)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('.sl-panes') === null")


def test_every_quantity_colours_and_none_by_colour_alone(runs, tmp_path, opened):
    inspector = inspect_tokens(runs["seed"])
    page = opened(inspector.to_html(tmp_path / "page.html"), color_scheme="light")
    tokens = inspector.story.tokens
    low, high = tokens["delta"].idxmin(), tokens["delta"].idxmax()
    page.click('[data-key="delta"]')
    look = "(i) => { const s = getComputedStyle(document.querySelector(`.t[data-i='${i}']`)); return [s.backgroundColor, s.backgroundImage, s.boxShadow]; }"
    below, above = page.evaluate(look, int(low)), page.evaluate(look, int(high))
    assert below[0] != above[0] and "repeating-linear-gradient" in below[1] and above[1] == "none"  # hatched below 0
    page.click('[data-key="logprob"]')
    bars = [page.evaluate(look, int(i))[2] for i in (tokens["logp_student"].idxmin(), tokens["logp_student"].idxmax())]
    assert bars[0] != bars[1]  # the bar below grows with the value
    page.click('.t[data-i="0"]')
    for number, key in enumerate(("gate", "delta", "advantage", "net", "logprob", "ratio", "entropy"), 1):
        page.keyboard.press(str(number))
        assert page.get_attribute(f'[data-key="{key}"]', "aria-checked") == "true" and len(page.inner_text(".sl-legend")) > 30


def test_dark_and_light(runs, tmp_path, opened):
    file = inspect_tokens(runs["seed"], compare=runs["grpo"]).to_html(tmp_path / "page.html")
    papers = set()
    for scheme in ("light", "dark"):
        page = opened(file, color_scheme=scheme)
        page.click('[data-key="delta"]')
        papers.add(page.evaluate("() => getComputedStyle(document.querySelector('.sl-map')).backgroundColor"))
        screenshot(page, f"inspector_{scheme}")
        shot = opened(watch(runs["seed"]).to_html(tmp_path / "watch.html"), color_scheme=scheme)
        screenshot(shot, f"watch_{scheme}")
        assert shot.said == [] and shot.locator("svg").count() >= 5
    assert len(papers) == 2


def test_two_runs_side_by_side(runs, tmp_path, opened):
    inspector = inspect_tokens(runs["seed"], compare=runs["grpo"])
    page = opened(inspector.to_html(tmp_path / "page.html"))
    assert page.locator(".sl-tokens .sl-split").count() == 2 and inspector.split.kind == "token"
    page.click('[data-pane="0"] .t[data-i="0"]')
    page.keyboard.press("d")
    assert focused(page) == inspector.split.a
    page.keyboard.press("s")
    assert page.evaluate("() => document.querySelector('.t.cur').closest('.sl-pane').dataset.pane") == "1"
    header = page.evaluate("() => [...document.querySelectorAll('.sl-card tr')[0].cells].map(c => c.textContent)")
    assert header == ["", "left", "right"]


@pytest.mark.parametrize("scripts", [True, False])
def test_hostile_text_runs_nothing(tmp_path, opened, scripts):
    def spoil(table, update, frame):
        columns = {"steps": ["observation", "action"], "tokens": ["text"], "skills": ["text", "reason", "analyzer"], "trajectories": ["goal", "final_observation"]}
        return frame.assign(**{c: HOSTILE for c in columns.get(table, [])})

    run = fake_run(tmp_path / "run", change=spoil)
    for name, file in (("inspector", inspect_tokens(run).to_html(tmp_path / "i.html")), ("watch", watch(run).to_html(tmp_path / "w.html"))):
        page = opened(file, java_script_enabled=scripts)
        page.wait_for_timeout(200)
        assert page.asked == [file.as_uri()] and page.said == []
        assert "<img src=x onerror=window.hit=1>" in page.inner_text("body"), name
        if scripts:
            assert page.evaluate("() => window.hit") is None
            assert page.locator("img, svg[onload], script:not([type])").count() == 0


def test_without_scripts_the_fallback_stands_in_its_place(runs, tmp_path, opened):
    inspector = inspect_tokens(runs["seed"])
    page = opened(inspector.to_html(tmp_path / "page.html"), java_script_enabled=False)
    text = page.inner_text("#view")
    assert inspector.story.skill.text in text and "you look at shelf 0" in text and page.locator(".sl-map").count() == 0


def long_inspector(run, turns, per_turn):
    """An inspector over as many tokens as wanted, repeated from a stored trajectory."""
    inspector = inspect_tokens(run)
    story = inspector.story
    tokens = pd.concat([story.tokens] * (turns * per_turn // len(story.tokens) + 1), ignore_index=True).head(turns * per_turn)
    tokens = tokens.assign(step=[k for k in range(turns) for _ in range(per_turn)], position=list(range(per_turn)) * turns)
    frame = pd.concat([story.turns.head(1)] * turns, ignore_index=True).assign(step=range(turns))
    inspector.stories = [Story(story.title, story.trajectory, tokens, frame, story.skill)]
    return inspector


def test_16k_tokens_are_drawn_at_once_and_smoothly(runs, tmp_path, opened):
    page = opened(long_inspector(runs["seed"], 64, 256).to_html(tmp_path / "long.html"))
    assert page.locator(".t[data-i]").count() == 16_384 and page.is_hidden(".sl-pager")
    drawn = int(page.get_attribute(".sl-map", "data-milliseconds"))
    again = page.evaluate("() => { const s = performance.now(); document.querySelector('[data-key=delta]').click(); return performance.now() - s; }")
    print(f"16384 tokens: drawn in {drawn} ms, coloured anew in {again:.0f} ms")
    assert drawn < 3000 and again < 1500


def test_beyond_16k_tokens_pages_hold_whole_turns(runs, tmp_path, opened):
    page = opened(long_inspector(runs["seed"], 50, 1000).to_html(tmp_path / "longer.html"))
    seen = []
    while True:
        steps = page.evaluate("() => [...document.querySelectorAll('.sl-turn[data-step]')].map(n => Number(n.dataset.step))")
        seen += steps
        assert page.locator(".t[data-i]").count() == 1000 * len(steps) <= 16_384
        if not page.is_enabled(".sl-pager button:last-child"):
            break
        page.click(".sl-pager button:last-child")
    assert seen == list(range(50))
    page.click(".sl-pager button:first-child")
    last = page.evaluate("() => Math.max(...[...document.querySelectorAll('.t[data-i]')].map(n => Number(n.dataset.i)))")
    page.click(f'.t[data-i="{last}"]')
    page.keyboard.press("ArrowRight")  # over the edge of the page
    assert focused(page) == last + 1


def test_both_views_in_a_live_notebook(runs, tmp_path, browser):
    folder, settings = tmp_path / "notebooks", tmp_path / "settings"
    folder.mkdir()
    settings.mkdir()
    cells = (f"import seedlab\nseedlab.watch({str(runs['seed'])!r})", f"view = seedlab.inspect_tokens({str(runs['seed'])!r})\nview")
    (folder / "look.ipynb").write_text(json.dumps(notebook(*cells)))
    with jupyter_lab(folder, settings) as address:
        page = browser.new_context(viewport={"width": 1500, "height": 1000}).new_page()
        errors, asked = [], []
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on("request", lambda r: asked.append(r.url))
        open_notebook(page, address, "look.ipynb")
        run_all(page)
        page.wait_for_selector(".seedlab-inspector .sl-map .t", timeout=120_000)
        page.wait_for_selector(".seedlab-watch svg", timeout=30_000)
        assert "✓ succeeded" in page.inner_text(".seedlab-watch")
        page.locator(".seedlab-watch").scroll_into_view_if_needed()
        screenshot(page, "lab_watch")

        # A token by hand: the value is the stored one; lab's own keys, among them `d d` for deleting a cell, stay out.
        tokens = open_run(runs["seed"]).tokens(inspect_tokens(runs["seed"]).trajectory).sort_values(["step", "position"], ignore_index=True)
        page.locator(".sl-map").scroll_into_view_if_needed()
        page.click('.t[data-i="0"]')
        page.keyboard.press("ArrowRight")
        assert float(shown_values(page)["gate"]) == pytest.approx(tokens["gate"].iloc[1], abs=6e-4)
        for key in ("d", "d", "b", "n", "x"):
            page.keyboard.press(key)
        assert page.locator(".jp-CodeCell").count() == len(cells)
        screenshot(page, "lab_inspector")

        # The slider of updates: the first update's tokens appear.
        before = page.get_attribute(".sl-map", "data-revision")
        handle = page.locator(".seedlab-inspector .noUi-handle").first
        handle.focus()
        page.keyboard.press("ArrowLeft")
        page.wait_for_function(f"document.querySelector('.sl-map').dataset.revision !== '{before}'", timeout=30_000)
        assert "update 0 · u000000/" in page.inner_text(".sl-pane header")

        page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
        page.wait_for_selector(".sl-map.dark", timeout=30_000)
        screenshot(page, "lab_inspector_dark")

        # Saved, and opened again while the kernel lives: both views are there without running anything.
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty", timeout=30_000)
        page.reload()
        page.wait_for_selector(".seedlab-inspector .sl-map .t", timeout=90_000)
        page.wait_for_selector(".seedlab-watch svg", timeout=30_000)
        outside = [url for url in asked if not re.match(rf"(blob:|data:|{re.escape(address)}|{re.escape(address.replace('http', 'ws', 1))})", url)]
        assert errors == [] and outside == []
    saved = json.loads((folder / "look.ipynb").read_text())
    kinds = [set(cell["outputs"][-1]["data"]) for cell in saved["cells"]]
    assert all({"text/html", "application/vnd.jupyter.widget-view+json"} <= k for k in kinds)
    assert (folder / "look.ipynb").stat().st_size < 1_000_000
    trusted_without_its_kernel(folder, settings, browser)
    untrusted_fallback(saved, tmp_path, browser)


def trusted_without_its_kernel(folder, settings, browser):
    """The same notebook, still trusted, under another server whose kernel has never run it: both views are there."""
    with jupyter_lab(folder, settings) as address:
        page = browser.new_context(viewport={"width": 1500, "height": 1000}).new_page()
        open_notebook(page, address, "look.ipynb")
        page.wait_for_selector(".seedlab-inspector .sl-map .t", timeout=90_000)
        page.wait_for_selector(".seedlab-watch svg", timeout=30_000)
        page.click('.t[data-i="0"]')
        assert float(shown_values(page)["gate"]) >= 0
        screenshot(page, "lab_reopened")


def untrusted_fallback(saved, tmp_path, browser):
    """The same notebook where it is not trusted: no widget, but tokens, curves and skill are there."""
    folder, settings = tmp_path / "untrusted", tmp_path / "other-settings"
    folder.mkdir()
    settings.mkdir()
    for cell in saved["cells"]:
        cell["metadata"].pop("trusted", None)
    (folder / "look.ipynb").write_text(json.dumps(saved))
    with jupyter_lab(folder, settings) as address:
        page = browser.new_context(viewport={"width": 1500, "height": 1000}).new_page()
        open_notebook(page, address, "look.ipynb")
        page.wait_for_function("() => document.body.innerText.includes('Success of the rollouts')", timeout=60_000)
        assert page.locator(".sl-map").count() == 0
        text = page.inner_text(".jp-Notebook")
        assert "solid line below" in text and "you look at shelf 0" in text and "accepted" in text
        images = page.evaluate("() => [...document.querySelectorAll('.jp-OutputArea img')].map(i => i.naturalWidth > 0)")
        assert len(images) >= 5 and all(images)
        painted = page.evaluate("() => [...document.querySelectorAll('.jp-OutputArea span[title]')].map(s => getComputedStyle(s).backgroundColor)")
        assert len(painted) > 5 and len(set(painted)) > 1
        screenshot(page, "lab_untrusted")
