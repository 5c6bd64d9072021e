"""Families of one problem each: groups with weights, means in closed form; and constants that a user declares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.constants.boxes import UP, box_norm, box_weights, box_width, rounded
from decentral_dp.constants.family import (
    CONSTANT_CURVATURE,
    UPPER_OF_Y_ALONE,
    Family,
    LossFamily,
    QuadraticFamily,
)
from decentral_dp.constants.loss_bounds import LossBounds
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.mean_estimation import MeanEstimation
from decentral_dp.problems.bilevel.mean_lower_bound import MeanLowerBound
from decentral_dp.problems.protocol import Problem

# What may be zero of declared constants: all that is not there where a function does not read a variable or a record.
_POSITIVE = ("radius", "mu")


@dataclass(frozen=True)
class Weighed(LossFamily):
    """`HyperCleaning`: l = σ(x_g) CE, h = CE, R = ½ ridge ‖y‖². Train records must be those of `placed`.

    A replaced record stays in its group g, so every difference of two records has the weight σ(x_g) ≤ s or the slope
    σ'(x_g) ≤ s' in front. ∇²_xy G has the rows σ'(x_g) n_g/n · (mean of ∇CE over group g). With Σ(n_g/n)² ≤ 1 its
    norm is at most s' G. What x moves, coordinate by coordinate, is at most sup|σ''| G‖Δx‖ and s'·sup‖∇²CE‖‖Δx‖.
    See docs/proofs/18.
    """

    problem: HyperCleaning
    loss: LossBounds

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        box_norm(self.problem.p, low, high, record_mass)
        ridge, (weight, slope) = self.problem.ridge, box_weights(low, high)
        r = self.loss.reach(ridge, weight + record_mass - 1.0, 0.0)
        g, smooth = self.loss.gradient(r), self.loss.smoothness
        return rounded(
            ProblemConstants(
                **UPPER_OF_Y_ALONE,
                radius=r,
                mu=ridge,
                l_fy=g,
                l_gy=weight * g + ridge * r,
                d_fy=2.0 * g,
                d_gy=2.0 * weight * g,
                b_fyy=smooth,
                b_gxy=slope * g,
                b_gyy=weight * smooth + ridge,
                d_hxy=2.0 * slope * g,
                d_hyy=weight * smooth,
                c_gxy=slope * smooth,
                c_gyy=weight * self.loss.third,
                m_gxy=g / (6.0 * math.sqrt(3.0)),
                m_gyy=slope * smooth,
                m=slope * g / ridge,
            )
        )


@dataclass(frozen=True)
class Mean(QuadraticFamily):
    """`MeanEstimation`: l = −aᵀy, h = ½‖y − a‖², R = ½‖y‖² + ½ ridge ‖y − x‖², for records with ‖a‖ ≤ record_radius.

    The minimiser is (c + (mass − 1) c̄ + ridge x)/(ridge + mass), c and c̄ the means of train and validation records.
    """

    problem: MeanEstimation
    record_radius: float

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        k, a = self.problem.ridge, self.record_radius
        out = k / (1.0 + k) * box_norm(self.problem.p, low, high, record_mass)
        r = (record_mass * a + (record_mass - 1.0) * out) / (k + record_mass)
        return rounded(
            ProblemConstants(
                **UPPER_OF_Y_ALONE,
                **CONSTANT_CURVATURE,
                radius=r,
                mu=1.0 + k,
                l_fy=out + r + a,
                l_gy=a + (1.0 + k) * r,
                d_fy=2.0 * a,
                d_gy=2.0 * a,
                b_fyy=1.0,
                b_gxy=k,
                b_gyy=1.0 + k,
                m=k / (1.0 + k),
            )
        )

    def centre(self, x: Array) -> Array:
        return np.asarray(self.problem.ridge / (1.0 + self.problem.ridge) * x)

    def loss_range(self, low: Array, high: Array) -> float:
        """Bound max f − min f: f lies between 0 and ½(‖y‖ + ‖a‖)²."""
        return UP * 0.5 * self.constants(low, high).l_fy ** 2


@dataclass(frozen=True)
class Linear(QuadraticFamily):
    """`MeanLowerBound`: l = 0, h = −slope ⟨y, a⟩, R = ½ ridge ‖y − stretch·x‖². y_Z(x) = stretch·x for every Z."""

    problem: MeanLowerBound
    record_radius: float

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        box_norm(self.problem.p, low, high, record_mass)
        k, slope = self.problem.ridge, self.problem.slope * self.record_radius
        r = (record_mass - 1.0) * slope / k
        return rounded(
            ProblemConstants(
                **UPPER_OF_Y_ALONE,
                **CONSTANT_CURVATURE,
                radius=r,
                mu=k,
                l_fy=slope,
                l_gy=k * r,
                d_fy=2.0 * slope,
                d_gy=0.0,
                b_fyy=0.0,
                b_gxy=k * self.problem.stretch,
                b_gyy=k,
                m=self.problem.stretch,
            )
        )

    def centre(self, x: Array) -> Array:
        return np.asarray(self.problem.stretch * x)

    def loss_range(self, low: Array, high: Array) -> float:
        """Bound max f − min f: f varies along y_Z(x) = stretch·x, whose distances are at most stretch·D_x."""
        return UP * self.constants(low, high).l_fy * self.problem.stretch * box_width(low, high)


@dataclass(frozen=True)
class Declared(Family):
    """A problem with constants that its user vouches for, at every x, and for the ball of every release around 0.

    Args:
        problem: the bilevel problem.
        given: the constants.

    Raises:
        InputError: a constant that is negative or not finite, or radius or μ of 0.
    """

    problem: Problem
    given: ProblemConstants

    def __post_init__(self) -> None:
        for name, value in list(self.given._asdict().items())[:-1]:
            least = "a finite number above 0" if name in _POSITIVE else "a finite number, 0 or more"
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or value < 0.0 or (value == 0.0 and name in _POSITIVE):
                raise InputError(f"privacy.constants.{name}: got {value!r}; wanted {least}.")

    @classmethod
    def from_table(cls, problem: Problem, table: Mapping[str, float]) -> Declared:
        """Make it from constants by name.

        Raises:
            InputError: a constant that is missing or unknown.
        """
        wanted = [name for name in ProblemConstants._fields if name != "label"]
        for missing in (name for name in wanted if name not in table):
            raise InputError(f"privacy.constants.{missing}: missing; wanted a number for each of {', '.join(wanted)}.")
        for unknown in (name for name in table if name not in wanted):
            raise InputError(f"privacy.constants.{unknown}: no such constant; wanted are {', '.join(wanted)}.")
        return cls(problem, ProblemConstants._make([*(table[name] for name in wanted), "declared"]))

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        """Return the same everywhere: the box, which may have no bounds, and the mass are not read."""
        return rounded(self.given._replace(label="declared"))
