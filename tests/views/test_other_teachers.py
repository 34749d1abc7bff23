"""Views of runs whose teacher reads another skill than the trajectory's own, or whose distillation has no gate."""

import numpy as np
from fake_run import config, fake_run

from seedlab.analysis.curves import gates
from seedlab.analysis.frames import load
from seedlab.analysis.tables import gate_histogram
from seedlab.store.reader import open_run
from seedlab.views import report_skills
from seedlab.views.token_story import load_story, taught_by


def test_what_the_teacher_read_stands_beside_the_tokens(tmp_path):
    def change(table, update, frame):
        return frame.assign(source="static", text="go there and look") if table == "prompt_skills" else frame

    path = fake_run(tmp_path / "run", config("sdar", "base"), change=change)
    run = open_run(path)
    names = run.trajectories(0)["id"]
    assert taught_by(run, 0, names[0]) == "The teacher read another skill (static): go there and look"
    assert load_story(run, 0, names[0]).skill.note.endswith("(static): go there and look")
    assert taught_by(run, 0, names[3]) == "The teacher did not read this skill: objective.skill_from=static."  # it had none
    assert "The teacher read another skill (static): go there and look" in str(report_skills.tokens(load([path])))
    own = open_run(fake_run(tmp_path / "own"))
    assert taught_by(own, 0, own.trajectories(0)["id"].iloc[0]) == ""


def test_a_form_without_a_gate_shows_its_deltas_alone(tmp_path):
    def change(table, update, frame):
        return frame.assign(gate=np.float32("nan")) if table == "tokens" else frame

    path = fake_run(tmp_path / "run", config("opsd-kl", "base"), change=change)
    page = str(report_skills.gate(load([path])))
    assert "opsd-kl from base distils without a gate (objective.opd_form=log_ratio)" in page
    assert "fig-delta" in page and "fig-gate" not in page and ">—</td>" in page and ">nan" not in page
    assert gates([path]).empty and gate_histogram(open_run(path), 0).empty
