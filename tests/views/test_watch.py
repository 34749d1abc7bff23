import json
import re
import shutil
import time

import pandas as pd
import pytest
from fake_run import config, fake_run

from seedlab.store.files import append_line
from seedlab.store.process import own_start
from seedlab.store.reader import open_run
from seedlab.store.status import new_status
from seedlab.store.writer import RunWriter
from seedlab.views import watch, watch_html
from seedlab.views.watch_state import LOG_LINES, Watcher

HOSTILE = "</pre><script>window.hit=1</script><img src=x onerror=window.hit=1>\u202e"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return fake_run(tmp_path_factory.mktemp("watched") / "run")


@pytest.fixture
def copy(done, tmp_path):
    """copy(**status): the finished run with another status."""

    def make(**fields):
        folder = tmp_path / "copy"
        shutil.copytree(done, folder, dirs_exist_ok=True)
        status = json.loads((folder / "status.json").read_text()) | fields
        (folder / "status.json").write_text(json.dumps(status))
        return folder

    return make


def test_a_finished_run(done):
    state = watch(done).state()
    assert (state.state, state.updates_done, state.planned, state.eta_s) == ("succeeded", 2, 2, None) and not state.problems
    assert {s.accepted for s in state.skills} == {True} and state.skills[0].update == 1 and len({s.goal for s in state.skills}) == 1
    pd.testing.assert_frame_equal(state.metrics[["update", "rollout/success"]], open_run(done).metrics[["update", "rollout/success"]])
    assert sorted(state.evaluations["panel"]) == ["seen", "unseen"]


def test_a_folder_that_is_not_there_yet_and_then_is(tmp_path):
    view = watch(tmp_path / "later" / "run")
    assert view.state().state == "not there" and "fills by itself" in view.to_html() and "seedlab submit" in view.to_html()
    fake_run(tmp_path / "later" / "run")
    assert view.state().state == "succeeded" and len(view.state().metrics) == 2


def test_new_rows_appear_and_rows_that_a_resume_discards_go(tmp_path):
    writer = RunWriter.create(tmp_path / "run", config(stage2={"updates": 4, "tasks_per_update": 2, "group_size": 4}))
    writer.start(heartbeat_s=60)
    watcher = Watcher(tmp_path / "run")
    assert watcher.read().updates_done == 0
    for update in range(3):
        writer.metrics(update, {"rollout/success": update / 4, "cost/update_seconds": 8.0})
        assert watcher.read().metrics["rollout/success"].tolist() == [k / 4 for k in range(update + 1)]
    state = watcher.read()
    assert state.state == "running" and state.live and 0.0 < state.eta_s <= 8.0
    writer.discard_from(1)
    writer.event("resumed", update=1, discarded_rows=2)
    writer.metrics(1, {"rollout/success": 0.9})
    state = watcher.read()
    assert state.metrics["rollout/success"].tolist() == [0.0, 0.9] and state.resumed == 1
    assert "resumed 1 time" in watch_html.head(state)
    writer.finish("succeeded", exit_code=0)


def test_the_pace_of_an_early_phase_is_what_was_seen(tmp_path, monkeypatch):
    writer = RunWriter.create(tmp_path / "run", config())
    writer.start(heartbeat_s=60)
    clock = [1000.0]
    monkeypatch.setattr("seedlab.views.watch_state.time.time", lambda: clock[0])
    watcher = Watcher(tmp_path / "run")

    def at(seconds, done):
        clock[0] = 1000.0 + seconds
        writer._status.write(phase="stage 1: SFT", done=done, total=100)
        return watcher.read().eta_s

    assert at(0, 10) is None
    assert at(10, 30) == pytest.approx(35.0)  # 20 in 10 s, 70 are left
    monkeypatch.undo()
    writer.finish("succeeded", exit_code=0)


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"state": "running", "pid": 999_999_999}, "its process is gone"),
        ({"state": "failed", "error": "ValueError: no"}, "It failed: ValueError: no"),
        ({"state": "interrupted", "error": "stopped after update 1 of 2"}, "stopped after update 1 of 2"),
        ({"state": "cancelled"}, "seedlab resume"),
        ({"state": "queued"}, "waits for a free place"),
    ],
)
def test_every_state_says_what_it_means(copy, fields, says):
    folder = copy(**({"pid": new_status("running")["pid"], "process_started": own_start()} | fields))
    view = watch(folder)
    expected = "lost" if "pid" in fields else fields["state"]
    assert view.state().state == expected and says in view.to_html() and f" {expected}</span>" in view.to_html()


def test_a_damaged_folder_is_shown_as_far_as_it_can_be_read(copy):
    folder = copy()
    (folder / "status.json").write_text("{")
    append_line(folder / "metrics.jsonl", {"schema_version": 99})
    (folder / "updates" / "000001" / "skills.parquet").write_bytes(b"PAR1 nothing")
    state = watch(folder).state()
    assert state.state == "damaged" and len(state.problems) == 3
    assert all(re.search(name, " ".join(state.problems)) for name in ("status.json is damaged", "schema version 99", "skills.parquet is damaged"))
    assert "Not shown" in watch(folder).to_html()


