"""Tables from committed rows: their numbers, and what they refuse; the pages hold the tables of their rows."""

import json
from pathlib import Path

import pytest

from seedlab.analysis.result_rows import evaluation_lines, main, read_result_rows, tables, training_lines, with_current_rows
from seedlab.config.presets import config_hash, load_config
from seedlab.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def row(method, seed, seen, *, panel_hash="p", curve=(0.0, 0.1, None, 0.3), cell=(), start="stage1"):
    """`seen` are successes of 10 light and of 30 simple games."""
    cfg = load_config("tiny", {"method": method, "initial": start, "stage1.enabled": True, "seed": seed, **dict(cell)})
    kinds = {"light": {"successes": seen[0], "episodes": 10}, "simple": {"successes": seen[1], "episodes": 30}}
    evaluation = {
        "success_macro": (seen[0] / 10 + seen[1] / 30) / 2, "success_micro": sum(seen) / 40, "episodes": 40, "by_type": kinds,
        "panel_hash": panel_hash, "decoding": {"temperature": 0.4},
    }
    return {
        "schema_version": 1, "config_hash": config_hash(cfg), "cell_hash": config_hash(cfg, exclude_seed=True), "method": method,
        "seed": seed, "updates": 4, "seconds": 12.3, "config": json.loads(cfg.model_dump_json()),
        "curves": {"rollout/success": list(curve), "rollout/tie_rate": [0.5, 0.5, 1.0, 0.5]}, "evaluations": {"seen": evaluation},
    }  # fmt: skip


def written(path, *rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_cells_are_means_with_t_intervals_and_pairs_by_seed(tmp_path):
    file = written(
        tmp_path / "r.jsonl", row("grpo", 0, (2, 6)), row("grpo", 1, (4, 12)), row("seed", 1, (5, 12)), row("seed", 0, (3, 6))
    )
    lines = evaluation_lines(read_result_rows(file), "seen")
    assert lines[0] == "| seen | games | GRPO from θ_sft (2 seeds) | SEED from θ_sft (2 seeds) | SEED from θ_sft minus GRPO from θ_sft |"
    # two values a and b: mean +- t(1, .975) |a - b| / 2 = 12.706 |a - b| / 2
    assert lines[2] == "| light | 10 | 0.300 [-0.971, +1.571] | 0.400 [-0.871, +1.671] | +0.100 [+0.100, +0.100] |".replace("+1.", "1.")
    assert lines[3].startswith("| simple | 30 | 0.300 [") and lines[3].endswith("| +0.000 [+0.000, +0.000] |")
    assert lines[4].startswith("| macro | 40 | 0.300 [") and lines[5].startswith("| micro | 40 | 0.300 [")
    assert lines[5].split("|")[-2].strip() == "+0.025 [+0.025, +0.025]"


def test_seeds_without_a_partner_count_in_the_mean_and_not_in_the_difference(tmp_path):
    file = written(tmp_path / "r.jsonl", row("grpo", 0, (2, 6)), row("grpo", 1, (4, 12)), row("seed", 1, (5, 12)))
    light = evaluation_lines(read_result_rows(file), "seen")[2]
    assert light.split("|")[4:6] == [" 0.500 ", " +0.100 "]  # one seed: no interval


def test_halves_of_training_leave_out_what_was_not_measured(tmp_path):
    file = written(tmp_path / "r.jsonl", row("grpo", 0, (2, 6)))
    assert training_lines(read_result_rows(file))[2] == "| GRPO from θ_sft | 0 | 4 | 0.050 | 0.300 | 0.500 | 0.750 | 12 |"


def test_the_later_row_of_a_seed_counts(tmp_path):
    file = written(tmp_path / "r.jsonl", row("grpo", 0, (2, 6)), row("grpo", 0, (9, 6)))
    assert "0.900" in evaluation_lines(read_result_rows(file), "seen")[2]


def test_what_cannot_be_compared_is_refused(tmp_path):
    with pytest.raises(UserError, match="none.jsonl has no row"):
        read_result_rows(tmp_path / "none.jsonl")
    mixed = written(tmp_path / "m.jsonl", row("grpo", 0, (2, 6)), row("grpo", 1, (2, 6), cell={"stage2.updates": 9}))
    with pytest.raises(UserError, match="m.jsonl: the runs of GRPO from θ_sft differ in more than the seed"):
        read_result_rows(mixed)
    other = written(tmp_path / "o.jsonl", row("grpo", 0, (2, 6)), row("seed", 0, (2, 6), panel_hash="q"))
    with pytest.raises(UserError, match="panel seen has not the same tasks"):
        tables(other)


def test_the_tables_go_between_the_markers(tmp_path, capsys):
    file = written(tmp_path / "r.jsonl", row("grpo", 0, (2, 6)))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin: rows of r.jsonl -->\nold\n<!-- end: rows of r.jsonl -->\nafter\n")
    assert main([str(file), "--write", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and tables(file) in text and "old" not in text
    assert with_current_rows(text, file) == text
    page.write_text("no markers")
    assert main([str(file), "--write", str(page)]) == 2
    assert "needs the lines '<!-- begin: rows of r.jsonl -->'" in capsys.readouterr().err


def test_committed_rows_give_the_figures_of_the_results_page():
    arms = read_result_rows(ROOT / "results" / "demo.jsonl")
    last = evaluation_lines(arms, "seen")[-1]
    assert "| 0.378 [0.295, 0.462] |" in last  # GRPO from the base
    assert "| 0.372 [0.274, 0.469] |" in last  # SEED


def test_the_results_page_holds_the_tables_of_the_committed_rows():
    page = ROOT / "docs" / "results.md"
    assert with_current_rows(page.read_text(encoding="utf-8"), ROOT / "results" / "alfworld_tiny.jsonl") == page.read_text(encoding="utf-8")
