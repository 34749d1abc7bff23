import base64
import hashlib
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from fake_run import config, fake_run

from seedlab.errors import UserError
from seedlab.store.errors import RunError
from seedlab.store.reader import open_run
from seedlab.views import inspect_tokens
from seedlab.views.inspector_fallback import FALLBACK_TOKENS
from seedlab.views.quantities import VALUES
from seedlab.views.template import escape
from seedlab.views.token_story import first_divergence, load_story

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>\u2028\u202e\"'--><svg/onload=window.hit=1>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("inspected")
    return {"seed": fake_run(root / "seed", config("seed")), "grpo": fake_run(root / "grpo", config("grpo", "base"))}


def spoil(table, update, frame):
    """Hostile text wherever a run has text."""
    columns = {"steps": ["observation", "response", "action"], "tokens": ["text"], "skills": ["text", "reason", "analyzer"], "trajectories": ["goal", "final_observation"]}
    return frame.assign(**{c: HOSTILE for c in columns.get(table, [])})


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return fake_run(tmp_path_factory.mktemp("hostile") / "run", change=spoil)


def unpack(state):
    """[stories] of [values, tokens] from the widget's one block of bytes."""
    block, out, offset = np.frombuffer(state["values"], dtype="<f4"), [], 0
    for story in state["story"]:
        size = len(VALUES) * len(story["texts"])
        out.append(block[offset : offset + size].reshape(len(VALUES), -1))
        offset += size
    assert offset == len(block)
    return out


def test_the_widgets_bytes_are_the_stored_values(runs):
    inspector = inspect_tokens(runs["seed"], compare=runs["grpo"])
    state = inspector.state()
    for story, block, name in zip(state["story"], unpack(state), ("seed", "grpo")):
        stored = open_run(runs[name]).tokens(story["id"]).sort_values(["step", "position"])
        for row, (_, column) in zip(block, VALUES):
            np.testing.assert_array_equal(row, stored[column].to_numpy(np.float32), err_msg=column)
        assert story["ids"] == stored["token_id"].tolist() and story["texts"] == stored["text"].tolist()
    assert np.isnan(unpack(state)[1][0]).all()  # GRPO has no gate


def test_turns_cover_all_tokens_in_order(runs):
    story = inspect_tokens(runs["seed"]).state()["story"][0]
    assert [t["start"] for t in story["turns"]] == [0] + [t["end"] for t in story["turns"]][:-1]
    assert story["turns"][-1]["end"] == len(story["texts"]) and [t["observation"] for t in story["turns"]] == ["you look at shelf 0", "you look at shelf 1"]


def test_it_opens_at_the_last_update_with_an_accepted_skill_and_says_the_verdict(runs):
    inspector = inspect_tokens(runs["seed"])
    assert inspector.update == 1 and inspector.story.skill.accepted is True and inspector.story.skill.verdict == "accepted"
    inspector.select(0, inspector.played["id"].iloc[0].replace("u000001", "u000000"))
    assert inspector.update == 0
    rejected = inspector.played[inspector.played["n"] == 3]["id"].iloc[0]
    inspector.select(0, rejected)
    assert (inspector.story.skill.accepted, inspector.story.skill.verdict) == (False, "rejected: too_short")
    assert "nobody wrote a skill" in inspect_tokens(runs["grpo"]).story.skill.note


def test_a_trajectory_alone_names_its_update(runs):
    name = open_run(runs["seed"]).trajectories(0)["id"].iloc[2]
    inspector = inspect_tokens(runs["seed"], trajectory=name)
    assert (inspector.update, inspector.trajectory) == (0, name)


def test_what_is_not_there_is_named(runs, tmp_path):
    with pytest.raises(RunError, match="is not a folder"):
        inspect_tokens(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"update 7 .* has no stored tokens. Stored: 0, 1"):
        inspect_tokens(runs["seed"], update=7)
    with pytest.raises(RunError, match="no update of .* has the trajectory 'u9/x/n0'"):
        inspect_tokens(runs["seed"], trajectory="u9/x/n0")
    with pytest.raises(RunError, match="has no trajectory 'u9/x/n0'"):
        inspect_tokens(runs["seed"], update=1, trajectory="u9/x/n0")
    bare = fake_run(tmp_path / "bare", config(stage2={"updates": 0}))
    with pytest.raises(RunError, match="no update with stored tokens yet"):
        inspect_tokens(bare)


