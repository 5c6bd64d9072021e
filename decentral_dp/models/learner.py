"""What training reads of a model: outputs, and sums of clipped gradients, of many agents at once.

No operation of a learner mixes two records, or two agents:

    outputs_of(weights, inputs)    φ (g, n, e) of records (g, n, d), or of (n, d) that all rows of weights (g, p) share
    clipped_sums(weights, inputs, cotangents, bound, norm)
                                   (g, p) Σ_k min(1, bound/‖∇ℓ_k‖) ∇ℓ_k, to the bit the same whoever else is among the
                                   g; a record whose gradient is not finite counts as zero
    named_weights(weights)         weights (p,) of one agent by the names that torch has for the same layers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.models.protocol import Model, Slope

if TYPE_CHECKING:
    from decentral_dp.models.dense import DenseLayers

Learner: TypeAlias = "DenseLayers | OneByOne"
Cotangents = Callable[[slice, slice, Array], Array]
"""Agents, records of each, outputs (g, n, e) of these → ∂ℓ/∂outputs (g, n, e)."""


@dataclass(frozen=True)
class OneByOne:
    """A model that is evaluated agent after agent. model: clips in l2. description: how sentences call it."""

    model: Model
    description: str
    norms: tuple[Norm, ...] = ("l2",)

    @property
    def p(self) -> int:
        return self.model.p

    @property
    def outputs(self) -> int:
        return self.model.outputs

    @property
    def cells(self) -> int:
        return self.model.cells

    @property
    def start(self) -> Array:
        return self.model.start

    def outputs_of(self, weights: Array, inputs: Array) -> Array:
        each = np.broadcast_to(inputs, (len(weights), *inputs.shape[-2:]))
        return np.stack([self.model.forward(w, rows, keep=False)[0] for w, rows in zip(weights, each, strict=True)])

    def named_weights(self, weights: Array) -> dict[str, Array]:
        return self.model.named_weights(weights)

    def clipped_sums(self, weights: Array, inputs: Array, cotangents: Cotangents, bound: float, norm: Norm) -> Array:
        total, n = np.empty_like(weights), inputs.shape[1]
        none = np.zeros((n, 0))
        with np.errstate(all="ignore"):
            for k, (w, rows) in enumerate(zip(weights, inputs, strict=True)):
                outputs, tape = self.model.forward(w, rows)
                slopes = cotangents(slice(k, k + 1), slice(0, n), outputs[None])[0]
                total[k] = self.model.clipped_sum(Slope(tape, slopes), none, bound)[0]
        return total
