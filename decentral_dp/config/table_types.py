"""Types of the values of a scenario, and what all its tables have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


Finite = Annotated[float, Field(allow_inf_nan=False)]


Count = Annotated[int, Field(ge=1)]


Share = Annotated[float, Field(gt=0, lt=1)]


Seed = Annotated[int, Field(ge=0)]


# Beyond these a target says nothing, and solving for it would meet the ends of float64.
Target = Annotated[float, Field(ge=1e-9, le=1e5)]


Channel = Literal["x", "y", "z"]


class Table(BaseModel):
    """A table of a scenario: no unknown keys, no silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
