"""Temporal differences with a nonlinear value function: the mean squared projected Bellman error, primal and dual.

A record is a whole trajectory s_0, r_0, s_1, …, s_T of a fixed behaviour policy (see `data.trajectories`): x = θ are
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

Of few held-out steps b is noisy, so that test_mspbe stays above 0 for the true value function, too.

V is linear in (s, 1), from 0, or (problem.model kind = "mlp") a network with tanh units, its weights drawn from the
public seed. With more than 2000 weights Φ is solved for by conjugate gradients, whose Φ is at most the true one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.exchange import Query
from decentral_dp.privacy.clipping import clip_factors, row_norms
from decentral_dp.privacy.sensitivity import Array, Norm
from decentral_dp.problems.autodiff import quiet_torch
from decentral_dp.problems.minimax.protocol import Known, Scores
from decentral_dp.problems.minimax.value_function import ValueFunction
from decentral_dp.problems.protocol import take

if TYPE_CHECKING:
    from torch import Tensor

USUAL_RIDGE = 0.01
# Float64 numbers of one part of a sum: 4 MiB, which caches hold, and 128 MiB; and weights up to which G is formed.
_CELLS = {"cpu": 1 << 19, "cuda": 1 << 24}
_MOST_FORMED = 2000
# Of conjugate gradients.
_ITERATIONS, _TOLERANCE = 200, 1e-8


class Trajectories(NamedTuple):
    """observations: (n, L+1, d). rewards: (n, L). lengths: (n,) whole numbers from 1 to L. terminal: (n,) 0 or 1."""

    observations: Array
    rewards: Array
    lengths: Array
    terminal: Array


@dataclass(frozen=True)
class Mspbe:
    """steps, width: L and d. discount: γ. ridge: ρ. hidden: units of each layer, none for a linear V."""

    steps: int
    width_of_state: int
    discount: float
    ridge: float = USUAL_RIDGE
    hidden: tuple[int, ...] = ()
    seed: int = 0
    device: str = "cpu"

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

    def project_x(self, x: Array) -> Array:
        return x

    def project_y(self, y: Array) -> Array:
        return y

    def known(self, term: str, x: Array, y: Array) -> Known | None:
        return None

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        return np.zeros(self.p) if term == "grad_x" else -self.ridge * y

    def sums(
        self, records: Trajectories, queries: Sequence[Query], drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        totals, start = [np.zeros(self.width(q.term)) for q in queries], 0
        for part in self._parts(records):
            here = None if drawn is None else drawn[start : start + len(part.lengths)]
            start += len(part.lengths)
            seen: list[tuple[Array, Array, dict[str, Array]]] = []
            for total, asked in zip(totals, queries, strict=True):
                rows = self._rows(part, asked.x, asked.y, seen)[asked.term]
                if asked.since is not None:
                    rows = rows - self._rows(part, *asked.since, seen)[asked.term]
                if asked.centre is not None:
                    rows = rows - asked.centre
                factors = clip_factors(row_norms(rows, "l2"), asked.bound)
                factors = factors if here is None else np.where(here, factors, 0.0)
                # Zero times infinity is NaN: what is not finite has to go before the product.
                total += factors @ np.where(factors[:, None] > 0.0, rows, 0.0)
        return totals

    def _rows(
        self, part: Trajectories, x: Array, y: Array, seen: list[tuple[Array, Array, dict[str, Array]]]
    ) -> dict[str, Array]:
        """Both gradients of every trajectory, (n, p) each; computed once for a point."""
        for x_then, y_then, found in seen:
            if np.array_equal(x_then, x) and np.array_equal(y_then, y):
                return found
        with quiet_torch():
            theta, omega, states, rewards, lengths, terminal = self._tensors(x, y, *part)
            walked = self.function.seen(theta, omega, states)
            errors, counted, goes_on = self._errors(walked.values, rewards, lengths[:, None], terminal[:, None])
            shares, along = counted / lengths[:, None], walked.slopes[:, :-1]
            by_values, by_slopes = (walked.values.new_zeros(walked.values.shape) for _ in range(2))
            by_values[:, :-1] = -shares * along
            by_values[:, 1:] += shares * along * self.discount * goes_on
            by_slopes[:, :-1] = shares * (errors - along)
            pulled = self.function.pulled(walked, by_values, by_slopes)
            rows = dict(zip(("grad_x", "grad_y"), (g.cpu().numpy() for g in pulled), strict=True))
        seen.append((x, y, rows))
        return rows

    def _tensors(self, *arrays: Array) -> list[Tensor]:
        import torch

        return [torch.tensor(np.asarray(a, dtype=np.float64), device=self.device) for a in arrays]

    def _errors(
        self, values: Tensor, rewards: Tensor, lengths: Tensor, terminal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """δ_t, whether t < T, and whether s_{t+1} has a value, (n, L) each. lengths, terminal: (n, 1)."""
        import torch

        t = torch.arange(self.steps, device=rewards.device)
        goes_on = 1.0 - (t + 1 == lengths) * terminal
        return rewards + self.discount * goes_on * values[:, 1:] - values[:, :-1], (t < lengths).double(), goes_on

    def _parts(self, records: Trajectories) -> Iterator[Trajectories]:
        """Parts of bounded memory."""
        cells = (self.steps + 1) * (self.width_of_state + 10 * (sum(self.hidden) + 1)) + 6 * self.p
        n, size = len(records.lengths), max(1, _CELLS[self.device] // cells)
        return (take(records, slice(k, k + size)) for k in range(0, n, size))

    def scores(self, x: Array, y: Array, train: Trajectories, test: Trajectories | None) -> Scores:
        out: dict[str, float] = {}
        with np.errstate(all="ignore"):
            solved = self.solved(x, train)
            if solved is not None:
                best, value = solved
                (total,) = self.sums(train, [Query("grad_x", x, best, np.inf)])
                out = {"primal": value, "gradient_norm": float(np.linalg.norm(total / len(train.lengths)))}
            if test is not None:
                held = self.solved(x, test)
                out |= {} if held is None else {"test_mspbe": held[1]}
                error = self._return_error(x, test)
                out |= {"test_return_error": error} if np.isfinite(error) else {}
        return out

    def solved(self, x: Array, records: Trajectories) -> tuple[Array, float] | None:
        """argmax_ω F(θ, ω) on these records, and Φ(θ); None where numbers overflow."""
        n = len(records.lengths)

        def slope(y: Array) -> Array:
            return np.asarray(self.sums(records, [Query("grad_y", x, y, np.inf)])[0] / n)

        # Trajectories that overflow count as zero in a sum, and would leave the error of the others.
        if not np.isfinite(self._return_error(x, records)):
            return None
        b = slope(np.zeros(self.p))
        try:
            best = self._formed(x, records, b) if self.p <= _MOST_FORMED else self._iterated(slope, b)
        except np.linalg.LinAlgError:
            return None
        # F along the best ray; at the exact solution ½ bᵀω.
        value = float(best @ b - 0.5 * best @ (b - slope(best) + self.ridge * best))
        return (best, value) if np.isfinite(value) else None

    def _formed(self, x: Array, records: Trajectories, b: Array) -> Array:
        matrix = self.ridge * np.eye(self.p)
        with quiet_torch():
            (theta,) = self._tensors(x)
            for part in self._parts(records):
                counted = np.arange(self.steps) < part.lengths[:, None]
                shares = np.broadcast_to(1.0 / (part.lengths * len(records.lengths))[:, None], counted.shape)[counted]
                states = part.observations[:, :-1][counted]
                size = max(1, _CELLS[self.device] // (8 * self.p))
                for k in range(0, len(states), size):
                    rows = self.function.features(theta, *self._tensors(states[k : k + size]))
                    (roots,) = self._tensors(np.sqrt(shares[k : k + size]))
                    rows = rows * roots[:, None]
                    matrix += (rows.T @ rows).cpu().numpy()
        return np.asarray(np.linalg.solve(matrix, b), dtype=np.float64)

    def _iterated(self, slope: Any, b: Array) -> Array:
        from scipy.sparse.linalg import LinearOperator, cg

        operator = LinearOperator((self.p, self.p), matvec=lambda v: b - slope(v) + self.ridge * v, dtype=np.float64)
        return np.asarray(cg(operator, b, rtol=_TOLERANCE, maxiter=_ITERATIONS)[0])

    def _return_error(self, x: Array, records: Trajectories) -> float:
        totals = []
        with quiet_torch():
            theta, zero = self._tensors(x, np.zeros(self.p))
            for part in self._parts(records):
                (states,) = self._tensors(part.observations)
                values = self.function.seen(theta, zero, states).values.cpu().numpy()
                totals += [self._squares(*record) for record in zip(values, part.rewards, *part[2:], strict=True)]
        return float(np.sqrt(np.mean(totals)))

    def _squares(self, values: Array, rewards: Array, length: float, terminal: float) -> float:
        """Mean of (V − return)² over the steps of one trajectory."""
        steps = int(length)
        to_come, total = (1.0 - terminal) * values[steps], 0.0
        for t in range(steps - 1, -1, -1):
            to_come = rewards[t] + self.discount * to_come
            total += (values[t] - to_come) ** 2
        return float(total / steps)