def test_the_log_is_as_a_terminal_would_show_it(copy):
    folder = copy()
    lines = "".join(f"line {k}\n" for k in range(40))
    (folder / "log.txt").write_bytes((lines + "10%\r20%\r30%").encode())
    assert watch(folder).state().log == (*(f"line {k}" for k in range(40 - LOG_LINES + 1, 40)), "30%")


def test_curves_are_only_those_with_values_and_words_carry_the_numbers(done):
    state = watch(done).state()
    made = watch_html.charts(state)
    titles = [c.title for c in made]
    assert "Success of the rollouts" in titles and "Groups that tie" in titles and "Return of the rollouts" not in titles
    first = made[0]
    assert first.series[0].values == pytest.approx(open_run(done).metrics["rollout/success"].tolist()) and first.limits == (0.0, 1.0)
    assert watch_html.curves(state).count("<svg") == len(made)


def test_the_page_and_the_fallback_run_nothing_and_fetch_nothing(tmp_path):
    folder = fake_run(tmp_path / "run", skill=f"look first in {HOSTILE} then open shelf 1", goal=HOSTILE)
    (folder / "log.txt").write_text(HOSTILE)
    status = json.loads((folder / "status.json").read_text()) | {"state": "failed", "error": HOSTILE, "phase": HOSTILE, "note": HOSTILE}
    (folder / "status.json").write_text(json.dumps(status))
    view = watch(folder)
    page, fallback = view.to_html(), view._repr_html_()
    for text in (page, fallback):
        assert "<script" not in text and "<img src=x" not in text and "\u202e" not in text and "&lt;script&gt;" in text
    assert "default-src 'none'" in page and not re.search(r"(src|href)=\"?(https?:)?//", page + fallback)
    assert "<svg" not in fallback and fallback.count("data:image/svg+xml;base64,") == page.count("<svg") and "<style" not in fallback


def test_the_page_is_written(done, tmp_path):
    out = watch(done).to_html(tmp_path / "deep" / "watch.html")
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_refresh_of_zero_is_refused(done):
    with pytest.raises(ValueError, match="refresh_s must be above 0"):
        watch(done, refresh_s=0)


@pytest.mark.parametrize("seconds, text", [(0.4, "0 s"), (89, "89 s"), (125, "2 min 05 s"), (1200, "20 min"), (7300, "2 h 01 min")])
def test_durations(seconds, text):
    assert watch_html.duration(seconds) == text


# ---- the live view


@pytest.fixture
def live(tmp_path):
    """The live view of a run that is being written, with the run's writer."""
    pytest.importorskip("ipywidgets", reason="the live view needs the extra `notebooks`")
    from seedlab.views.watch_controls import _Live

    writer = RunWriter.create(tmp_path / "run", config(stage2={"updates": 3, "tasks_per_update": 2, "group_size": 4}))
    writer.start(heartbeat_s=60)
    made = _Live(watch(tmp_path / "run", refresh_s=0.05))
    yield made, writer
    made.pause.value = True
    writer.finish("succeeded", exit_code=0)


def soon(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def test_a_thread_fills_the_view_while_the_cell_is_over(live):
    made, writer = live
    assert "0 of 3" in made.html["head"].value and made.html["curves"].value == ""
    writer.metrics(0, {"rollout/success": 0.25, "cost/update_seconds": 1.0})
    soon(lambda: "1 of 3" in made.html["head"].value and "success <b>0.25</b>" in made.html["curves"].value)


def test_watching_stops_and_goes_on_and_refresh_reads_at_once(live):
    made, writer = live
    made.pause.value = True
    stopped = made._stopped
    soon(stopped.is_set)
    time.sleep(0.2)  # a reading that was under way
    writer.metrics(0, {"rollout/success": 0.25})
    time.sleep(0.3)
    assert "0 of 3" in made.html["head"].value
    made.refresh.click()
    assert "1 of 3" in made.html["head"].value
    made.pause.value = False
    writer.metrics(1, {"rollout/success": 0.5})
    soon(lambda: "2 of 3" in made.html["head"].value)


def test_ending_the_run_asks_first(live, monkeypatch):
    made, _ = live
    ended = []
    monkeypatch.setattr("seedlab.views.watch_controls.Job", lambda path: type("Fake", (), {"cancel": lambda self: ended.append(path) or {"state": "cancelled"}})())
    made.cancel.click()
    assert ended == [] and made.cancel.description == "Really end it?"
    made.cancel.click()
    soon(lambda: ended == [made.view.path] and "cancelled" in made.said.value)


def test_a_run_without_a_job_cannot_be_ended_from_here(live):
    made, _ = live
    assert made.cancel.disabled


def test_the_bundle_has_the_live_view_and_the_fallback(done):
    pytest.importorskip("ipywidgets", reason="the live view needs the extra `notebooks`")
    made = watch(done)._repr_mimebundle_()
    assert "model_id" in made["application/vnd.jupyter.widget-view+json"] and "Success of the rollouts" in made["text/html"]
    assert made["text/plain"].endswith("succeeded, 2 of 2 updates)")
