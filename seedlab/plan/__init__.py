"""What a run will need before it starts: memory, tokens, FLOPs, disk and time.  No downloads; torch for the tiny policy only,
whose tokenizer has to be built to be counted.

`make_plan(cfg)` computes, `seedlab.plan.report` prints, docs/plan.md explains every formula.
"""

from seedlab.plan.compute import Plan, make_plan
from seedlab.plan.memory import Part, PhaseMemory
from seedlab.plan.shapes import MODELS, ModelShape, shape_of
from seedlab.plan.work import Assumptions, Device, DEVICES

__all__ = ["Assumptions", "DEVICES", "Device", "MODELS", "ModelShape", "Part", "PhaseMemory", "Plan", "make_plan", "shape_of"]
