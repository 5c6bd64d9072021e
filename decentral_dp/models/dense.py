"""Dense layers of many agents at once, with per-example gradients that are clipped without being formed.

With a₀ the record, h_l = A_l a_{l−1} + γ b_l, a_l = max(0, h_l) except for the last, and δ_l = ∂ℓ/∂h_l, the per-example
gradient with respect to (A_l, b_l) is the outer product δ_l (a_{l−1}, γ)ᵀ. Hence (Goodfellow 2015, for ℓ2)

    ‖gradient‖₂² = Σ_l ‖δ_l‖₂² (‖a_{l−1}‖₂² + γ²),          ‖gradient‖₁ = Σ_l ‖δ_l‖₁ (‖a_{l−1}‖₁ + γ),

and the sum of clipped gradients is one product per layer and agent. Products are taken agent by agent
(`numpy.matmul` of stacked matrices), so that the bits of an agent's sum do not depend on agents in the same block.

In a linear model with one output the gradients with respect to A and b may be clipped separately, to √(1 − s²) C and s
C in ℓ2, and to (1 − s) C and s C in ℓ1, so that the norm of the whole gradient is at most C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, TypeAlias

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.data.dataset import public_generator
from decentral_dp.models.linear_terms import (
    Joined,
    Rows,
    clip_coefficients,
    forward_and_sizes,
    spread,
    tiles,
    weighted_sums,
)
from decentral_dp.models.protocol import UNDERFLOW, Cotangents, norm_sums
from decentral_dp.privacy.clipping import clip_factors

# Added to slopes in denominators, so that `UNDERFLOW` over a slope of 0 stays finite.
_LEAST_SLOPE = 1e-300


def rest_of_clip(share: float, norm: Norm) -> float:
    """Return the fraction of a clipping norm that remains after a fraction s is used: √(1 − s²) in ℓ2, 1 − s in ℓ1."""
    return 1.0 - share if norm == "l1" else math.sqrt(1.0 - share * share)


# Views of the weights of one layer of g agents: rows of A (g, o, i), and b (g, o).
_Views: TypeAlias = tuple[Array, Array]


@dataclass(frozen=True)
class DenseLayers:
    """Dense layers with ReLU between them, or a linear model if there are no hidden layers.

    Args:
        widths: widths (d, hidden widths …, e). Weights are, layer by layer, the rows of A (o, i) and then b (o,).
        gain: public factor by which features are multiplied, default 1. Named weights are for unscaled features.
        bias: constant feature γ of every layer, default 1. A smaller value leaves more of the clipping norm to the
            features.
        seed: public seed of the random start of hidden layers.
    """

    widths: tuple[int, ...]
    gain: float = 1.0
    bias: float = 1.0
    seed: int = 0

    @property
    def p(self) -> int:
        """Number of weights."""
        return sum(o * (i + 1) for i, o in pairwise(self.widths))

    @property
    def outputs(self) -> int:
        return self.widths[-1]

    @property
    def cells(self) -> int:
        return 2 * sum(self.widths)

    norms: ClassVar[tuple[Norm, ...]] = ("l1", "l2")

    @property
    def description(self) -> str:
        return "a linear model" if len(self.widths) == 2 else "a network of dense layers"

    @property
    def start(self) -> Array:
        """Public start, (p,): zeros for a linear model, otherwise A from N(0, 2/fan-in), b = 0 and last layer 0."""
        out, draw = np.zeros(self.p), public_generator(self.seed, "dense")
        for layer, _ in self._layers(out[None])[:-1]:
            layer[:] = draw.normal(size=layer.shape) * math.sqrt(2.0 / layer.shape[2])
        return out

    def outputs_of(self, weights: Array, inputs: Array) -> Array:
        with np.errstate(all="ignore"):
            return self._activations(self._layers(weights), inputs)[-1]

    def unit_norms(self, weights: Array, inputs: Array, norm: Norm) -> Array:
        """Return ‖∇φ‖ of every record, (g, n), with φ the sum of several outputs. For arguments see `outputs_of`."""
        with np.errstate(all="ignore"):
            layers = self._layers(weights)
            activations = self._activations(layers, inputs)
            return self._norms(self._slopes(layers, activations, np.ones_like(activations[-1])), activations, norm)

    def named_weights(self, weights: Array) -> dict[str, Array]:
        """Return "weight" (o, i) and "bias" (o,) of every layer, with gain and γ multiplied in.

        The names are those of `torch.nn.Linear`, or of a `torch.nn.Sequential` with a ReLU between layers.
        """
        layers, out = self._layers(np.asarray(weights, dtype=np.float64)[None]), {}
        for k, (by_rows, bias) in enumerate(layers):
            start = "" if len(layers) == 1 else f"{2 * k}."
            out[f"{start}weight"] = by_rows[0] * (self.gain if k == 0 else 1.0)
            out[f"{start}bias"] = bias[0] * self.bias
        return out

    def clipped_sums(
        self,
        weights: Array,
        inputs: Rows,
        cotangents: Cotangents,
        bound: float,
        norm: Norm,
        whole: float = 0.0,
        centre: Array | None = None,
        share: float = 0.0,
    ) -> Array:
        """Sum the clipped per-example gradients of each agent, (g, p).

        Args:
            weights: weights, (g, p).
            inputs: records (g, n, d), or joined records for a linear model with one output and no centre.
            cotangents: function of agents, records and outputs that returns ∂ℓ/∂φ.
            bound: clipping norm.
            norm: norm "l1" or "l2".
            whole: slope ‖∂ℓ/∂φ‖₁ below which the bound of a record decreases in proportion.
            centre: centre (g, d) that is subtracted from the records of an agent, in units of the inputs.
            share: fraction s, with which the gradients with respect to A and b of a linear model with one output are
                clipped separately; 0 clips them together.
        """
        if isinstance(inputs, Joined) or (self.widths[1:] == (1,) and centre is None and not share):
            return self._linear_sums(weights, inputs, cotangents, bound, norm, whole)
        total = np.empty((len(weights), self.p)) if inputs.shape[1] else np.zeros((len(weights), self.p))
        remaining_clip = rest_of_clip(share, norm)
        with np.errstate(all="ignore"):
            for agents, part in tiles(inputs.shape[0], inputs.shape[1], sum(self.widths)):
                layers, sums = self._layers(weights[agents]), self._layers(total[agents])
                part_centre = None if centre is None else centre[agents, None]
                activations = self._activations(layers, inputs[agents, part], part_centre)
                slopes = self._slopes(layers, activations, cotangents(agents, part, activations[-1]))
                if share:
                    # With one output |δ| max(1, whole/|δ|) = max(|δ|, whole).
                    size, by_features = np.maximum(np.abs(slopes[0][..., 0]), whole), norm_sums(activations[0], norm)
                    norms = size * ((np.sqrt(by_features) if norm == "l2" else by_features) + UNDERFLOW)
                    bias_factors = clip_factors(self.bias * size, share * bound)[..., None]
                else:
                    norms = self._norms(slopes, activations, norm)
                    if whole:
                        # A bound divided by u is a norm multiplied by u ≥ 1.
                        norms *= np.maximum(1.0, whole / (np.abs(slopes[-1]).sum(axis=2) + _LEAST_SLOPE))
                factors = clip_factors(norms, remaining_clip * bound)[..., None]
                finite = bool((factors > 0.0).all())
                for (by_rows, bias), slope, a in zip(sums, slopes, activations, strict=False):
                    clipped = slope * factors
                    if not finite:
                        # Zero times infinity is NaN: remove dropped records before the product.
                        clipped, a = np.where(factors > 0.0, clipped, 0.0), np.where(factors > 0.0, a, 0.0)
                    by_bias = clipped
                    if share:
                        by_bias = slope * bias_factors
                        if not finite:
                            by_bias = np.where(bias_factors > 0.0, by_bias, 0.0)
                    if part.start:
                        by_rows += np.matmul(clipped.swapaxes(1, 2), a)
                        bias += self.bias * by_bias.sum(axis=1)
                    else:
                        np.matmul(clipped.swapaxes(1, 2), a, out=by_rows)
                        np.multiply(self.bias, by_bias.sum(axis=1), out=bias)
        return total

    def _linear_sums(
        self, weights: Array, rows: Rows, cotangents: Cotangents, bound: float, norm: Norm, whole: float
    ) -> Array:
        """Compute `clipped_sums` of a linear model with one output, whose gradient is δ (a, γ)."""
        with np.errstate(all="ignore"):
            outputs, sizes = forward_and_sizes(rows, weights[:, :-1], norm)
            outputs += spread(self.bias * weights[:, -1:], rows)
            norms = (sizes + self.bias if norm == "l1" else np.sqrt(sizes + self.bias**2)) + UNDERFLOW
            slopes = cotangents(slice(None), slice(None), outputs[..., None])[..., 0]
            sums, bias_sums = weighted_sums(clip_coefficients(slopes, norms, bound, whole), rows)
            return np.concatenate([sums, self.bias * bias_sums[:, None]], axis=1)

    def _layers(self, weights: Array) -> list[_Views]:
        """Return views of every layer of weights (g, p): the rows of A and b."""
        out, offset = [], 0
        for i, o in pairwise(self.widths):
            end = offset + o * i
            out.append((weights[:, offset:end].reshape(-1, o, i), weights[:, end : end + o]))
            offset = end + o
        return out

    def _activations(self, layers: list[_Views], inputs: Array, centre: Array | None = None) -> list[Array]:
        """Return a_0, …, a_L, each (g, n, width), for inputs (g, n, d) or common (n, d), minus centre (g, 1, d)."""
        if inputs.ndim == 2:
            inputs = np.broadcast_to(inputs, (len(layers[0][1]), *inputs.shape))
        activations = [inputs if centre is None else inputs - centre]
        for k, (by_rows, bias) in enumerate(layers):
            h = np.matmul(activations[-1], by_rows.swapaxes(1, 2))
            h += self.bias * bias[:, None]
            activations.append(h if k + 1 == len(layers) else np.maximum(h, 0.0, out=h))
        return activations

    def _slopes(self, layers: list[_Views], activations: list[Array], last: Array) -> list[Array]:
        """Return δ_l (g, n, o) of every layer."""
        out = [last]
        for k in range(len(layers) - 1, 0, -1):
            slope = np.matmul(out[-1], layers[k][0])
            slope *= activations[k] > 0.0
            out.append(slope)
        return out[::-1]

    def _norms(self, slopes: list[Array], activations: list[Array], norm: Norm) -> Array:
        """Return upper bounds on the norms of per-example gradients, (g, n)."""
        total = np.zeros(slopes[0].shape[:2])
        for slope, a in zip(slopes, activations, strict=False):
            total += norm_sums(slope, norm) * (norm_sums(a, norm) + (self.bias if norm == "l1" else self.bias**2))
        return np.asarray((np.sqrt(total) if norm == "l2" else total) + UNDERFLOW)
