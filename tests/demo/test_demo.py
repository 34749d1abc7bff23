"""The demo end to end, with the settings of preset micro in place of its own: every phase, nothing learnt."""

import pytest

from seedlab.config.presets import PRESETS
from seedlab.errors import UserError
from seedlab.store import open_run
from seedlab.train.demo import ARMS, Demo, cells, is_done, merge_times


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDLAB_CACHE", str(out / "cache"))
        lines: list[str] = []
        report = Demo(out / "demo", quick=True, say=lines.append, overrides=PRESETS["micro"]).run()
        again: list[str] = []
        Demo(out / "demo", quick=True, say=again.append, overrides=PRESETS["micro"]).run()
    return out / "demo", report, lines, again


def test_every_arm_finishes_and_the_report_is_one_offline_file(finished):
    out, report, _, _ = finished
    for cell in cells(out, quick=True, overrides=PRESETS["micro"]):
        run = open_run(cell.folder)
        assert run.status["state"] == "succeeded"
        assert len(run.metrics) == run.config.stage2.updates
        assert set(run.evaluations["panel"]) == {"seen", "unseen"}
    text = report.read_text(encoding="utf-8")
    assert "default-src 'none'" in text  # the browser itself refuses every request
    assert all(arm in text for arm in ("GRPO from the base", "GRPO from θ_sft", "SEED from θ_sft", "SEED, shuffled skills"))


def test_a_second_demo_keeps_what_is_done(finished):
    _, _, lines, again = finished
    assert any("seed-sft-s0: done" in line for line in lines)
    assert again == [f"{len(ARMS)} of {len(ARMS)} runs are done already and are kept"]


def test_arms_differ_in_the_method_alone(tmp_path):
    found = {c.folder.name: c.config for c in cells(tmp_path, quick=False) if c.seed == 0}
    grpo, seed = found["grpo-sft-s0"].model_dump(), found["seed-sft-s0"].model_dump()
    different = {k for k in grpo if grpo[k] != seed[k]}
    assert different == {"method", "objective"}
    assert {k for k in grpo["objective"] if grpo["objective"][k] != seed["objective"][k]} == {"opd_coef"}
    base = found["grpo-base-s0"].model_dump()
    assert {k for k in grpo if grpo[k] != base[k]} == {"initial", "stage1"}
    assert {k for k in grpo["stage1"] if grpo["stage1"][k] != base["stage1"][k]} == {"enabled"}


def test_another_configuration_in_the_same_folder_is_refused(finished):
    out = finished[0]
    other = cells(out, quick=True, overrides={**PRESETS["micro"], "threads": 2})[0]
    with pytest.raises(UserError, match="choose another --out"):
        is_done(other)


def test_the_times_of_an_interrupted_demo_add_up():
    before = {"base_seconds": 120.0, "stage1_seconds": 200.0, "total_seconds": 400.0}
    assert merge_times(before, {"base_seconds": 0.5, "total_seconds": 300.0}) == {
        "base_seconds": 120.0, "stage1_seconds": 200.0, "total_seconds": 700.0,
    }  # fmt: skip
    assert merge_times(before, {})["total_seconds"] == 400.0
