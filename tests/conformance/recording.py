"""Where the recorded walks are, and the arguments that they were recorded with."""

from pathlib import Path

REFERENCE = Path(__file__).with_name("official_reference.jsonl")
RECORDED = ("--generated", 6, "--length", 15, "--walks", "walkthrough,random,junk,mixed")
