"""The runs that ship with the notebooks; read only."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "runs" / "example"
