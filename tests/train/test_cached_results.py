"""Results that runs share: complete or absent, built once, named by what made them."""

import multiprocessing

import pytest

from seedlab.train.cached import build_once, cache_root, content_key


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_root_is_the_environment_s_or_the_user_s(cache, monkeypatch):
    assert cache_root() == cache
    monkeypatch.delenv("SEEDLAB_CACHE")
    assert cache_root().parts[-2:] == (".cache", "seedlab")


def test_a_key_follows_every_part(cache):
    base = content_key("k", a=1, b={"x": [1, 2]})
    assert base == content_key("k", b={"x": [1, 2]}, a=1)
    assert base.startswith("k-")
    assert len({base, content_key("k", a=2, b={"x": [1, 2]}), content_key("k", a=1, b={"x": [2, 1]}), content_key("j", a=1, b={"x": [1, 2]})}) == 4


def test_a_result_is_built_once(cache):
    built = []

    def build(folder):
        built.append(folder)
        (folder / "file").write_text("content")

    assert build_once("k", build) == build_once("k", build) == cache / "k"
    assert len(built) == 1
    assert (cache / "k" / "file").read_text() == "content"


def test_a_failed_build_leaves_no_result_and_the_next_starts_clean(cache):
    def fails(folder):
        (folder / "half").write_text("x")
        raise RuntimeError("died")

    with pytest.raises(RuntimeError):
        build_once("k", fails)
    assert not (cache / "k").exists()
    build_once("k", lambda folder: (folder / "whole").write_text("y"))
    assert [p.name for p in (cache / "k").iterdir()] == ["whole"]


def _build(cache, number, results):
    import os
    import time

    os.environ["SEEDLAB_CACHE"] = cache

    def build(folder):
        (folder / "who").write_text(str(number))
        time.sleep(0.2)

    results.put((build_once("k", build) / "who").read_text())


def test_two_processes_that_want_the_same_result_build_it_once(cache):
    context = multiprocessing.get_context("forkserver")
    results = context.Queue()
    processes = [context.Process(target=_build, args=(str(cache), i, results)) for i in range(3)]
    for process in processes:
        process.start()
    found = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(found) == 1
    results.close()
    results.join_thread()
