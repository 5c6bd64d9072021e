"""Types of the values of a scenario, and what all its tables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
)

from decentral_dp.errors import printable

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


Finite = Annotated[float, Field(allow_inf_nan=False)]


# What is counted fits into 64 bits with room for products, and seeds into 64 bits.
LARGEST_COUNT = 10**12
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]


# Beyond it what decays is zero, or infinite where it divides, after a few rounds.
Decay = Annotated[float, Field(ge=0, le=100)]


Share = Annotated[float, Field(gt=0, lt=1)]
# Longer than a day nobody waits.
Seconds = Annotated[float, Field(ge=0.0, le=86_400.0, allow_inf_nan=False)]
# A title, on terminals, pages and pictures.
Line = Annotated[str, AfterValidator(printable)]


Seed = Annotated[int, Field(ge=0, lt=2**63)]


# Beyond these a target says nothing, and solving for it would meet the ends of float64.
Target = Annotated[float, Field(ge=1e-9, le=1e5)]


Channel = Literal["x", "y", "z"]


class Table(BaseModel):
    """A table of a scenario: no unknown keys, no silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def require_keys(table: Table, noun: str, needed: Sequence[str], taken: Sequence[str], known: Sequence[str]) -> None:
    """Check which keys a table of one kind has, among those that only some kinds take.

    Args:
        table: with a `kind`.
        noun: what it is, in a refusal.
        needed: keys that this kind cannot do without.
        taken: keys that it may have, the needed ones included.
        known: those of all kinds.

    Raises:
        ValueError: a key that is missing, or is not taken.
    """
    for key in known:
        given = getattr(table, key) is not None
        if given and key not in taken:
            raise ValueError(f'a "{table.kind}"{noun} takes no {key}')  # type: ignore[attr-defined]
        if key in needed and not given:
            raise ValueError(f'a "{table.kind}"{noun} needs {key}')  # type: ignore[attr-defined]


def optional(description: str) -> Any:
    """Declare a key that may be left out, and is None then."""
    return Field(default=None, description=description)
