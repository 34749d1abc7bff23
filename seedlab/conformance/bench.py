"""Both engines on the same games and commands: steps per CPU second, loading, reset, clone and memory.

CPU seconds are those of the process that plays: ours in this process, the official engine's in its own, each counted
around the calls alone.  A step includes the list of admissible commands on both sides.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence

import psutil

from seedlab.conformance.sources import Source
from seedlab.conformance.walks import Walker
from seedlab.envs.household.engine import Household
from seedlab.envs.household.export import Rules
from seedlab.envs.textworld.client import OfficialProcess

LEAST_CPU_S = 0.5  # our engine's parts are repeated for this long
_LIMIT = 10**9


def measure(sources: Sequence[Source], *, length: int, environments: int, official: bool) -> dict:
    """Figures of one run; `official` is None in the row where the official engine was not asked for."""
    worlds = [source.open()[0] for source in sources]
    walks = [_walk(source, world, length) for source, world in zip(sources, worlds)]
    row = {
        "schema_version": 1, "machine": _machine(), "count": len(sources), "length": length,
        "household": _household(sources, worlds, walks, environments),
        "official": _official(sources, walks, memoise=False) if official else None,
        "official_memoised": _official(sources, walks, memoise=True) if official else None,
    }  # fmt: skip
    for name in ("official", "official_memoised"):
        if row[name]:
            row[name]["times_slower"] = row["household"]["steps_per_cpu_s"] / row[name]["steps_per_cpu_s"]
    return row


def _walk(source: Source, world, length: int) -> list[str]:
    env = Household(world, source.name, _LIMIT, 1.0)
    walker, commands = Walker(source.key, "random", 0, length, ()), []
    while not env.done and (command := walker.next(env.admissible())) is not None:
        env.step(command)
        commands.append(command)
    return commands


def _cpu_per_call(call: Callable[[], int]) -> float:
    """CPU seconds per unit; `call` does some units of work and says how many."""
    units, start = 0, time.process_time()
    while (spent := time.process_time() - start) < LEAST_CPU_S:
        units += call()
    return spent / units


def _household(sources, worlds, walks, environments: int) -> dict:
    envs = [Household(world, source.name, _LIMIT, 1.0) for source, world in zip(sources, worlds)]

    def play() -> int:
        for env, walk in zip(envs, walks):
            env.reset()
            env.admissible()
            for command in walk:
                env.step(command)
                env.admissible()
        return sum(map(len, walks))

    def reset() -> int:
        for env in envs:
            env.reset()
            env.admissible()
        return len(envs)

    def clone() -> int:
        for env in envs:
            env.clone()
        return len(envs)

    loads = []
    for source in sources:
        start = time.process_time()
        source.open()
        loads.append(time.process_time() - start)
    step, again, copy = _cpu_per_call(play), _cpu_per_call(reset), _cpu_per_call(clone)
    process = psutil.Process()
    before = process.memory_info().rss
    held = []
    for number in range(environments):  # in the middle of an episode, where states have parted
        env = envs[number % len(envs)].clone()
        for command in walks[number % len(envs)][: number % 8]:
            if not env.done:
                env.step(command)
        held.append(env)
    used = process.memory_info().rss - before
    return {
        "steps_per_cpu_s": 1 / step, "load_ms": 1e3 * statistics.mean(loads), "load_ms_most": 1e3 * max(loads),
        "reset_us": 1e6 * again, "clone_us": 1e6 * copy, "environments": len(held), "kb_per_environment": used / 1024 / len(held),
        "processes": 1,
    }  # fmt: skip


def _official(sources: Sequence[Source], walks, *, memoise: bool) -> dict:
    process = OfficialProcess(300.0, memoise)
    load = reset = step = steps = 0
    try:
        process.task = "benchmark"
        found = process.ask("rules")
        for source, walk in zip(sources, walks):
            process.task = source.name
            load += process.ask("load", game=source.official(lambda: Rules(found["domain"], found["grammar"])))["cpu_s"]
            reset += process.ask("reset")["cpu_s"]
            for command in walk:
                step += process.ask("step", command=command)["cpu_s"]
            steps += len(walk)
        peak = process.ask("usage")["peak_kb"]
    finally:
        process.close()
    return {
        "steps_per_cpu_s": steps / step, "load_ms": 1e3 * load / len(sources), "reset_us": 1e6 * reset / len(sources),
        "kb_per_environment": peak, "processes": "one per environment",
    }  # fmt: skip


def _machine() -> dict:
    return {
        "cores": os.cpu_count(), "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def bench_text(row: dict) -> str:
    """The figures as a table, engines as columns."""
    engines = {"ours": row["household"], "official": row["official"], "official, memoised": row["official_memoised"]}
    engines = {name: figures for name, figures in engines.items() if figures}
    lines = [f"{row['games']}: {row['count']} games, {row['length']} random admissible commands each"]
    lines.append(f"{'':<34}" + "".join(f"{name:>20}" for name in engines))
    for key, title in (
        ("steps_per_cpu_s", "steps per CPU second"), ("load_ms", "loading a game, CPU ms"), ("load_ms_most", "  the slowest of them"),
        ("reset_us", "reset, CPU µs"), ("clone_us", "clone, CPU µs"), ("kb_per_environment", "memory per environment, KB"),
        ("times_slower", "times slower than ours"),
    ):  # fmt: skip
        lines.append(f"{title:<34}" + "".join(f"{f'{figures[key]:,.1f}' if key in figures else '-':>20}" for figures in engines.values()))
    machine = row["machine"]
    lines.append(
        f"{row['household']['environments']} environments of ours were held in one process; the official engine has a process each. "
        f"{machine['cores']} cores, {machine['memory_gb']} GB, load average {machine['load_average']}"
    )
    return "\n".join(lines)
