"""Temporal differences with a nonlinear value function: the mean squared projected Bellman error, primal and dual.

A record is a whole trajectory s_0, r_0, s_1, …, s_T of a fixed behaviour policy (see `central.trajectories`): x = θ are
the weights of a value function V, y = ω a vector of the same dimension. With δ_t = r_t + γ V(s_{t+1}) − V(s_t), V = 0
at a terminal state, and Ψ_t = ∇_θ V(s_t) (Equation 68 of Zhang et al. 2025, plus r),

    f(θ, ω; ξ) = (1/T) Σ_t (δ_t ⟨Ψ_t, ω⟩ − ½ ⟨Ψ_t, ω⟩²),      r = −(ρ/2) ‖ω‖²
    ∇_ω f = (1/T) Σ_t (δ_t − ⟨Ψ_t, ω⟩) Ψ_t
    ∇_θ f = (1/T) Σ_t ⟨Ψ_t, ω⟩ (γ ∇V(s_{t+1}) − ∇V(s_t)) + (δ_t − ⟨Ψ_t, ω⟩) ∇²V(s_t) ω

The weight of a step depends only on the length of its trajectory. The gradient of a trajectory is clipped as one
vector. The guarantee is for whole trajectories: a state that two single transitions share would have twice the
influence.

    Φ(θ) = max_ω F = ½ bᵀ (G + ρ I)⁻¹ b,      b = mean of δ Ψ,  G = mean of Ψ Ψᵀ

ρ (problem.ridge, default 0.01) is public and not clipped. Without it G is singular for a network, and F is not strongly
concave. The loss F(θ, ω) is not a metric: at ω = 0 it is 0 for every θ, so the loss near 0 that Zhang et al. (2025,
Figure 7) call optimal does not require learning. Metrics:

    primal, gradient_norm   Φ(θ) and ‖∇Φ(θ)‖ on the train trajectories; Φ is the error (67), except for ρ
    test_mspbe              Φ(θ) on the held-out trajectories, with their own b and G
    test_return_error       root of the mean of (V(s_t) − discounted rewards from t on)², held out; V at the end of a
                            truncated trajectory replaces the later rewards

Φ measures an error only in the span of V's features: an almost constant linear V has a Φ near 0 on CartPole, and is no
better than a constant. With few held-out steps b is noisy, so test_mspbe is positive even for the true value function.

V is linear in (s, 1), from 0, or (problem.model kind = "mlp") a network with tanh units, with weights from the public
seed. It is computed on the CPU, trajectory by trajectory. With more than 2000 weights no Φ is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import Doc

from decentral_dp.bounded import Array, Norm
from decentral_dp.central.problems.saddle import Minimax, Scores
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import Refusal, refuse
from decentral_dp.exchange import ClippedQuery
from decentral_dp.privacy.clipping import clip_factors, row_norms
from decentral_dp.problems.bilevel.linear import Ridge
from decentral_dp.problems.entry import ModelChoice, ProblemEntry, ProblemFacts


class ValueLayer(NamedTuple):
    """Values of one layer that backpropagation requires.

    Args:
        weights: W_k, (o, i).
        weights_along: W'_k, (o, i).
        a: input a_{k−1}, (…, i).
        input_along: a'_{k−1}, (…, i), or None for 0.
        output_along: z'_k, (…, o).
    """

    weights: Array
    weights_along: Array
    a: Array
    input_along: Array | None
    output_along: Array


class Activations(NamedTuple):
    """Result of a forward pass.

    Args:
        values: V(s_t), (…, T).
        slopes: V'(s_t), (…, T).
        layers: values of the layers, from first to last.
    """

    values: Array
    slopes: Array
    layers: list[ValueLayer]


@dataclass(frozen=True)
class ValueFunction:
    """Function V and its derivative along a direction, with their gradients per trajectory.

    V(s; θ) is linear in (s, 1), or a stack of dense layers with tanh between them. With a_0 = s, z_k = W_k a_{k−1} +
    b_k, a_k = tanh z_k and a direction ω with layers W'_k, b'_k, the derivative along ω is

        z'_k = W'_k a_{k−1} + b'_k + W_k a'_{k−1},        a'_k = (1 − a_k²) z'_k,        a'_0 = 0,

    and V' = z' of the last layer is ⟨∇_θ V, ω⟩. The gradient of Σ_t (p_t V(s_t) + q_t V'(s_t)) is, with P, Q its
    derivatives by z_k, z'_k,

        by W_k: Σ_t P aᵀ + Q a'ᵀ,   by b_k: Σ_t P,   by W'_k: Σ_t Q aᵀ,   by b'_k: Σ_t Q         (a, a' of layer k − 1)
        one layer down:  Q ← (1 − a²) ∘ Wᵀ Q,   P ← (1 − a²) ∘ (Wᵀ P + W'ᵀ Q − 2 a ∘ z' ∘ Wᵀ Q)    (Q before its change)

    which includes ∇²V ω without a Hessian. Axes that precede the axes of steps and states are independent batches.

    Args:
        n_inputs: dimension of a state.
        hidden: number of units of each hidden layer, or none for a linear V.
    """

    n_inputs: int
    hidden: tuple[int, ...] = ()

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Numbers (inputs, outputs) of each layer."""
        return list(pairwise([self.n_inputs, *self.hidden, 1]))

    @property
    def p(self) -> int:
        return sum((inputs + 1) * outputs for inputs, outputs in self.sizes)

    def start(self, seed: int) -> Array:
        """Return the start, (p,): zeros for a linear V, otherwise draws with the public seed.

        The last layer is drawn from N(0, 1/fan-in) with bias 0. Hidden layers are drawn from N(0, 4/fan-in) and their
        biases from N(0, 1/4), so that units saturate at different points between −1 and 1. With smaller weights a
        network remains almost linear for many rounds.
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
        """Compute V and V' of states (…, T, d)."""
        z, tangent, along, layers = states, states, None, list[ValueLayer]()
        pairs = zip(self._layers(theta), self._layers(omega), strict=True)
        for k, ((weights, bias), (weights_along, bias_along)) in enumerate(pairs):
            a = np.tanh(z) if k else states
            along = (1.0 - a * a) * tangent if k else None
            z, tangent = a @ weights.T + bias, a @ weights_along.T + bias_along
            if along is not None:
                tangent += along @ weights.T
            layers.append(ValueLayer(weights, weights_along, a, along, tangent))
        return Activations(z[..., 0], tangent[..., 0], layers)

    def gradients(self, activations: Activations, by_values: Array, by_slopes: Array) -> tuple[Array, Array]:
        """Compute ∇_θ and ∇_ω of Σ_t (p_t V(s_t) + q_t V'(s_t)), (…, p) each.

        Args:
            activations: activations of the states.
            by_values: p, (…, T).
            by_slopes: q, (…, T).
        """
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
                output_along, by_output = activations.layers[k - 1].output_along, q @ layer.weights
                flat = 1.0 - layer.a * layer.a
                p = flat * (p @ layer.weights + q @ layer.weights_along - 2.0 * layer.a * output_along * by_output)
                q = flat * by_output
        return np.concatenate(theta, axis=-1), np.concatenate(omega, axis=-1)

    def features(self, theta: Array, states: Array) -> Array:
        """Compute ∇_θ V of every state (n, d), (n, p)."""
        tape = self.forward(theta, np.zeros_like(theta), states[:, None])
        return self.gradients(tape, np.ones_like(tape.values), np.zeros_like(tape.values))[0]

    def _layers(self, flat: Array) -> Iterator[tuple[Array, Array]]:
        begin = 0
        for inputs, outputs in self.sizes:
            middle, end = begin + inputs * outputs, begin + (inputs + 1) * outputs
            yield flat[begin:middle].reshape(outputs, inputs), flat[middle:end]
            begin = end


