"""What a minimax problem may know of the data before it is built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from decentral_dp.models.protocol import Model


class MinimaxFacts(NamedTuple):
    """What a minimax problem may know of the data before it is built: public numbers and the scenario's own options.

    options: key of the [problem] table → value, of those that the entry reads and the scenario gives. shares: of the
    classes in the data as they were made, where a construction declares them. device: "cpu" or "cuda". seed: public,
    for weights that are drawn. root: where relative paths start. l2: bound on ‖a‖₂ of every possible record, None where
    nothing bounds it. trajectory: (L, d) where records are trajectories, as in `Dataset`. clip: of the gradients by x
    and y, where the scenario gives some and anything is clipped.
    """

    n_features: int
    n_classes: int
    options: Mapping[str, Any]
    image: tuple[int, int, int] | None = None
    seed: int = 0
    device: str = "cpu"
    root: Path = Path()
    l2: float | None = None
    trajectory: tuple[int, int] | None = None
    clip: Mapping[str, float] = MappingProxyType({})


def model_of(facts: MinimaxFacts, outputs: int) -> Model:
    """The model that problem.model names: linear where it names none."""
    from decentral_dp.models.build import build_model

    table, seed = facts.options.get("model"), facts.seed
    return build_model(table, facts.n_features, outputs, facts.image, seed, facts.device, facts.root)
