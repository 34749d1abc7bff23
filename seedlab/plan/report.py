"""A plan as text with its arithmetic, and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from seedlab.plan.compute import Plan
from seedlab.plan.memory import GB, Part


def as_dict(plan: Plan) -> dict:
    """Bytes, tokens, FLOPs and seconds as numbers, for scripts."""
    return {
        "preset": plan.cfg.preset, "method": plan.cfg.method, "parameters": plan.shape.parameters, "world_size": plan.cfg.cluster.world_size,
        "device": plan.device.name if plan.device else None, "assumed": asdict(plan.assumed), "fits": plan.fits,
        "gpu_bytes": plan.capacity, "refusals": list(plan.refusals), "notes": list(plan.notes),
        "memory": {phase.name: {"total": phase.total, "parts": {p.name: p.bytes for p in phase.parts}} for phase in plan.memory},
        "host": {p.name: p.bytes for p in plan.host}, "disk": {p.name: p.bytes for p in plan.disk},
        "work": {w.name: {"times": w.times, "tokens": w.tokens, "flops": w.flops, "seconds": w.seconds} for w in plan.work},
        "seconds": plan.seconds,
    }


def as_text(plan: Plan) -> str:
    cfg, cluster = plan.cfg, plan.cfg.cluster
    lines = [f"{cfg.preset} with method {cfg.method}: {cfg.model.path}, {plan.shape.parameters:,} parameters, engine {cfg.engine}, "
             f"{cluster.nodes} x {cluster.gpus} {'GPU' if cfg.model.device == 'cuda' else 'process'}{'' if cluster.world_size == 1 else 's'}"]  # fmt: skip
    lines += [f"NOTE: {text}" for text in (*plan.refusals, *plan.notes)]
    lines += ["", f"Memory of one {'GPU' if plan.capacity else 'process'}, by what is there at the same time"]
    for phase in plan.memory:
        verdict = "" if plan.capacity is None else f" of {plan.capacity / GB:g} GB" + ("" if phase.total <= plan.capacity else "   DOES NOT FIT")
        lines += ["", f"  {phase.name}: {_size(phase.total)}{verdict}", *_parts(phase.parts)]
    if plan.host:
        lines += ["", "Memory of the machine itself", *_parts(plan.host)]
    lines += ["", "Disk", *_parts(plan.disk), f"    {_size(sum(p.bytes for p in plan.disk)):>10}  in all"]
    lines += ["", _assumptions(plan), "", "Work"]
    lines.append(f"    {'phase':<25} {'times':>5} {'tokens each':>12} {'FLOPs each':>11} {'time each':>10} {'in all':>9}")
    for w in plan.work:
        each, total = _time(w.seconds), _time(None if w.seconds is None else w.times * w.seconds)
        lines.append(f"    {w.name:<25} {w.times:>5} {w.tokens:>12,.0f} {w.flops:>11.2e} {each:>10} {total:>9}")
        lines.append(f"    {'':<25} {w.how}")
    if plan.seconds is not None:
        lines.append(f"    about {_time(plan.seconds)} in all on {cluster.world_size} x {plan.device.name}, without loading, environments and waiting")
    return "\n".join(lines)


def _assumptions(plan: Plan) -> str:
    a = plan.assumed
    text = (
        f"Assumed means (replace them by measured ones): {a.steps:g} steps of an episode, {a.prompt:,.0f} prompt tokens, "
        f"{a.response:,.0f} sampled tokens and {a.observation:,.0f} observation tokens of a step, {a.skill:,.0f} tokens of a skill."
    )
    if plan.device is None:
        return text + " No times: name a device with --device."
    return text + (
        f"\nTimes: {plan.device.flops / 1e12:g} TFLOP/s x {a.flops_efficiency:g} for reading, scoring and training; weights and cached keys over "
        f"{plan.device.bandwidth / 1e12:g} TB/s x {a.bandwidth_efficiency:g} for each sampled token ({plan.device.source}). The two efficiencies are guesses."
    )


def _parts(parts: tuple[Part, ...]) -> list[str]:
    return [f"    {_size(p.bytes):>10}  {p.name}: {p.how}" for p in parts]


def _size(count: float) -> str:
    return f"{count / GB:,.2f} GB" if count >= 1e8 else f"{count / 1e6:,.2f} MB"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
