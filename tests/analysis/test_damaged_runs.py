"""Files of a run folder that were cut, edited or half copied: every reader names the file and the field, none gives up with a traceback."""

import json
import shutil

import pytest
from fake_run import fake_run

from seedlab.cli.main import main
from seedlab.views.watch_state import Watcher


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return fake_run(tmp_path_factory.mktemp("sound") / "run")


def first_row(change):
    def apply(text):
        first, *rest = text.splitlines(keepends=True)
        row = json.loads(first)
        change(row)
        return "".join([json.dumps(row) + "\n", *rest])

    return apply


def at(*path, value="gone"):
    """The JSON with the field at `path` set, or taken out."""

    def apply(text):
        content = json.loads(text)
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        if value == "gone":
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        return json.dumps(content)

    return apply


DAMAGE = {
    "metrics: not JSON": ("metrics.jsonl", lambda t: "hello\n" + t, "line 1 is damaged"),
    "metrics: last line cut": ("metrics.jsonl", lambda t: t[:-30], "its last line is cut"),
    "metrics: no update": ("metrics.jsonl", first_row(lambda row: row.pop("update")), "line 1 is damaged: it lacks update"),
    "metrics: text for a number": ("metrics.jsonl", first_row(lambda row: row.update({"rollout/success": "x"})), "rollout/success is 'x'"),
    "metrics: twice": ("metrics.jsonl", lambda t: t.splitlines(True)[0] + t, "update 0 stands out of order or twice"),
    "DONE: cut": ("updates/000001/DONE", lambda t: t[:10], "DONE is damaged"),
    "DONE: no rows": ("updates/000001/DONE", at("rows"), "it lacks rows"),
    "DONE: rows of another kind": ("updates/000001/DONE", at("rows", value=3), "rows is 3"),
    "DONE: of another update": ("updates/000001/DONE", at("update", value=7), "it is of update 7"),
    "summary: no panels": ("eval/000002/summary.json", at("panels"), "it lacks panels"),
    "summary: impossible success": ("eval/000002/summary.json", at("panels", "seen", "success_macro", value=7.5), "panel seen is damaged: success_macro is 7.5"),
    "summary: no hash": ("eval/000002/summary.json", at("panels", "seen", "panel_hash"), "it lacks panel_hash"),
    "summary: counts": ("eval/000002/summary.json", at("panels", "seen", "by_type", value={"a": 1}), "by_type"),
    "manifest: panels": ("manifest.json", at("panels", value=[1]), "panels is [1]"),
    "manifest: hash": ("manifest.json", at("config_hash", value=None), "config_hash is None"),
    "status: heartbeat": ("status.json", at("heartbeat", value="now"), "heartbeat is 'now'"),
    "status: pid": ("status.json", at("pid", value=[1]), "pid is [1]"),
    "status: links": ("status.json", at("links", value=[{"name": 3}]), "link 0 is damaged"),
    "stage1: list": ("stage1/stage1.json", lambda t: "[1]", "stage1.json is damaged"),
    "stage1: no verdicts": ("stage1/stage1.json", at("reasons"), "it lacks reasons"),
    "config: cut": ("config.json", lambda t: t[:40], "config.json"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_reader_names_the_file_and_the_fault(sound, tmp_path, capsys, damage):
    name, change, says = DAMAGE[damage]
    run = tmp_path / "run"
    shutil.copytree(sound, run)
    (run / name).write_text(change((run / name).read_text()))
    code, said = main(["check", str(run)]), capsys.readouterr()
    assert code in (1, 2) and name.rpartition("/")[2] in said.out + said.err and says in said.out + said.err
    for command in ("compare", "jobs"):
        code, said = main([command, str(run)]), capsys.readouterr()
        if command == "compare" and name.split("/")[0] in ("metrics.jsonl", "config.json", "updates", "eval", "stage1"):
            assert code in (1, 2) and says in said.out + said.err
    state = Watcher(run).read()
    if name.split("/")[0] in ("status.json", "eval", "config.json") or name == "metrics.jsonl" and "cut" not in damage and "twice" not in damage:
        assert any(says in problem for problem in state.problems), state.problems


@pytest.mark.parametrize("gone", ["updates/000001/DONE", "eval/000002/summary.json", "manifest.json", "updates/000001/steps.parquet"])
def test_a_file_that_is_gone_is_found(sound, tmp_path, capsys, gone):
    shutil.copytree(sound, tmp_path / "run")
    (tmp_path / "run" / gone).unlink()
    assert main(["check", str(tmp_path / "run")]) == 1
    assert gone.rpartition("/")[2] in capsys.readouterr().out


def test_a_line_that_a_killed_writer_left_half_is_no_damage(sound, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(sound, run)
    (run / "status.json").write_text(at("state", value="interrupted")((run / "status.json").read_text()))
    with open(run / "metrics.jsonl", "a") as out:
        out.write('{"schema_version": 1, "upd')
    assert main(["compare", str(run)]) == 0