# ---- side by side


def stories(runs, change=lambda steps, tokens: (steps, tokens)):
    run = open_run(runs["seed"])
    one = load_story(run, 1, run.trajectories(1)["id"].iloc[0])
    turns, tokens = change(one.turns.copy(), one.tokens.copy())
    return one, type(one)(one.title, one.trajectory, tokens.reset_index(drop=True), turns, one.skill)


def test_the_same_trajectory_does_not_part(runs):
    assert first_divergence(*stories(runs)) is None


@pytest.mark.parametrize("at", [0, 2, 4])
def test_the_first_other_token_is_where_they_part(runs, at):
    def change(turns, tokens):
        tokens.loc[at:, "token_id"] += 1
        return turns, tokens

    one, other = stories(runs, change)
    found = first_divergence(one, other)
    assert (found.kind, found.a, found.b) == ("token", at, at) and one.tokens["step"].iloc[at] == found.step


def test_a_shorter_answer_and_another_observation_and_an_end_are_differences(runs):
    one, other = stories(runs, lambda turns, tokens: (turns, tokens.drop(tokens.index[tokens["step"] == 0][-1])))
    found = first_divergence(one, other)
    assert (found.kind, found.b) == ("token", None) and found.a == (one.tokens["step"] == 0).sum() - 1
    one, other = stories(runs, lambda turns, tokens: (turns.assign(observation=["you look at shelf 0", "a cat"]), tokens))
    found = first_divergence(one, other)
    assert (found.kind, found.step, found.a) == ("observation", 1, int((one.tokens["step"] == 0).sum()))
    one, other = stories(runs, lambda turns, tokens: (turns.head(1), tokens[tokens["step"] == 0]))
    assert (first_divergence(one, other).kind, first_divergence(one, other).b) == ("end", None)


def test_two_runs_stand_side_by_side_on_the_same_task(runs):
    inspector = inspect_tokens(runs["seed"], compare=open_run(runs["grpo"]))
    one, other = inspector.stories
    assert one.trajectory["task"] == other.trajectory["task"] and one.trajectory["n"] == other.trajectory["n"]
    assert inspector.state()["split"]["sentence"] == first_divergence(one, other).sentence


def test_two_updates_of_one_run(runs):
    inspector = inspect_tokens(runs["seed"], update=1, compare=0)
    assert [s.title for s in inspector.stories] == ["seed, update 1", "seed, update 0"] and inspector.same_task_updates() == [0]
    inspector.compare(None)
    assert len(inspector.stories) == 1 and inspector.state()["split"] == {}


def test_a_task_that_the_other_run_did_not_play_is_named(runs, tmp_path):
    other = fake_run(tmp_path / "other", change=lambda table, update, frame: frame.assign(task="household/else") if table == "trajectories" else frame)
    with pytest.raises(RunError, match="no update of it with stored tokens played that task"):
        inspect_tokens(runs["seed"], compare=other)


# ---- pages and fallbacks


def script_of(page):
    return re.search(r'<script type="module">(.*?)</script>', page, re.S)[1]


def test_the_page_stands_alone(runs, tmp_path):
    out = inspect_tokens(runs["seed"]).to_html(tmp_path / "deep" / "page.html")
    page = out.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script_of(page).encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'" in page
    assert not re.search(r"https?://(?!www\.w3\.org)|@import|<link|<iframe|fetch\(|XMLHttpRequest|\bsrc=", page)
    assert page == inspect_tokens(runs["seed"]).to_html()


def test_the_pages_values_are_the_stored_ones(runs):
    inspector = inspect_tokens(runs["seed"])
    payload = json.loads(re.search(r'<script type="application/json" id="state">(.*?)</script>', inspector.to_html(), re.S)[1])
    assert payload["bytes"] == ["values"] and base64.b64decode(payload["values"]["values"]) == inspector.state()["values"]
    assert payload["values"]["story"] == inspector.state()["story"]


def test_hostile_text_stays_text_in_page_and_fallback(hostile):
    inspector = inspect_tokens(hostile)
    page, fallback = inspector.to_html(), inspector._repr_html_()
    assert page.count("<script") == 2 and page.count("</script") == 2 and "<img" not in page and "<svg" not in page
    assert "<script" not in fallback and "<img" not in fallback and "<svg" not in fallback and "onerror=window.hit=1&gt;" in fallback
    for text in (page, fallback):
        assert "\u2028" not in text and "\u202e" not in text
    assert "⟨U+202E⟩" in fallback


