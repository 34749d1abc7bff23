"""What a check of `seedlab doctor` says."""

from __future__ import annotations

from dataclasses import dataclass

# its torch and transformers are others than the laptop's
CLUSTER_MEND = "conda env create --file environment.yml"


@dataclass(frozen=True)
class Check:
    """`status` is ok, absent (optional) or wrong (exit code 1); `mend` is a command or an instruction."""

    name: str
    status: str
    detail: str
    mend: str = ""
