"""Variables that every process runs under."""

import os
import subprocess
import sys

from seedlab.config.runtime import allocator_settings, child_environment


def test_old_glibc_gets_the_largest_threshold_it_accepts():
    assert allocator_settings(("glibc", "2.36"))["MALLOC_MMAP_THRESHOLD_"] == "1073741824"
    assert allocator_settings(("glibc", "2.34"))["MALLOC_MMAP_THRESHOLD_"] == "33554432"
    assert allocator_settings(("", "")) == {}


def test_what_the_caller_sets_stays():
    environment = child_environment({"OMP_NUM_THREADS": "3", "PATH": "/bin"}, threads=2)
    assert (environment["OMP_NUM_THREADS"], environment["MKL_NUM_THREADS"], environment["PATH"]) == ("3", "2", "/bin")


def test_the_default_is_this_process():
    assert child_environment().items() >= dict(os.environ).items()


def test_the_module_prints_what_env_understands():
    done = subprocess.run([sys.executable, "-m", "seedlab.config.runtime"], capture_output=True, text=True, check=True)
    pairs = dict(pair.split("=") for pair in done.stdout.split())
    assert pairs == child_environment({})
    assert pairs["OMP_NUM_THREADS"] == "1"