def test_the_fallback_needs_neither_script_nor_style_sheet(runs):
    inspector = inspect_tokens(runs["seed"], compare=runs["grpo"])
    made = inspector._repr_html_()
    assert "<style" not in made and "<script" not in made and "class=" not in made
    assert made.count('title="&#x27;') == sum(len(s.tokens) for s in inspector.stories) and "first difference" in made
    row = inspector.story.tokens.iloc[0]
    assert f"gate {row['gate']:.3f}, Δ {row['delta']:.3f}" in made and "✓ accepted" in made


def test_a_long_fallback_is_cut_and_says_so(runs):
    inspector = inspect_tokens(runs["seed"])
    story = inspector.story
    long = pd.concat([story.tokens[story.tokens["step"] == 0]] * 300, ignore_index=True)
    inspector.stories = [type(story)(story.title, story.trajectory, long, story.turns, story.skill)]
    made = inspector._repr_html_()
    assert made.count('title="&#x27;') == FALLBACK_TOKENS and f"first {FALLBACK_TOKENS} of {len(long)} tokens" in made


def test_the_bundle_has_the_live_view_and_the_fallback(runs):
    pytest.importorskip("anywidget", reason="the live view needs the extra `notebooks`")
    inspector = inspect_tokens(runs["seed"])
    made = inspector._repr_mimebundle_()
    assert made["text/html"] == inspector._repr_html_() and "model_id" in made["application/vnd.jupyter.widget-view+json"]
    assert made["text/plain"].startswith("TokenInspector(seed, update 1, ")


def test_without_the_widgets_the_picture_says_what_is_missing(runs, monkeypatch):
    monkeypatch.setattr("seedlab.views.live.widgets_installed", lambda: False)
    made = inspect_tokens(runs["seed"])._repr_mimebundle_()
    assert set(made) == {"text/plain", "text/html"} and "seedlab[notebooks]" in made["text/html"]


# ---- selectors


@pytest.fixture
def box(runs):
    pytest.importorskip("anywidget", reason="the live view needs the extra `notebooks`")
    from seedlab.views.inspector_controls import _Controls

    return _Controls(inspect_tokens(runs["seed"]))


def test_moving_the_update_shows_that_updates_tokens(box, runs):
    before = box.map.revision
    box.update.value = 0
    assert box.map.revision > before and box.inspector.update == 0
    stored = open_run(runs["seed"]).tokens(box.map.story[0]["id"])
    assert box.map.story[0]["id"].startswith("u000000/") and box.map.story[0]["texts"] == stored["text"].tolist()


def test_outcome_task_and_trajectory_choose(box):
    box.outcome.value = "failure"
    assert box.inspector.story.trajectory["success"] == np.False_ and all("failure" in label for label, _ in box.trajectory.options)
    other = [value for _, value in box.task.options if value != box.task.value][0]
    box.task.value = other
    assert box.inspector.story.trajectory["task"] == other and box.map.story[0]["id"] == box.trajectory.value
    last = box.trajectory.options[-1][1]
    box.trajectory.value = last
    assert box.inspector.trajectory == last == box.map.story[0]["id"]


def test_an_outcome_that_never_happened_is_said(box):
    box.inspector.played = box.inspector.played.assign(success=False)
    box.outcome.value = "success"
    assert "has no success" in box.said.value and box.outcome.value == "all"


def test_another_run_and_another_update_stand_beside(box, runs):
    box.other_run.value = str(runs["grpo"])
    assert len(box.map.story) == 2 and box.map.split["sentence"]
    box.beside.value = 0
    assert [s["title"] for s in box.map.story] == ["seed, update 1", "seed, update 0"]
    box.beside.value = "nothing"
    assert len(box.map.story) == 1
    box.other_run.value = "nowhere/at/all"
    assert "is not a folder" in box.said.value and len(box.map.story) == 1


def test_without_checkpoints_the_typed_skill_says_so(box, runs, tmp_path):
    # The fake run has a tokenizer's folder, but no weights.
    assert box.score.disabled and "holds no weights" in box.skill.placeholder
    with pytest.raises(UserError, match="holds no weights, so that"):
        box.inspector.score_skill("look first in the fridge")


