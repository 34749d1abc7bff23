"""What a later link of a run needs and this machine lacks is refused before the first link works."""

import importlib.util
import sys

import pytest

from seedlab.config.presets import load_config
from seedlab.errors import UserError
from seedlab.train import missing_parts
from seedlab.train import run as run_module
from seedlab.train.missing_parts import refuse_missing_parts
from seedlab.train.run import train

NEEDS = {
    "cluster.generator=vllm": ("vllm", "cluster.generator=vllm needs vLLM", "base"),
    "cluster.sft_zero_stage=2": ("deepspeed", "cluster.sft_zero_stage needs DeepSpeed", "labels"),
    "model.lora_rank=4": ("peft", "model.lora_rank needs the package peft", "sft"),
    "external.kind=openai": ("", "external.api_key_env names SEEDLAB_TEST_KEY, which is not set", "rollouts"),
}


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine without the optional packages, without the key, and with an empty cache in which nothing may be made."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in ("vllm", "deepspeed") else found(name, *rest))
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.delenv("SEEDLAB_TEST_KEY", raising=False)
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run_module, "_phases", lambda *a: pytest.fail("the work began"))


def settings(key):
    return load_config("micro", [key, "external.api_key_env=SEEDLAB_TEST_KEY"])


@pytest.mark.parametrize("key", NEEDS)
def test_it_is_refused_before_a_folder_is_made(key, tmp_path):
    with pytest.raises(UserError, match=NEEDS[key][1]):
        train(settings(key), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", NEEDS)
def test_a_run_that_ends_before_the_link_may_do_without(key):
    refuse_missing_parts(settings(key), NEEDS[key][2])


@pytest.mark.parametrize("key", ["cluster.sft_zero_stage=2", "external.kind=openai"])
def test_what_the_cache_has_needs_neither_package_nor_key(key, monkeypatch):
    monkeypatch.setattr(missing_parts, "is_built", lambda key: True)
    refuse_missing_parts(settings(key), "evaluation")


def test_the_analyzer_of_stage_2_needs_its_key_too(tmp_path):
    cfg = load_config("micro", ["method=opid", "external.kind=openai", "external.api_key_env=SEEDLAB_TEST_KEY"])
    assert cfg.initial == "base"
    with pytest.raises(UserError, match="external.api_key_env names SEEDLAB_TEST_KEY, which is not set"):
        train(cfg, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    refuse_missing_parts(cfg, "sft")


def test_a_key_that_is_there_is_enough(monkeypatch):
    monkeypatch.setenv("SEEDLAB_TEST_KEY", "k")
    refuse_missing_parts(settings("external.kind=openai"), "evaluation")
