"""Temporal differences with a nonlinear value function: the mean squared projected Bellman error, primal and dual.

A record is a whole trajectory s_0, r_0, s_1, …, s_T of a fixed behaviour policy (see `central.trajectories`): x = θ are
the weights of a value function V, y = ω a vector of as many coordinates. With δ_t = r_t + γ V(s_{t+1}) − V(s_t), where
V is 0 at a terminal state, and Ψ_t = ∇_θ V(s_t) (Equation 68 of Zhang et al. 2025, plus r),

    f(θ, ω; ξ) = (1/T) Σ_t (δ_t ⟨Ψ_t, ω⟩ − ½ ⟨Ψ_t, ω⟩²),      r = −(ρ/2) ‖ω‖²
    ∇_ω f = (1/T) Σ_t (δ_t − ⟨Ψ_t, ω⟩) Ψ_t
    ∇_θ f = (1/T) Σ_t ⟨Ψ_t, ω⟩ (γ ∇V(s_{t+1}) − ∇V(s_t)) + (δ_t − ⟨Ψ_t, ω⟩) ∇²V(s_t) ω

Each step of a trajectory counts by the trajectory's own length, never by a count of others, so that a record's term is
its own; and it is clipped as a whole. What is protected is the trajectory: a guarantee for single transitions would
leave a state that two of them share with twice the influence.

    Φ(θ) = max_ω F = ½ bᵀ (G + ρ I)⁻¹ b,      b = mean of δ Ψ,  G = mean of Ψ Ψᵀ

ρ (problem.ridge, 0.01 if left out) is public and no part of what is clipped; without it G is singular for a network
and F is not strongly concave. The loss F(θ, ω) itself says nothing: at ω = 0 it is 0 for every θ, and what Zhang et al.
(2025, Figure 7) call optimal, a loss near 0, needs no learning. Reported instead:

    primal, gradient_norm   Φ(θ) and ‖∇Φ(θ)‖ on the train trajectories; Φ is the error (67), but for ρ
    test_mspbe              Φ(θ) on the held-out trajectories, with b and G of their own
    test_return_error       root of the mean of (V(s_t) − rewards from t on, discounted)², held out; where a trajectory
                            was cut off, V at its end stands for what would have come

Φ sees an error only as far as V's own features do: a linear V that is as good as constant has a Φ near 0 on CartPole,
and is no better than a constant. Of few held-out steps b is noisy, so that test_mspbe stays above 0 for the true value
function, too.

V is linear in (s, 1), from 0, or (problem.model kind = "mlp") a network with tanh units, its weights drawn from the
public seed; it is computed on the processor, trajectory by trajectory. With more than 2000 weights no Φ is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import Doc

from decentral_dp.bounded import Array, Norm
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError
from decentral_dp.exchange import ClippedQuery
from decentral_dp.privacy.clipping import clip_factors, row_norms
from decentral_dp.problems.bilevel.linear import Ridge
from decentral_dp.problems.entry import ModelChoice, ProblemEntry, ProblemFacts
from decentral_dp.problems.saddle import Minimax, Scores


class ValueLayer(NamedTuple):
    """What backpropagation reads of one layer, of weights (o, i).

    a, input_along: (…, i) a_{k−1} and a'_{k−1}, None for 0. output_along: (…, o) z'_k.
    """

    weights: Array
    weights_along: Array
    a: Array
    input_along: Array | None
    output_along: Array


class Activations(NamedTuple):
    """values: V(s_t), slopes: V'(s_t), (…, T) each. layers: from first to last."""

    values: Array
    slopes: Array
    layers: list[ValueLayer]