def _flat(matrices: Array) -> Array:
    """Flatten the last two axes."""
    return matrices.reshape(*matrices.shape[:-2], -1)


USUAL_RIDGE = 0.01
# Float64 numbers in one part of a sum, 16 MiB; and the largest number of weights for which G is formed.
_CELLS = 1 << 21
_MOST_DENSE = 2000


class Trajectories(NamedTuple):
    """Records that are trajectories.

    Args:
        observations: observations, (n, L+1, d).
        rewards: rewards, (n, L).
        lengths: lengths from 1 to L, (n,).
        terminal: whether the last state is terminal, 0 or 1, (n,).
    """

    observations: Array
    rewards: Array
    lengths: Array
    terminal: Array


class Trajectory(NamedTuple):
    """One trajectory without padding.

    Args:
        states: states, (T+1, d).
        rewards: rewards, (T,).
        terminal: whether the last state is terminal, 0 or 1.
    """

    states: Array
    rewards: Array
    terminal: float


@dataclass(frozen=True)
class Mspbe(Minimax):
    """Projected Bellman error as a minimax problem.

    Args:
        steps: largest length L of a trajectory.
        width_of_state: dimension d of a state.
        discount: discount factor γ.
        ridge: ridge parameter ρ.
        hidden: number of units of each hidden layer, or none for a linear V.
        seed: public seed.
    """

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
        self, records: Trajectories, queries: Sequence[ClippedQuery], is_drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        totals = [np.zeros(self.width(q.term)) for q in queries]
        numbers = np.arange(len(records.lengths)) if is_drawn is None else np.flatnonzero(is_drawn)
        size = max(1, _CELLS // self.p)
        for part in (numbers[k : k + size] for k in range(0, len(numbers), size)):
            rows = [np.empty((len(part), len(total))) for total in totals]
            for k, i in enumerate(part):
                for row, of_one in zip(rows, self._contributions(self._trajectory(records, i), queries), strict=True):
                    row[k] = of_one
            for total, query, gradients in zip(totals, queries, rows, strict=True):
                factors = clip_factors(row_norms(gradients, "l2"), query.bound)
                # Zero times infinity is NaN.
                total += factors @ np.where(factors[:, None] > 0.0, gradients, 0.0)
        return totals

    def _contributions(self, record: Trajectory, queries: Sequence[ClippedQuery]) -> list[Array]:
        """Return the contribution of one trajectory to each query, before clipping."""
        evaluations: list[tuple[Array, Array, dict[str, Array]]] = []
        out = []
        for query in queries:
            row = self._gradients(record, query.x, query.y, evaluations)[query.term]
            if query.earlier_point is not None:
                row = row - self._gradients(record, *query.earlier_point, evaluations)[query.term]
            out.append(row if query.centre is None else row - query.centre)
        return out

    def _trajectory(self, records: Trajectories, i: int) -> Trajectory:
        steps = int(records.lengths[i])
        return Trajectory(records.observations[i, : steps + 1], records.rewards[i, :steps], float(records.terminal[i]))

    def _gradients(
        self, record: Trajectory, x: Array, y: Array, evaluations: list[tuple[Array, Array, dict[str, Array]]]
    ) -> dict[str, Array]:
        """Compute both gradients, (p,) each, once for each point."""
        for x_then, y_then, gradients in evaluations:
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
        evaluations.append((x, y, rows))
        return rows

    def _has_next(self, record: Trajectory) -> Array:
        """Return whether s_{t+1} has a value, (T,)."""
        out = np.ones(len(record.rewards))
        out[-1] -= record.terminal
        return out

    def scores(self, x: Array, y: Array, train: Trajectories, test: Trajectories | None) -> Scores:
        out: dict[str, float] = {}
        with np.errstate(all="ignore"):
            exact_solution = self.solve(x, train)
            if exact_solution is not None:
                best, value = exact_solution
                (total,) = self.sums(train, [ClippedQuery("grad_x", x, best, np.inf)])
                out = {"primal": value, "gradient_norm": float(np.linalg.norm(total / len(train.lengths)))}
            if test is not None:
                solution = self.solve(x, test)
                out |= {} if solution is None else {"test_mspbe": solution[1]}
                error = self._return_error(x, test)
                out |= {"test_return_error": error} if np.isfinite(error) else {}
        return out

    def solve(self, x: Array, records: Trajectories) -> tuple[Array, float] | None:
        """Compute argmax_ω F(θ, ω) on these records, and Φ(θ), or None if numbers overflow."""
        n = len(records.lengths)

        def slope(y: Array) -> Array:
            return np.asarray(self.sums(records, [ClippedQuery("grad_y", x, y, np.inf)])[0] / n)

        # A trajectory that overflows contributes zero to a sum, so Φ would ignore it.
        if self.p > _MOST_DENSE or not np.isfinite(self._return_error(x, records)):
            return None
        b = slope(np.zeros(self.p))
        is_counted = np.arange(self.steps) < records.lengths[:, None]
        shares = np.broadcast_to(1.0 / (records.lengths * n)[:, None], is_counted.shape)[is_counted]
        index, matrix = np.argwhere(is_counted), self.ridge * np.eye(self.p)
        size = max(1, _CELLS // (8 * self.p))
        for k in range(0, len(index), size):
            states = records.observations[index[k : k + size, 0], index[k : k + size, 1]]
            rows = self.function.features(x, states) * np.sqrt(shares[k : k + size, None])
            matrix += rows.T @ rows
        best = np.asarray(np.linalg.solve(matrix, b), dtype=np.float64)
        # F along the best ray; at the exact solution ½ bᵀω.
        value = float(best @ b - 0.5 * best @ (b - slope(best) + self.ridge * best))
        return (best, value) if np.isfinite(value) else None

    def _return_error(self, x: Array, records: Trajectories) -> float:
        """Compute the root of the mean over trajectories of the mean of (V − return)² over their steps."""
        means = []
        for record in (self._trajectory(records, i) for i in range(len(records.lengths))):
            values = self.function.forward(x, np.zeros(self.p), record.states).values
            to_come, total = (1.0 - record.terminal) * values[-1], 0.0
            for reward, value in zip(record.rewards[::-1], values[-2::-1], strict=True):
                to_come = reward + self.discount * to_come
                total += (value - to_come) ** 2
            means.append(total / len(record.rewards))
        return float(np.sqrt(np.mean(means)))


_REFUSED = (
    Refusal[tuple[ProblemFacts, ModelChoice | None]](
        lambda c: c[1] is not None and c[1].kind not in ("linear", "mlp") and c[1].kind,
        "problem.model",
        "mspbe requires second derivatives of its value function (got {it!r})",
        'use "linear", or for example {{ kind = "mlp", hidden = [50] }}',
    ),
    Refusal[tuple[ProblemFacts, ModelChoice | None]](
        lambda c: c[0].trajectory is None,
        "problem.data",
        "mspbe reads trajectories",
        "use cartpole, or a .npz file",
    ),
)


def mspbe(
    facts: ProblemFacts,
    discount: Annotated[float, Field(ge=0, lt=1), Doc("Discount factor γ, at least 0 and below 1.")],
    ridge: Ridge = USUAL_RIDGE,
    model: ModelChoice | None = None,
) -> Mspbe:
    """Build the problem from the keys of a scenario. Raises InputError for a model without second derivatives."""
    refuse((facts, model), _REFUSED)
    hidden = () if model is None else tuple(model.hidden or ())
    return Mspbe(
        *cast(tuple[int, int], facts.trajectory), discount=discount, ridge=ridge, hidden=hidden, seed=facts.seed
    )


ENTRY = ProblemEntry(
    "mspbe",
    mspbe,
    "the projected Bellman error of a value function, on whole trajectories",
    task="learned the value of a policy",
    trajectories=True,
)