def test_the_clicked_token_comes_back_to_python(box):
    box.map.focused = {"pane": 0, "index": 2, "step": 0, "position": 2}
    pd.testing.assert_series_equal(box.inspector.focused, box.inspector.story.tokens.iloc[2])
    box.update.value = 0
    assert box.inspector.focused is None


def test_a_trajectory_that_was_lost_has_turns_and_no_tokens(tmp_path):
    def lose(table, update, frame):
        if table == "tokens":
            return frame[~frame["trajectory"].str.endswith("-0/n0")]
        return frame.assign(infra_failure=["the game crashed" if n == 0 else "" for n in frame["n"]]) if table == "trajectories" else frame

    run = fake_run(tmp_path / "run", change=lose)
    name = open_run(run).trajectories(1)["id"].iloc[0]
    inspector = inspect_tokens(run, trajectory=name)
    state = inspector.state()
    assert state["values"] == b"" and len(state["story"][0]["turns"]) == 2 and "lost to infrastructure" in state["story"][0]["note"]
    assert "no stored token" in inspector._repr_html_()


def test_typing_a_skill_and_pressing_the_button(finished):
    pytest.importorskip("anywidget", reason="the live view needs the extra `notebooks`")
    from seedlab.views.inspector_controls import _Controls

    made = _Controls(inspect_tokens(finished))
    assert made.snapshot.value == "1" and not made.score.disabled  # weights before the last update
    made.own.click()
    assert made.skill.value == made.inspector.story.skill.text
    made.skill.value = "look first in the fridge"
    made.score.click()
    assert len(made.map.story) == 2 and made.map.story[1]["skill"]["text"] == "look first in the fridge" and made.said.value == ""
    assert made.beside.value == made.map.story[1]["title"] and "same tokens" in made.map.remark
    made.beside.value = "nothing"
    assert len(made.map.story) == 1


def test_a_typed_skill_shows_the_gates_of_the_checkpoint(finished, tmp_path):
    inspector = inspect_tokens(finished)
    scored = inspector.score_skill("look first in the fridge", "reference")
    typed = unpack(inspector.state())[1]
    columns = [column for _, column in VALUES]
    for name in ("gate", "delta", "logp_student", "entropy"):
        np.testing.assert_array_equal(typed[columns.index(name)], scored[name].to_numpy(np.float32))
    np.testing.assert_array_equal(typed[columns.index("advantage")], inspector.story.tokens["advantage"].to_numpy())
    assert inspector.stories[1].skill.text == "look first in the fridge" and "started from" in inspector.stories[1].note
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy, ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(UserError, match="holds no weights"):
        inspect_tokens(copy).score_skill("look")
    with pytest.raises(UserError, match="has no weights '2'; .*the folder has none"):
        inspect_tokens(copy, checkpoint=2).score_skill("look")


# ---- updates without tokens


def test_updates_whose_tokens_are_not_stored_are_told_of_wherever_the_inspector_shows_itself(runs, tmp_path):
    """fake_run stores what it is told to: two updates, of which store.tokens=2 keeps the first."""
    pytest.importorskip("anywidget", reason="the live view needs the extra `notebooks`")
    from seedlab.views.inspector_controls import _Controls

    some = fake_run(tmp_path / "some", config("seed", store={"tokens": 2}))
    inspector = inspect_tokens(some)
    note = "Tokens of update 0 are stored; the run has 2 updates (0 to 1). The run's setting store.tokens=2 kept these; store.tokens=all keeps those of every update."
    assert (inspector.updates, inspector.stored_note) == ([0], note)
    box = _Controls(inspector).box
    assert f"<span>{escape(note)}</span>" in [getattr(child, "value", None) for child in box.children]
    assert escape(note) in inspector._repr_html_() and escape(note) in inspector.to_html()
    with pytest.raises(RunError, match=r"update 1 of .* has no stored tokens. Tokens of update 0 are stored; .* store.tokens=all"):
        inspector.select(1)

    everything = inspect_tokens(runs["seed"])
    assert everything.stored_note == "" and "are stored" not in everything._repr_html_()
    assert not any("are stored" in str(getattr(child, "value", "")) for child in _Controls(everything).box.children)