@dataclass(frozen=True)
class ValueFunction:
    """V and its derivative along a direction, and their gradients trajectory by trajectory.

    V(s; θ) is linear in (s, 1), or a stack of dense layers with tanh between them. With a_0 = s,
    z_k = W_k a_{k−1} + b_k, a_k = tanh z_k and a direction ω whose layers are W'_k, b'_k, the derivative along ω is
    carried through the layers,

        z'_k = W'_k a_{k−1} + b'_k + W_k a'_{k−1},        a'_k = (1 − a_k²) z'_k,        a'_0 = 0,

    and V' = z' of the last one is ⟨∇_θ V, ω⟩. The gradient of Σ_t (p_t V(s_t) + q_t V'(s_t)) is carried back: with P, Q
    for its derivatives by z_k, z'_k,

        by W_k: Σ_t P aᵀ + Q a'ᵀ,   by b_k: Σ_t P,   by W'_k: Σ_t Q aᵀ,   by b'_k: Σ_t Q         (a, a' of layer k − 1)
        one layer down:  Q ← (1 − a²) ∘ Wᵀ Q,   P ← (1 − a²) ∘ (Wᵀ P + W'ᵀ Q − 2 a ∘ z' ∘ Wᵀ Q)    (Q before its change)

    which has ∇²V ω in it, and forms no Hessian.

    What stands before the axis of steps and the last one is a batch, whose members nothing mixes.

    Args:
        n_inputs: numbers of a state.
        hidden: units of each layer, none for a linear one.
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
        """(p,): zeros of a linear one; else by the public seed, the last layer from N(0, 1/fan-in), its bias 0.

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

    def forward(self, theta: Array, omega: Array, states: Array) -> Activations:
        """V and V' of states (…, T, d)."""
        z, turned, along, layers = states, states, None, list[ValueLayer]()
        pairs = zip(self._layers(theta), self._layers(omega), strict=True)
        for k, ((weights, bias), (weights_along, bias_along)) in enumerate(pairs):
            a = np.tanh(z) if k else states
            along = (1.0 - a * a) * turned if k else None
            z, turned = a @ weights.T + bias, a @ weights_along.T + bias_along
            if along is not None:
                turned += along @ weights.T
            layers.append(ValueLayer(weights, weights_along, a, along, turned))
        return Activations(z[..., 0], turned[..., 0], layers)

    def gradients(self, activations: Activations, by_values: Array, by_slopes: Array) -> tuple[Array, Array]:
        """∇_θ and ∇_ω of Σ_t (p_t V(s_t) + q_t V'(s_t)), (…, p) each. by_values: p, by_slopes: q, (…, T)."""
        p, q = by_values[..., None], by_slopes[..., None]
        theta: list[Array] = []
        omega: list[Array] = []
        for k in reversed(range(len(activations.layers))):
            layer = activations.layers[k]
            by_weights = np.swapaxes(p, -1, -2) @ layer.a
            if layer.input_along is not None:
                by_weights += np.swapaxes(q, -1, -2) @ layer.input_along
            theta[:0] = [_flat(by_weights), p.sum(axis=-2)]
            omega[:0] = [_flat(np.swapaxes(q, -1, -2) @ layer.a), q.sum(axis=-2)]
            if k:
                below, back = activations.layers[k - 1].output_along, q @ layer.weights
                flat = 1.0 - layer.a * layer.a
                p = flat * (p @ layer.weights + q @ layer.weights_along - 2.0 * layer.a * below * back)
                q = flat * back
        return np.concatenate(theta, axis=-1), np.concatenate(omega, axis=-1)

    def features(self, theta: Array, states: Array) -> Array:
        """∇_θ V of every state (n, d), (n, p)."""
        tape = self.forward(theta, np.zeros_like(theta), states[:, None])
        return self.gradients(tape, np.ones_like(tape.values), np.zeros_like(tape.values))[0]

    def _layers(self, flat: Array) -> Iterator[tuple[Array, Array]]:
        begin = 0
        for inputs, outputs in self.sizes:
            middle, end = begin + inputs * outputs, begin + (inputs + 1) * outputs
            yield flat[begin:middle].reshape(outputs, inputs), flat[middle:end]
            begin = end


def _flat(matrices: Array) -> Array:
    """The last two axes as one."""
    return matrices.reshape(*matrices.shape[:-2], -1)


USUAL_RIDGE = 0.01
# Float64 numbers of one part of a sum, 16 MiB; and weights up to which G is formed.
_CELLS = 1 << 21
_MOST_DENSE = 2000


class Trajectories(NamedTuple):
    """observations: (n, L+1, d). rewards: (n, L). lengths: (n,) whole numbers from 1 to L. terminal: (n,) 0 or 1."""

    observations: Array
    rewards: Array
    lengths: Array
    terminal: Array


class Trajectory(NamedTuple):
    """One of them, no longer than it is. states: (T+1, d). rewards: (T,)."""

    states: Array
    rewards: Array
    terminal: float


