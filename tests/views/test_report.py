import json
import re
import shutil

import pytest
from fake_run import config, fake_run

from seedlab.cli.main import main
from seedlab.views.report import MAX_BYTES, write_report

HOSTILE = "</script><script>alert(1)</script><img src=http://evil.example/x.png onerror=alert(1)>"
SECTIONS = ("runs", "evaluation", "learning", "ties", "gate", "skills", "tokens", "shuffled", "signals", "cost", "stage1", "limits")


def own(text: str) -> str:
    """The page without plotly's own code."""
    return text[text.index("</head>"):]


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    wanted = (("GRPO from the base", "grpo", "base", 2), ("GRPO from θ_sft", "seed/no-opd", "stage1", 2), ("SEED from θ_sft", "seed", "stage1", 2),
              ("SEED, shuffled skills", "seed/shuffled", "stage1", 1))  # fmt: skip
    return {
        name: [fake_run(root / f"{method}-{s}".replace("/", "-"), config(method, initial, s), success=0.5 + 0.25 * s) for s in range(seeds)]
        for name, method, initial, seeds in wanted
    }


@pytest.fixture(scope="module")
def full(arms, tmp_path_factory):
    out = write_report(arms, tmp_path_factory.mktemp("out") / "deep" / "report.html", title="demo", timings={"total_seconds": 90.0}, notes=["A note."])
    return out.read_text(encoding="utf-8")


def test_the_whole_report_has_every_section_and_no_empty_one(full):
    assert [m for m in re.findall(r'<section id="([^"]+)"', full)] == list(SECTIONS)
    empties = re.findall(r'class="empty">([^<]+)', full)
    assert all(text.startswith("No run has ") for text in empties), empties  # only metrics that the fake runs do not write
    assert "90.0 s" in full and "A note." in full and "Test CPU" in full and "0123456789ab" in full


def test_verdict_stands_first_and_is_honest(full):
    body = own(full)
    assert body.index("SEED from θ_sft does not beat GRPO from θ_sft here") < body.index("<section")


def test_macro_and_micro_of_every_arm_stand_beside_each_other(full):
    table = own(full).split('<section id="evaluation">')[1].split("</table>")[0]
    assert re.findall(r"<th>([^<]+)", table) == ["panel", "arm", "macro", "single seeds", "micro", "single seeds", "episodes"]
    row = re.search(r"<tr><td>seen</td><td>SEED from θ_sft</td>(.*?)</tr>", table)[1]
    assert "0.625 [" in row and "0.500, 0.750" in row and "4 + 4" in row


def test_the_page_is_small_and_asks_nothing_of_a_network(full):
    assert len(full.encode()) < MAX_BYTES
    assert full.count("plotly.js v") == 1
    body = own(full)
    assert not re.search(r"(src|href|action|data|poster)\s*=\s*[\"']?\s*(https?:)?//", body, re.I)
    assert not re.search(r"@import|url\(|<link|<iframe|fetch\(|XMLHttpRequest", body)
    assert "default-src 'none'" in full and '"showSendToCloud": false' in body and '"displaylogo": false' in body


def test_every_figure_has_a_table_for_readers_without_scripts(full):
    body = own(full)
    assert body.count('<div class="figure"') == body.count("Plotly.newPlot(") == body.count("<summary>The numbers</summary>") > 10


def test_hostile_text_from_runs_and_caller_stays_text(tmp_path):
    run = fake_run(tmp_path / "run", skill=f"look first in {HOSTILE} then open shelf 1", goal=HOSTILE)
    text = own(write_report({HOSTILE: [run]}, tmp_path / "r.html", title=HOSTILE, notes=[HOSTILE]).read_text(encoding="utf-8"))
    assert "<script>alert" not in text and "<img" not in text
    assert text.count("&lt;script&gt;alert(1)") > 10  # and it is shown


def test_signals_are_judged_in_words(tmp_path):
    long = {"updates": 4, "tasks_per_update": 2, "group_size": 4}
    run = fake_run(tmp_path / "run", config(stage2=long), metric_values={"policy/kl": 0.7})
    text = own(write_report({"SEED": [run]}, tmp_path / "r.html", title="t").read_text(encoding="utf-8"))
    assert re.search(r"<tr><td>KL to the reference</td><td>SEED</td><td>0.700</td><td>0.700</td><td>above 0.3 nats</td><td>warning in the only seed", text)
    assert re.search(r"<tr class=sub><td>entropy</td><td>SEED</td><td>0.500</td><td>0.500</td><td>below 60% of its start</td><td>no warning", text)


def test_quick_makes_no_claim(arms, tmp_path):
    text = own(write_report(arms, tmp_path / "r.html", title="quick", quick=True).read_text(encoding="utf-8"))
    verdict = text.split('<div class="verdict">')[1].split("</div>")[0]
    assert "no claim on learning" in verdict and "beat" not in text and "scored higher" not in text


def test_one_seed_is_never_spoken_of_as_an_interval(arms, full, tmp_path):
    """Seeds and intervals over seeds are one thing: where there is one seed, no heading and no sentence promises one."""
    alone = {name: runs[:1] for name, runs in arms.items()}
    text = own(write_report(alone, tmp_path / "r.html", title="quick", quick=True).read_text(encoding="utf-8"))
    promises = ("95 % t interval", "[95 %]", "bootstrap interval", "interval that", "all seeds together", "single seeds", "Thick: mean over seeds")
    assert [p for p in promises if p in text] == [] and all(p in own(full) for p in promises)
    assert "no number here has an interval over seeds" in text and "no difference has an interval" in text
    table = text.split('<section id="evaluation">')[1].split("</table>")[0]
    assert re.findall(r"<th>([^<]+)", table) == ["panel", "arm", "macro", "micro", "episodes"]
    row = re.search(r"<tr><td>seen</td><td>SEED from θ_sft</td>(.*?)</tr>", table)[1]
    assert re.findall(r"<td>([^<]+)", row) == ["0.500", "0.500", "4"]


