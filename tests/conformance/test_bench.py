"""The benchmark of engines: bounds that our engine keeps, and what is printed."""

import json

import pytest

from seedlab.conformance import bench
from seedlab.conformance.sources import generated_sources


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(bench, "LEAST_CPU_S", 0.05)


def test_our_engine_keeps_its_bounds():
    figures = bench.measure(generated_sources(6), length=30, environments=2000, official=False)["household"]
    assert figures["steps_per_cpu_s"] > 6500  # 500 times the official engine's 13; with the list of commands
    assert figures["load_ms"] < 10 and figures["reset_us"] < 1000 and figures["clone_us"] < 100
    assert figures["environments"] == 2000 and figures["kb_per_environment"] < 16


def test_figures_are_printed_and_kept(seedlab, tmp_path):
    file = tmp_path / "bench.jsonl"
    code, out, _ = seedlab("bench", "envs", "--count", 2, "--length", 5, "--environments", 100, "--no-official", "--results", file)
    assert code == 0 and "steps per CPU second" in out and "100 environments of ours" in out and "official, memoised" not in out
    (row,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert row["games"] == "generated rooms" and row["official"] is None and row["machine"]["cores"] >= 1


def test_the_official_column_stands_beside_ours(monkeypatch, stand_in):
    stand_in.write_text(stand_in.read_text().replace("print(json.dumps(state)", 'state |= {"cpu_s": 0.01, "peak_kb": 70000, "domain": "", "grammar": \'"Your task is to: x."\'}\n    print(json.dumps(state)'))
    row = bench.measure(generated_sources(2), length=4, environments=10, official=True)
    assert row["official"]["steps_per_cpu_s"] == pytest.approx(100) and row["official"]["reset_us"] == pytest.approx(10_000)
    assert row["official"]["times_slower"] == row["household"]["steps_per_cpu_s"] / row["official"]["steps_per_cpu_s"]
    table = bench.bench_text(row | {"games": "two rooms"})
    assert "two rooms: 2 games" in table and "70,000.0" in table and "times slower than ours" in table


@pytest.mark.full
@pytest.mark.usefixtures("official")
def test_our_engine_is_five_hundred_times_faster():
    row = bench.measure(generated_sources(3), length=10, environments=100, official=True)
    assert row["official"]["times_slower"] > 500
