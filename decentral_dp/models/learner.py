"""What training reads of a model: outputs, and sums of clipped gradients, of many agents at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.models.protocol import Model, Named, Slope

Cotangents = Callable[[slice, slice, Array], Array]
"""Agents, records of each, outputs (g, n, e) of these → ∂ℓ/∂outputs (g, n, e)."""


class Learner(Protocol):
    """A model with weights (p,) for every agent. No operation mixes two records, or two agents.

    p: number of weights. outputs: e. cells: float64 numbers that one record takes while it is evaluated. start: (p,)
    public weights to start from. norms: in which gradients can be clipped. description: how sentences call it.
    """

    @property
    def p(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def cells(self) -> int: ...
    @property
    def start(self) -> Array: ...
    @property
    def norms(self) -> tuple[Norm, ...]: ...
    @property
    def description(self) -> str: ...

    def outputs_of(self, weights: Array, inputs: Array) -> Array:
        """φ (g, n, e) of records (g, n, d), or of (n, d) that all rows of weights (g, p) share."""
        ...

    def named_weights(self, weights: Array) -> dict[str, Array]:
        """Weights (p,) of one agent by the names that torch has for the same layers, which read inputs as they are."""
        ...

    def clipped_sums(self, weights: Array, inputs: Array, cotangents: Cotangents, bound: float, norm: Norm) -> Array:
        """Sum the clipped gradients of each agent's records.

        Args:
            weights: (g, p).
            inputs: (g, n, d).
            cotangents: ∂ℓ/∂φ of some agents and records, from their outputs.
            bound: the largest norm of a record's gradient; one that is not finite counts as zero.
            norm: one of `norms`.

        Returns:
            (g, p) Σ_k min(1, bound/‖∇ℓ_k‖) ∇ℓ_k, to the bit the same whoever else is among the g.
        """
        ...


class LayerViews(NamedTuple):
    """Views of the weights of one layer of g agents. by_rows: (g, o, i). bias: (g, o)."""

    by_rows: Array
    bias: Array


def layer_views(weights: Array, widths: Iterable[tuple[int, int]]) -> list[LayerViews]:
    """Views of every layer of (g, p) weights, each the rows of A and then b. widths: (i, o) of every layer."""
    out, done = [], 0
    for i, o in widths:
        end = done + o * i
        out.append(LayerViews(weights[:, done:end].reshape(-1, o, i), weights[:, end : end + o]))
        done = end + o
    return out


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
        return self.model.named_weights(weights) if isinstance(self.model, Named) else {"weights": weights}

    def clipped_sums(self, weights: Array, inputs: Array, cotangents: Cotangents, bound: float, norm: Norm) -> Array:
        total, n = np.empty_like(weights), inputs.shape[1]
        none = np.zeros((n, 0))
        with np.errstate(all="ignore"):
            for k, (w, rows) in enumerate(zip(weights, inputs, strict=True)):
                outputs, tape = self.model.forward(w, rows)
                slopes = cotangents(slice(k, k + 1), slice(0, n), outputs[None])[0]
                total[k] = self.model.clipped_sum(Slope(tape, slopes), none, bound)[0]
        return total