def test_macro_and_micro_that_are_one_number_are_said_to_be(full, tmp_path):
    """The panels of the fake runs have two tasks of each of two types."""
    differences = own(full).split("<h3>Differences</h3>")[1].split("</table>")[0]
    assert "Panel seen and unseen: every task type has equally many episodes, so that macro and micro are one number there." in own(full)
    assert set(re.findall(r"<td>(macro = micro|macro|micro)</td>", differences)) == {"macro = micro"}

    uneven = {"GRPO": [fake_run(tmp_path / "g", config("seed/no-opd"), success=0.25)], "SEED": [fake_run(tmp_path / "s", success=0.5)]}
    for [run] in uneven.values():
        summary = run / "eval" / "000002" / "summary.json"
        content = json.loads(summary.read_text())
        next(iter(content["panels"]["seen"]["by_type"].values()))["episodes"] += 1
        summary.write_text(json.dumps(content))
    text = own(write_report(uneven, tmp_path / "r.html", title="t").read_text(encoding="utf-8"))
    differences = text.split("<h3>Differences</h3>")[1].split("</table>")[0]
    assert "Panel unseen: every task type" in text
    assert re.findall(r"<td>(?:seen|unseen)</td><td>([^<]+)</td>", differences) == ["macro", "micro", "macro = micro"]


def test_a_missing_arm_is_named_and_the_rest_is_shown(arms, tmp_path):
    some = {"SEED from θ_sft": arms["SEED from θ_sft"], "GRPO from θ_sft": [tmp_path / "gone"]}
    text = own(write_report(some, tmp_path / "r.html", title="t").read_text(encoding="utf-8"))
    assert f"Not shown: GRPO from θ_sft: {tmp_path / 'gone'} is not a folder" in text
    assert "There is no verdict on SEED against GRPO: no arm of GRPO" in text and "no readable run" in text and "Anything about GRPO from θ_sft" in text


@pytest.mark.parametrize(
    "options, says",
    [
        ({"evaluated": False}, "No run has been evaluated yet"),
        ({"accepted": False}, "never had an accepted skill"),
        ({"accepted": False}, "has no stored token with a teacher"),
        ({"stage1": False}, "No run here has a Stage 1"),
        ({"finish": False}, "the process ended without a word"),
    ],
)
def test_what_is_missing_is_said(tmp_path, options, says):
    run = fake_run(tmp_path / "run", **options)
    if not options.get("finish", True):
        status = run / "status.json"
        status.write_text(re.sub(r'"pid": \d+', '"pid": 999999999', status.read_text()))
    text = own(write_report({"SEED": [run]}, tmp_path / "r.html", title="t").read_text(encoding="utf-8"))
    assert says in text


def test_no_tokens_and_no_updates_are_empty_states(tmp_path):
    bare = fake_run(tmp_path / "bare", config(store={"tokens": "none"}))
    assert not list((bare / "updates").rglob("tokens.parquet"))
    text = own(write_report({"SEED": [bare]}, tmp_path / "a.html", title="t").read_text(encoding="utf-8"))
    assert text.count("has no stored token with a teacher") == 2
    new = fake_run(tmp_path / "new", config(stage2={"updates": 1}), evaluated=False, stage1=False)
    for name in ("metrics.jsonl",):
        (new / name).write_text("")
    shutil.rmtree(new / "updates")
    text = own(write_report({"SEED": [new]}, tmp_path / "b.html", title="t").read_text(encoding="utf-8"))
    assert "No run has finished an update yet" in text and "0 of 1" in text


def test_an_update_without_its_marker_is_named_and_its_run_left_out(tmp_path):
    run = fake_run(tmp_path / "run")
    (run / "updates" / "000001" / "DONE").unlink()
    text = own(write_report({"SEED": [run]}, tmp_path / "r.html", title="t").read_text(encoding="utf-8"))
    assert "Not shown" in text and "000001 has no DONE" in text


def test_a_damaged_table_is_shown_as_a_warning(tmp_path):
    run = fake_run(tmp_path / "run")
    (run / "updates" / "000001" / "tokens.parquet").write_bytes(b"PAR1")
    text = own(write_report({"SEED": [run]}, tmp_path / "r.html", title="t").read_text(encoding="utf-8"))
    assert text.count("tokens.parquet") >= 2 and 'class="warn"' in text


def test_no_arm_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one arm"):
        write_report({}, tmp_path / "r.html", title="t")


def test_commands_report_and_compare(arms, tmp_path, capsys):
    folders = [str(p) for name in ("SEED from θ_sft", "GRPO from θ_sft") for p in arms[name]]
    assert main(["report", *folders, "--out", str(tmp_path / "r.html")]) == 0
    assert "SEED from θ_sft (2), GRPO from θ_sft (2)" in capsys.readouterr().out and (tmp_path / "r.html").exists()
    assert main(["compare", *folders]) == 0
    assert "SEED from θ_sft does not beat GRPO from θ_sft here" in capsys.readouterr().out
    assert main(["compare", str(tmp_path)]) == 2
