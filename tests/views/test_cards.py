import json

import pytest
from fake_run import config, fake_run

from seedlab.jobs import JobError
from seedlab.views import run_cards
from seedlab.views.theme import method_colour


def test_every_run_has_a_card_in_its_methods_colour(tmp_path):
    fake_run(tmp_path / "a", config("seed"))
    fake_run(tmp_path / "deep" / "b", config("grpo", "base"))
    broken = fake_run(tmp_path / "c<script>", config("seed"))
    (broken / "status.json").write_text("{")
    made = run_cards(tmp_path)._repr_html_()
    assert made.count("✓ succeeded") == 2 and made.count("! damaged") == 1 and "status.json is damaged" in made
    assert made.count("updates: 2 of 2") == 3 and "<b>deep/b</b>" in made and "<script" not in made and "<svg" not in made
    assert method_colour("seed") in made and method_colour("grpo") in made


def test_a_job_that_has_not_begun_has_a_card(tmp_path):
    (tmp_path / "waiting").mkdir()
    (tmp_path / "waiting" / "status.json").write_text(json.dumps({"schema_version": 1, "state": "queued", "pid": 1, "process_started": "x", "host": "elsewhere", "heartbeat": 9e12}))
    assert "◷ queued" in run_cards(tmp_path)._repr_html_() and "no update yet" in run_cards(tmp_path)._repr_html_()


def test_no_run_and_no_folder_are_said(tmp_path):
    assert "No run below" in run_cards(tmp_path)._repr_html_()
    with pytest.raises(JobError, match="is not a folder"):
        run_cards(tmp_path / "nowhere")
