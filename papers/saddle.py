"""A hard minimax problem in closed form, and a driver that runs a minimax program on it.

    f(x, y) = φ(x_0) + ⟨y, x_{1:}⟩ − ½‖y‖²,     φ(u) = −½ log(1 + u²),     so that  Φ(x) = φ(x_0) + ½‖x_{1:}‖²

All n records are equal, so that n is a number, and one record may be replaced by any whose gradients are as short:
releases carry the noise that hides it. Along x_0 the gradient decreases like 1/√t without an end: no run is
complete, and a rate is visible at every n. s = √d/(nμ) with the budget μ of a Gaussian pair, d the dimension of x.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Bounded, Norm
from decentral_dp.central.context import MinimaxContext
from decentral_dp.central.problems.saddle import Minimax, Scores
from decentral_dp.central.vocabulary import Charge, Coordinated
from decentral_dp.exchange import Bundle, ClippedQuery, Released
from decentral_dp.privacy.clipping import Clip, clip_factors, row_norms
from papers.rounds import finish_round

# Bound on gradients of a record by x and by y, at all points of the programs.
LONGEST = 1.0


class Alike(NamedTuple):
    """many: (1,), how many records, all the same."""

    many: Array


@dataclass(frozen=True)
class HardSaddle(Minimax):
    """d: dimension of x; y has one fewer."""

    d: int

    @property
    def p(self) -> int:
        return self.d

    @property
    def q(self) -> int:
        return self.d - 1

    @property
    def terms(self) -> Mapping[str, bool]:
        return {"grad_x": True, "grad_y": True}

    @property
    def start(self) -> Mapping[str, Array]:
        first = np.zeros(self.d)
        first[0] = 1.0
        return {"x": first, "y": np.zeros(self.q)}

    def width(self, term: str) -> int:
        return self.d if term == "grad_x" else self.q

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Alike:
        return Alike(np.array([float(len(features))]))

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        return np.zeros(self.width(term))

    def gradient(self, term: str, x: Array, y: Array) -> Array:
        if term == "grad_y":
            return np.asarray(x[1:] - y)
        return np.concatenate([[-x[0] / (1.0 + x[0] ** 2)], y])

    def sums(
        self, records: Alike, queries: Sequence[ClippedQuery], drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        return [float(records.many[0]) * self._clipped(asked) for asked in queries]

    def _clipped(self, asked: ClippedQuery) -> Array:
        v = self.gradient(asked.term, asked.x, asked.y)
        if asked.earlier_point is not None:
            v = v - self.gradient(asked.term, *asked.earlier_point)
        factor = clip_factors(row_norms(v[None], "l2"), asked.bound)
        return np.asarray(factor[0] * v)

    def scores(self, x: Array, y: Array, train: Alike, test: Alike | None) -> Scores:
        return {"gradient_norm": self.stationarity(x)}

    def stationarity(self, x: Array) -> float:
        """‖∇Φ(x)‖₂."""
        return math.hypot(x[0] / (1.0 + x[0] ** 2), float(np.linalg.norm(x[1:])))


def walk(
    program: Coordinated, problem: HardSaddle, n: float, mu: float, rounds: int, rng: np.random.Generator
) -> float:
    """Run a program on all n records, its releases together one Gaussian pair at distance μ.

    Args:
        program: program of a coordinator for minimax problems.
        problem: the hard one.
        n: how many records.
        mu: μ.
        rounds: T.
        rng: random bits of the noise.

    Returns:
        Mean of ‖∇Φ‖ over the iterates. It is what a uniformly random iterate gives, which the theorems are about.
    """
    context = MinimaxContext(problem, {"train": int(n)}, 1, Clip("l2", x=LONGEST, y=LONGEST), rounds)
    program, context = program.resolve_defaults(context)
    prices = _prices(program.planned_releases(context, rounds), mu)
    state, total = program.init(context), 0.0
    records, index = Alike(np.array([n])), 0

    def ask(asked: Mapping[str, Any]) -> Any:
        sums = problem.sums(records, list(asked.values()))
        return context.combine(0, asked, {k: v[None] for k, v in zip(asked, sums, strict=True)})

    def release(values: Mapping[str, Any]) -> Released:
        nonlocal index
        index += 1
        return _published(values, index, prices, rng)

    for t in range(rounds):
        index = t * program.releases_per_round
        state = finish_round(program.step(t, context, state), ask, release)
        total += problem.stationarity(program.published(state)["x"])
    return total / rounds


def _prices(charges: Mapping[str, Charge], mu: float) -> dict[str, dict[int, float]]:
    """Channel → index → μ_t, in the planned proportions; Σμ_t² = μ²."""
    whole = math.sqrt(sum(float((c.weight["train"] ** 2).sum()) for c in charges.values()))
    return {
        name: dict(zip(c.indices.tolist(), (mu / whole * c.weight["train"]).tolist(), strict=True))
        for name, c in charges.items()
    }


def _published(
    values: Mapping[str, Any], index: int, prices: Mapping[str, Mapping[int, float]], rng: np.random.Generator
) -> Released:
    out, scales = {}, {}
    for channel, value in values.items():
        if not isinstance(value, Bounded):
            out[channel] = value
            continue
        scales[channel] = scale = float(value.sensitivities["train"].sensitivity[0]) / prices[channel][index]
        out[channel] = value.value + scale * rng.standard_normal(value.value.shape)
    return Released(Bundle(out), scales)
