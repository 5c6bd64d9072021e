"""Models by name, from the table problem.model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decentral_dp.problems.models.linear import Linear
from decentral_dp.problems.models.protocol import Model


def build_model(
    table: Mapping[str, Any] | None,
    n_features: int,
    outputs: int,
    image: tuple[int, int, int] | None,
    seed: int,
    device: str,
) -> Model:
    """The model, its weights drawn from the public seed where they are drawn."""
    return Linear(n_features, outputs)
