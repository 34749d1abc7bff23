"""What every section of a configuration is, and types that several of them share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Decay = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """Base of every section: immutable; an unknown key, an infinity and a NaN are errors (JSON could not carry them)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
