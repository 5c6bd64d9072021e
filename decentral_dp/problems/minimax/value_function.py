"""Value functions: V and its derivative along a direction, and their gradients trajectory by trajectory.

V(s; θ) is linear in (s, 1), or a stack of dense layers with tanh between them. With a_0 = s, z_k = W_k a_{k−1} + b_k,
a_k = tanh z_k and a direction ω whose layers are W'_k, b'_k, the derivative along ω is carried through the layers,

    z'_k = W'_k a_{k−1} + b'_k + W_k a'_{k−1},        a'_k = (1 − a_k²) z'_k,        a'_0 = 0,

and V' = z' of the last one is ⟨∇_θ V, ω⟩. The gradient of Σ_t (p_t V(s_t) + q_t V'(s_t)) is carried back: with P, Q for
its derivatives by z_k, z'_k,

    by W_k: Σ_t P aᵀ + Q a'ᵀ,   by b_k: Σ_t P,   by W'_k: Σ_t Q aᵀ,   by b'_k: Σ_t Q         (a, a' of layer k − 1)
    one layer down:  Q ← (1 − a²) ∘ Wᵀ Q,   P ← (1 − a²) ∘ (Wᵀ P + W'ᵀ Q − 2 a ∘ z' ∘ Wᵀ Q)    (Q before its change)

which has ∇²V ω in it, and forms no Hessian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import public_generator


class Layer(NamedTuple):
    """What the way back reads of one layer. a, along: a_{k−1} and a'_{k−1}, None for 0. turned: z'_k."""

    weights: Array
    weights_along: Array
    a: Array
    along: Array | None
    turned: Array


class Seen(NamedTuple):
    """values: V(s_t), slopes: V'(s_t), (…, T) each. layers: from first to last."""

    values: Array
    slopes: Array
    layers: list[Layer]


@dataclass(frozen=True)
class ValueFunction:
    """n_inputs: numbers of a state. hidden: units of each layer, none for a linear one.

    What stands before the axis of steps and the last one is a batch, whose members nothing mixes.
    """

    n_inputs: int
    hidden: tuple[int, ...] = ()

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each layer."""
        return list(pairwise([self.n_inputs, *self.hidden, 1]))

    @property
    def p(self) -> int:
        return sum((inputs + 1) * outputs for inputs, outputs in self.sizes)

    def start(self, seed: int) -> Array:
        """Zeros of a linear one; else drawn by the public seed, the last layer from N(0, 1/fan-in), its bias 0.

        Hidden layers are drawn from N(0, 4/fan-in) and their biases from N(0, 1/4), so that units bend at different
        places between −1 and 1: from smaller weights a network long stays as good as linear.
        """
        if not self.hidden:
            return np.zeros(self.p)
        draw, parts = public_generator(seed, "value function"), []
        for k, (inputs, outputs) in enumerate(self.sizes):
            last = k == len(self.hidden)
            parts.append((1.0 if last else 2.0) / np.sqrt(inputs) * draw.standard_normal(inputs * outputs))
            parts.append((0.0 if last else 0.5) * draw.standard_normal(outputs))
        return np.concatenate(parts)

    def seen(self, theta: Array, omega: Array, states: Array) -> Seen:
        """V and V' of states (…, T, d)."""
        a, along, layers = states, None, []
        pairs = zip(self._layers(theta), self._layers(omega), strict=True)
        for k, ((weights, bias), (weights_along, bias_along)) in enumerate(pairs):
            z, turned = a @ weights.T + bias, a @ weights_along.T + bias_along
            if along is not None:
                turned += along @ weights.T
            layers.append(Layer(weights, weights_along, a, along, turned))
            if k == len(self.hidden):
                return Seen(z[..., 0], turned[..., 0], layers)
            a = np.tanh(z)
            along = (1.0 - a * a) * turned
        raise ValueError("a value function has at least one layer")

    def penalised(self, seen: Seen, by_values: Array, by_slopes: Array) -> tuple[Array, Array]:
        """∇_θ and ∇_ω of Σ_t (p_t V(s_t) + q_t V'(s_t)), (…, p) each. by_values: p, by_slopes: q, (…, T)."""
        p, q = by_values[..., None], by_slopes[..., None]
        theta: list[Array] = []
        omega: list[Array] = []
        for k in reversed(range(len(seen.layers))):
            layer = seen.layers[k]
            by_weights = np.swapaxes(p, -1, -2) @ layer.a
            if layer.along is not None:
                by_weights += np.swapaxes(q, -1, -2) @ layer.along
            theta[:0] = [_flat(by_weights), p.sum(axis=-2)]
            omega[:0] = [_flat(np.swapaxes(q, -1, -2) @ layer.a), q.sum(axis=-2)]
            if k:
                below, back = seen.layers[k - 1].turned, q @ layer.weights
                flat = 1.0 - layer.a * layer.a
                p = flat * (p @ layer.weights + q @ layer.weights_along - 2.0 * layer.a * below * back)
                q = flat * back
        return np.concatenate(theta, axis=-1), np.concatenate(omega, axis=-1)

    def features(self, theta: Array, states: Array) -> Array:
        """∇_θ V of every state (n, d), (n, p)."""
        seen = self.seen(theta, np.zeros_like(theta), states[:, None])
        return self.penalised(seen, np.ones_like(seen.values), np.zeros_like(seen.values))[0]

    def _layers(self, flat: Array) -> Iterator[tuple[Array, Array]]:
        begin = 0
        for inputs, outputs in self.sizes:
            middle, end = begin + inputs * outputs, begin + (inputs + 1) * outputs
            yield flat[begin:middle].reshape(outputs, inputs), flat[middle:end]
            begin = end


def _flat(matrices: Array) -> Array:
    """The last two axes as one."""
    return matrices.reshape(*matrices.shape[:-2], -1)
