"""A hard minimax problem in closed form, and a driver that runs a minimax program on it.

    f(x, y) = φ(x_0) + ⟨y, x_{1:}⟩ − ½‖y‖²,     φ(u) = −½ log(1 + u²),     so that  Φ(x) = φ(x_0) + ½‖x_{1:}‖²

All n records are equal, so the computing time does not depend on n. The noise hides the replacement of one record by
any record with clipped gradients. The gradient along x_0 decreases as 1/√t forever, so the rate is visible at every n.
s = √d/(nμ), with μ of Gaussian differential privacy and d the dimension of x.
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

# Clip of a record's gradients in x and in y.
LONGEST = 1.0


class EqualRecords(NamedTuple):
    """Equal records. total: number of records, (1,)."""

    total: Array


@dataclass(frozen=True)
class HardSaddle(Minimax):
    """The hard problem. d: dimension of x; y has dimension d − 1."""

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

    def prepare(self, features: Array, labels: Array, norm: Norm) -> EqualRecords:
        return EqualRecords(np.array([float(len(features))]))

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        return np.zeros(self.width(term))

    def gradient(self, term: str, x: Array, y: Array) -> Array:
        if term == "grad_y":
            return np.asarray(x[1:] - y)
        return np.concatenate([[-x[0] / (1.0 + x[0] ** 2)], y])

    def sums(
        self, records: EqualRecords, queries: Sequence[ClippedQuery], drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        return [float(records.total[0]) * self._clipped(asked) for asked in queries]

    def _clipped(self, asked: ClippedQuery) -> Array:
        v = self.gradient(asked.term, asked.x, asked.y)
        if asked.earlier_point is not None:
            v = v - self.gradient(asked.term, *asked.earlier_point)
        factor = clip_factors(row_norms(v[None], "l2"), asked.bound)
        return np.asarray(factor[0] * v)

    def scores(self, x: Array, y: Array, train: EqualRecords, test: EqualRecords | None) -> Scores:
        return {"gradient_norm": self.stationarity(x)}

    def stationarity(self, x: Array) -> float:
        """Compute ‖∇Φ(x)‖₂."""
        return math.hypot(x[0] / (1.0 + x[0] ** 2), float(np.linalg.norm(x[1:])))


def walk(
    program: Coordinated, problem: HardSaddle, n: float, mu: float, rounds: int, rng: np.random.Generator
) -> float:
    """Run an algorithm on all n records, with μ-Gaussian differential privacy of all releases.

    Args:
        program: program of a coordinator for minimax problems.
        problem: the hard problem.
        n: number of records.
        mu: μ.
        rounds: T.
        rng: random bits of the noise.

    Returns:
        Mean of ‖∇Φ‖ over the iterates, which is its expectation at a uniformly random iterate as in the theorems.
    """
    context = MinimaxContext(problem, {"train": int(n)}, 1, Clip("l2", x=LONGEST, y=LONGEST), rounds)
    program, context = program.resolve_defaults(context)
    costs = _costs(program.planned_releases(context, rounds), mu)
    state, total = program.init(context), 0.0
    records, index = EqualRecords(np.array([n])), 0

    def ask(asked: Mapping[str, Any]) -> Any:
        sums = problem.sums(records, list(asked.values()))
        return context.combine(0, asked, {k: v[None] for k, v in zip(asked, sums, strict=True)})

    def release(values: Mapping[str, Any]) -> Released:
        nonlocal index
        index += 1
        return _add_noise(values, index, costs, rng)

    for t in range(rounds):
        index = t * program.releases_per_round
        state = finish_round(program.step(t, context, state), ask, release)
        total += problem.stationarity(program.published(state)["x"])
    return total / rounds


def _costs(charges: Mapping[str, Charge], mu: float) -> dict[str, dict[int, float]]:
    """Return channel → index → μ_t in the planned proportions, with Σμ_t² = μ²."""
    total = math.sqrt(sum(float((c.weight["train"] ** 2).sum()) for c in charges.values()))
    return {
        name: dict(zip(c.indices.tolist(), (mu / total * c.weight["train"]).tolist(), strict=True))
        for name, c in charges.items()
    }


def _add_noise(
    values: Mapping[str, Any], index: int, costs: Mapping[str, Mapping[int, float]], rng: np.random.Generator
) -> Released:
    out, scales = {}, {}
    for channel, value in values.items():
        if not isinstance(value, Bounded):
            out[channel] = value
            continue
        scales[channel] = scale = float(value.sensitivities["train"].sensitivity[0]) / costs[channel][index]
        out[channel] = value.value + scale * rng.standard_normal(value.value.shape)
    return Released(Bundle(out), scales)
