"""First-order private bilevel optimisation by a penalty, full batch or mini-batch.

Round t, with f and g the means over all records (Kornowski, Algorithms 1 and 3):

    ỹ   ≈ argmin_y g(x, y)                    released by a private solver (`inner`)
    ỹ^λ ≈ argmin_y f(x, y) + λ g(x, y)        released by a private solver
    x  <- P(x − η_t (∇_x f(x, ỹ^λ) + λ (∇_x g(x, ỹ^λ) − ∇_x g(x, ỹ)) + noise))

The output is the x_t whose step ‖x_{t+1} − x_t‖ was the smallest: a function of released values. What of the last
line reads no record is exact and free, and so is all of it where neither ∇_x h nor ∇_x l reads one.

λ → penalty, η → x, P → domain, a Poisson sample of the records → rate.

Whose data: every record of every agent, against those who see what the coordinator publishes; the coordinator is
trusted, and receives clipped sums. Sensitivities are those of clipped means: 2C_y/n_t and 2C_z/(λ n_v) in the solvers,
2C_x/n_v and 2λC_x/n_t in the step, the larger of the two kinds. A Gaussian release of price μ; Σμ² is exact, also where
later releases depend on earlier ones. With samples, the accountant's Poisson rule.

The paper's split (ε/√(18T), δ/(3(T+1))) per release is `printed`; composed exactly it is not ε for solvers in general.

Reference: G. Kornowski, "Differentially Private Bilevel Optimization", 2024.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Self

import numpy as np

from decentral_dp.algorithms.central.inner import DpGd, Level
from decentral_dp.algorithms.central.plan import Part, gaussian_charges
from decentral_dp.algorithms.central.protocol import Calibration, Charge
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.errors import InputError
from decentral_dp.exchange import Ask, Publish, Request, Response, Sum
from decentral_dp.privacy.sensitivity import Array, Bounded, Kind
from decentral_dp.problems.desk import Desk
from decentral_dp.problems.protocol import CHANGE


class State(NamedTuple):
    """x: (p,) the iterate. y, pulled: (q,) last released. best, best_y: of the smallest step so far, and its size."""

    x: Array
    y: Array
    pulled: Array
    best: Array
    best_y: Array
    step: float


@dataclass(frozen=True)
class DpBilevel:
    """x: η, penalty: λ, inner: K steps of the solver, rate: of Poisson samples; None: settled by public constants."""

    x: StepSize | None = None
    penalty: float | None = None
    inner: int | None = None
    smoothness: float | None = None
    rate: float = 1.0
    solver: str = "dp_gd"
    protocol: Literal["released", "printed"] = "released"
    start: Mapping[str, float] = field(default_factory=dict)
    # Settled: whether the step of x reads records.
    reads: bool = True

    channels = ("x", "y")
    central = True
    needs_constants = False
    pools = False
    asks = ("lower_grad_y", "upper_grad_y", "upper_grad_x", CHANGE)

    @property
    def exchanges(self) -> int:
        return 2 * self._solver.publishes + self.reads

    @property
    def _solver(self) -> DpGd:
        return DpGd(self.inner or 1, self.smoothness or 1.0, self.rate)

    @property
    def _pulled(self) -> Level:
        return Level("pulled", self.penalty or 1.0)

    def settled(self, desk: Desk) -> tuple[Self, Desk]:
        reads = desk.reads("upper_grad_x") or desk.reads("lower_jvp")
        if None in (self.x, self.penalty, self.inner, self.smoothness):
            raise InputError("algorithm: give x, penalty, inner and smoothness.")
        return replace(self, reads=reads), desk

    def init(self, desk: Desk) -> State:
        x, y = desk.start("x", self.start), desk.start("y", self.start)
        return State(x, y, y, x, y, np.inf)

    def step(self, t: int, desk: Desk, s: State) -> Generator[Request, Response, State]:
        lam = self._pulled.pull
        y = yield from self._solver.solve(desk, Level("y"), s.x, s.y)
        pulled = yield from self._solver.solve(desk, self._pulled, s.x, s.pulled)
        gradient = lam * desk.regulariser_change(s.x, pulled, y)
        if self.reads:
            told = yield Publish(gx=(yield from self._slope(desk, s.x, y, pulled, lam)))
            gradient = gradient + told.own.gx[0]
        eta = self.x(t) if self.x is not None else 0.0
        x = desk.domain.project(s.x - eta * gradient)
        moved = float(np.linalg.norm(x - s.x))
        best = (s.x, y, moved) if moved < s.step else (s.best, s.best_y, s.step)
        return State(x, y, pulled, *best)

    def _slope(
        self, desk: Desk, x: Array, y: Array, pulled: Array, lam: float
    ) -> Generator[Request, Response, Bounded]:
        """What of the step reads records."""
        asked = {}
        if desk.reads("upper_grad_x"):
            asked["f"] = Sum("upper_grad_x", x, pulled, rate=self.rate)
        if desk.reads("lower_jvp"):
            asked["g"] = Sum(CHANGE, x, pulled, y, rate=self.rate)
        answer = yield Ask(**asked)
        parts: list[Bounded] = [(1.0 if name == "f" else lam) * answer[name] for name in asked]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def published(self, s: State) -> dict[str, Array]:
        return {"x": s.best, "y": s.best_y}

    def free(self, desk: Desk) -> dict[str, int]:
        return {}

    def planned(self, desk: Desk, rounds: int) -> dict[str, Charge]:
        each = self._solver.publishes
        parts = {
            "y": self._solver.part(desk, Level("y"), 0, 1.0),
            "pulled": self._solver.part(desk, self._pulled, each, 1.0),
        }
        if self.reads:
            terms: dict[str, str] = {"upper_grad_x": "upper_grad_x", "lower_jvp": "lower_jvp"}
            kinds: list[Kind] = [desk.problem.touches[t] for t in terms if desk.reads(t)]
            parts["gx"] = Part((2 * each,), desk.problem.p, kinds, 1.0, self.rate)
        return gaussian_charges(rounds, self.exchanges, parts)

    def printed(self, desk: Desk, rounds: int, epsilon: float, delta: float) -> dict[str, Calibration]:
        raise InputError('privacy.guarantee: "as_printed" is not there yet.')
