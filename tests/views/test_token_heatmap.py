import math

import pandas as pd
from fake_run import fake_run

from seedlab.store.reader import open_run
from seedlab.views.template import STYLE
from seedlab.views.quantities import DELTA_LIMIT, NO_TEACHER, QUANTITIES
from seedlab.views.token_heatmap import HEAT_TOKENS, choose_trajectory, heatmap

NAN = float("nan")
QUANTITY = {q.key: q for q in QUANTITIES}
gate_colour, delta_colour = QUANTITY["gate"].colour, QUANTITY["delta"].colour


def tokens(*rows):
    base = {"trajectory": "t", "step": 0, "mask_opd": True, "delta": 0.1, "gate": 0.6, "text": "go", "logp_student": -1.0, "logp_teacher": -0.9,
            "logp_rollout": -1.0, "logp_old": -1.0, "logp_ref": -1.1, "entropy": 0.5, "ratio": 1.0, "kl": 0.0, "clipped": False, "minibatch": 0,
            "token_id": 7, "advantage": 0.0, "net_coefficient": 0.0}  # fmt: skip
    return pd.DataFrame([base | {"position": i} | row for i, row in enumerate(rows)])


STEPS = pd.DataFrame([{"step": 0, "observation": "a room"}])
TRAJECTORY = pd.Series({"id": "t", "goal": "put a mug", "success": False, "return": 0.0, "advantage": 0.0, "tied": True, "final_observation": "end"})


def test_gate_colour_has_a_fixed_domain():
    assert gate_colour(0.0) == "#ffffff" and gate_colour(1.0) == gate_colour(7.0) != gate_colour(0.5)
    assert gate_colour(NAN) == NO_TEACHER


def test_delta_colour_diverges_around_zero():
    assert delta_colour(0.0) == "#ffffff" and delta_colour(DELTA_LIMIT) == delta_colour(99.0)
    red, blue = delta_colour(-1.0), delta_colour(1.0)
    assert int(red[1:3], 16) > int(red[5:7], 16) and int(blue[1:3], 16) < int(blue[5:7], 16)


def test_every_quantity_has_a_button_a_scale_a_style_rule_and_its_own_colour():
    assert [q.column for q in QUANTITIES] == ["gate", "delta", "advantage", "net_coefficient", "logp_student", "ratio", "entropy"]
    made = heatmap(tokens({"advantage": -9.0, "net_coefficient": 0.0, "logp_student": -5.0, "entropy": 0.0}), STEPS, TRAJECTORY, None)
    for q in QUANTITIES:
        assert f'id="show-{q.key}"' in made and f'class="of-{q.key}"' in made
        assert f"#show-{q.key}:checked~.columns .t{{background:var(--{q.key})!important}}" in STYLE and f"#show-{q.key}:checked~.scales .of-{q.key}" in STYLE
        assert q.colour(q.domain[0]) != q.colour(q.domain[1]) and q.colour(NAN) == NO_TEACHER
    assert f"--advantage:{delta_colour(-9.0)};--net:#ffffff;--logprob:{gate_colour(1.0)};--ratio:#ffffff;--entropy:#ffffff" in made
    assert made.count(" checked") == 1 and 'id="show-gate" checked' in made


def test_hovering_shows_every_value_of_a_token():
    values = {"gate": 0.101, "delta": 0.102, "logp_student": 0.103, "logp_teacher": 0.104, "logp_rollout": 0.105, "logp_old": 0.106, "logp_ref": 0.107,
              "entropy": 0.108, "advantage": 0.109, "ratio": 0.11, "net_coefficient": 0.111, "kl": 0.112}  # fmt: skip
    made = heatmap(tokens(values | {"token_id": 31, "minibatch": 5, "clipped": True}), STEPS, TRAJECTORY, None)
    title = made.split('title="')[1].split('"')[0]
    assert all(f"{v:.3f}" in title for v in values.values()) and "id 31" in title and title.endswith("minibatch 5, clipped")


def test_a_constant_gate_is_not_stretched_to_white():
    made = heatmap(tokens({}, {}, {}), STEPS, TRAJECTORY, None)
    assert made.count(f"background:{gate_colour(0.6)};--gate:{gate_colour(0.6)};") == 3


def test_hostile_text_stays_text():
    bad = "</span><script>alert(1)</script>\"'"
    skill = pd.Series({"accepted": False, "reason": bad, "text": bad, "raw": "", "analyzer": bad})
    made = heatmap(
        tokens({"text": bad}), pd.DataFrame([{"step": 0, "observation": bad}]), TRAJECTORY.copy().replace("put a mug", bad), skill, taught_by=bad
    )
    assert "<script>" not in made and made.count("&lt;script&gt;") == 8  # token twice, observation, goal, skill, reason, analyzer, teacher


def test_tokens_without_a_teacher_are_grey_and_have_dashes():
    made = heatmap(tokens({"mask_opd": False, "delta": NAN, "gate": NAN, "logp_teacher": NAN}), STEPS, TRAJECTORY, None)
    assert f"--gate:{NO_TEACHER};--delta:{NO_TEACHER};" in made and "gate —" in made and "No skill was written" in made


def test_a_long_trajectory_is_cut_and_says_so():
    made = heatmap(tokens(*[{}] * (HEAT_TOKENS + 5)), STEPS, TRAJECTORY, None)
    assert made.count('class="t"') == HEAT_TOKENS and f"first {HEAT_TOKENS} of {HEAT_TOKENS + 5}" in made


def test_the_chosen_trajectory_has_an_accepted_skill_and_the_widest_delta():
    frame = pd.concat([
        tokens({"delta": 0.0}, {"delta": 9.0}).assign(trajectory="rejected"), tokens({"delta": 0.0}, {"delta": 1.0}).assign(trajectory="wide"),
        tokens({"delta": 0.2}, {"delta": 0.3}).assign(trajectory="narrow"),
    ])
    skills = pd.DataFrame({"trajectory": ["rejected", "wide", "narrow"], "accepted": [False, True, True]})
    assert choose_trajectory(frame, skills) == "wide"
    assert choose_trajectory(frame, skills.assign(accepted=False)) == "rejected"
    assert choose_trajectory(frame.assign(mask_opd=False), skills) is None


def test_every_token_of_a_stored_trajectory_is_shown_in_order(tmp_path):
    run = open_run(fake_run(tmp_path / "run"))
    name = run.trajectories(1)["id"].iloc[0]
    part, steps = run.tokens(name), run.steps(1)
    made = heatmap(part.sample(frac=1, random_state=0), steps[steps["trajectory"] == name], run.trajectories(1).iloc[0], None)
    shown = [piece.split("</span>")[0].split(">", 1)[1] for piece in made.split('<span class="t"')[1:]]
    assert shown == list(part.sort_values(["step", "position"])["text"])
    assert not math.isnan(part["gate"].iloc[0])