@dataclass(frozen=True)
class Mspbe(Minimax):
    """steps, width: L and d. discount: γ. ridge: ρ. hidden: units of each layer, none for a linear V."""

    steps: int
    width_of_state: int
    discount: float
    ridge: float = USUAL_RIDGE
    hidden: tuple[int, ...] = ()
    seed: int = 0

    @cached_property
    def function(self) -> ValueFunction:
        return ValueFunction(self.width_of_state, self.hidden)

    @property
    def p(self) -> int:
        return self.function.p

    @property
    def q(self) -> int:
        return self.p

    @property
    def terms(self) -> Mapping[str, bool]:
        return {"grad_x": True, "grad_y": True}

    @property
    def start(self) -> Mapping[str, Array]:
        return {"x": self.function.start(self.seed), "y": np.zeros(self.p)}

    def width(self, term: str) -> int:
        return {"grad_x": self.p, "grad_y": self.p}[term]

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Trajectories:
        rows, numbers = np.asarray(features), (self.steps + 1) * self.width_of_state
        return Trajectories(
            rows[:, :numbers].reshape(len(rows), self.steps + 1, self.width_of_state),
            rows[:, numbers : numbers + self.steps],
            np.asarray(labels, dtype=np.float64),
            rows[:, -1],
        )

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        return np.zeros(self.p) if term == "grad_x" else -self.ridge * y

    def sums(
        self, records: Trajectories, queries: Sequence[ClippedQuery], drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        totals = [np.zeros(self.width(q.term)) for q in queries]
        numbers = np.arange(len(records.lengths)) if drawn is None else np.flatnonzero(drawn)
        size = max(1, _CELLS // self.p)
        for part in (numbers[k : k + size] for k in range(0, len(numbers), size)):
            rows = [np.empty((len(part), len(total))) for total in totals]
            for k, i in enumerate(part):
                for row, of_one in zip(rows, self._contributions(self._trajectory(records, i), queries), strict=True):
                    row[k] = of_one
            for total, query, gradients in zip(totals, queries, rows, strict=True):
                factors = clip_factors(row_norms(gradients, "l2"), query.bound)
                # Zero times infinity is NaN: what is not finite has to go before the product.
                total += factors @ np.where(factors[:, None] > 0.0, gradients, 0.0)
        return totals

    def _contributions(self, record: Trajectory, queries: Sequence[ClippedQuery]) -> list[Array]:
        """What one trajectory answers to each question, before it is clipped. No other one plays a part."""
        known: list[tuple[Array, Array, dict[str, Array]]] = []
        out = []
        for query in queries:
            row = self._gradients(record, query.x, query.y, known)[query.term]
            if query.earlier_point is not None:
                row = row - self._gradients(record, *query.earlier_point, known)[query.term]
            out.append(row if query.centre is None else row - query.centre)
        return out

    def _trajectory(self, records: Trajectories, i: int) -> Trajectory:
        steps = int(records.lengths[i])
        return Trajectory(records.observations[i, : steps + 1], records.rewards[i, :steps], float(records.terminal[i]))

    def _gradients(
        self, record: Trajectory, x: Array, y: Array, known: list[tuple[Array, Array, dict[str, Array]]]
    ) -> dict[str, Array]:
        """Both gradients, (p,) each; computed once for a point."""
        for x_then, y_then, gradients in known:
            if (x_then is x and y_then is y) or (np.array_equal(x_then, x) and np.array_equal(y_then, y)):
                return gradients
        activations = self.function.forward(x, y, record.states)
        share, along = 1.0 / len(record.rewards), activations.slopes[:-1]
        by_values, by_slopes = np.zeros_like(activations.values), np.zeros_like(activations.values)
        by_values[:-1] = -share * along
        by_values[1:] += share * self.discount * self._has_next(record) * along
        v = activations.values
        errors = record.rewards + self.discount * self._has_next(record) * v[1:] - v[:-1]
        by_slopes[:-1] = share * (errors - along)
        rows = dict(zip(("grad_x", "grad_y"), self.function.gradients(activations, by_values, by_slopes), strict=True))
        known.append((x, y, rows))
        return rows

    def _has_next(self, record: Trajectory) -> Array:
        """Whether s_{t+1} has a value, (T,)."""
        out = np.ones(len(record.rewards))
        out[-1] -= record.terminal
        return out

    def scores(self, x: Array, y: Array, train: Trajectories, test: Trajectories | None) -> Scores:
        out: dict[str, float] = {}
        with np.errstate(all="ignore"):
            solved = self.solve(x, train)
            if solved is not None:
                best, value = solved
                (total,) = self.sums(train, [ClippedQuery("grad_x", x, best, np.inf)])
                out = {"primal": value, "gradient_norm": float(np.linalg.norm(total / len(train.lengths)))}
            if test is not None:
                solution = self.solve(x, test)
                out |= {} if solution is None else {"test_mspbe": solution[1]}
                error = self._return_error(x, test)
                out |= {"test_return_error": error} if np.isfinite(error) else {}
        return out

    def solve(self, x: Array, records: Trajectories) -> tuple[Array, float] | None:
        """argmax_ω F(θ, ω) on these records, and Φ(θ); None where numbers overflow."""
        n = len(records.lengths)

        def slope(y: Array) -> Array:
            return np.asarray(self.sums(records, [ClippedQuery("grad_y", x, y, np.inf)])[0] / n)

        # Trajectories that overflow count as zero in a sum, and would leave the error of the others.
        if self.p > _MOST_DENSE or not np.isfinite(self._return_error(x, records)):
            return None
        b = slope(np.zeros(self.p))
        best = self._solve_directly(x, records, b)
        # F along the best ray; at the exact solution ½ bᵀω.
        value = float(best @ b - 0.5 * best @ (b - slope(best) + self.ridge * best))
        return (best, value) if np.isfinite(value) else None

    def _solve_directly(self, x: Array, records: Trajectories, b: Array) -> Array:
        counted = np.arange(self.steps) < records.lengths[:, None]
        shares = np.broadcast_to(1.0 / (records.lengths * len(records.lengths))[:, None], counted.shape)[counted]
        where, matrix = np.argwhere(counted), self.ridge * np.eye(self.p)
        size = max(1, _CELLS // (8 * self.p))
        for k in range(0, len(where), size):
            states = records.observations[where[k : k + size, 0], where[k : k + size, 1]]
            rows = self.function.features(x, states) * np.sqrt(shares[k : k + size, None])
            matrix += rows.T @ rows
        return np.asarray(np.linalg.solve(matrix, b), dtype=np.float64)

    def _return_error(self, x: Array, records: Trajectories) -> float:
        """Root of the mean over trajectories of the mean of (V − return)² over the steps of each."""
        means = []
        for record in (self._trajectory(records, i) for i in range(len(records.lengths))):
            values = self.function.forward(x, np.zeros(self.p), record.states).values
            to_come, total = (1.0 - record.terminal) * values[-1], 0.0
            for reward, value in zip(record.rewards[::-1], values[-2::-1], strict=True):
                to_come = reward + self.discount * to_come
                total += (value - to_come) ** 2
            means.append(total / len(record.rewards))
        return float(np.sqrt(np.mean(means)))


def mspbe(
    facts: ProblemFacts,
    discount: Annotated[float, Field(ge=0, lt=1), Doc("Discount of rewards to come, from 0 to below 1.")],
    ridge: Ridge = USUAL_RIDGE,
    model: ModelChoice | None = None,
) -> Mspbe:
    """From the keys of a scenario. Raises InputError for a model without second derivatives."""
    if model is not None and model.kind not in ("linear", "mlp"):
        raise InputError(
            f"problem.model: mspbe needs second derivatives of its value function, got {model.kind!r}. Take linear, "
            'or for example { kind = "mlp", hidden = [50] }.'
        )
    if facts.trajectory is None:
        raise InputError("problem.data: mspbe reads trajectories. Take cartpole, or a .npz file.")
    hidden = () if model is None else tuple(model.hidden or ())
    return Mspbe(*facts.trajectory, discount=discount, ridge=ridge, hidden=hidden, seed=facts.seed)


ENTRY = ProblemEntry(
    "mspbe",
    mspbe,
    "temporal differences: a value function that predicts the rewards to come, of whole trajectories",
    task="learned the value of a policy",
    trajectories=True,
)
