"""The instance of the lower bounds of private bilevel optimisation: a linear upper level, reached through the lower."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from decentral_dp.bounded import Array, LipschitzConstants, Split
from decentral_dp.errors import InputError
from decentral_dp.models.linear_terms import (
    blocks,
    clip_coefficients,
)
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.mean_records import MeanProblem, MeanRecords
from decentral_dp.problems.entry import Entry
from decentral_dp.problems.protocol import TERMS, Regulariser, Terms


@dataclass(frozen=True)
class MeanLowerBound(MeanProblem):
    """Lower level: the upper variable, scaled, whatever the records; upper level: linear in the validation records.

        l = 0,     h(y; a) = −slope ⟨y, a⟩,     R(x, y) = ½ ridge ‖y − stretch·x‖²
        ∇_y h = −slope a,     ∇_y R = ridge (y − stretch·x),     ∇²_yy R·z = ridge z,     ∇²_xy R·z = −ridge stretch z

    With c̄ the mean over agents of the means of their validation records:

        y*(x) = stretch·x     z*(x) = −slope c̄/ridge     F(x) = −slope·stretch ⟨x, c̄⟩     ∇F(x) = −slope·stretch c̄

    F is linear: over a ball of radius r it is smallest at r c̄/‖c̄‖, at −slope·stretch·r‖c̄‖, and no private algorithm
    comes nearer than in estimating a mean. Only validation records are read. Everything of x and of the lower level is
    free. Upper gradients are at most slope·‖a‖, the lower level moves y by stretch·‖x − x'‖.

    n_features → columns of the records, p = q; ridge > 0 → curvature of the lower level; slope > 0 → L_fy per unit of
    ‖a‖; stretch > 0 → D_y/D_x. Labels are not read.

    Reference: Lowy & Liu, DP Bilevel Optimization, proof of Theorem 3.10.
    """

    name: ClassVar[str] = "mean_lower_bound"
    reads_records: ClassVar[Mapping[str, Split]] = MappingProxyType({"upper_grad_y": "validation"})

    slope: float = 1.0
    stretch: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("slope", self.slope), ("stretch", self.stretch)):
            if not 0.0 < value < math.inf:
                raise InputError(f"problem.{name}: got {value}; wanted a positive finite number, for example 1.0.")

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        if "upper_grad_y" not in wanted:
            return Terms()
        total = np.zeros(self.q)
        with np.errstate(all="ignore"):
            for part in blocks(*validation.features.shape):
                norms = (validation.l1 if clip.norm == "l1" else validation.l2)[part]
                factors = clip_coefficients(np.full(norms.size, -self.slope), norms, clip.z)
                total += factors.dot(validation.features[part])
        return Terms(upper_grad_y=total / len(validation.features))

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        with np.errstate(over="ignore", invalid="ignore"):
            away = y - self.stretch * x
            return Regulariser(self.ridge * away, self.ridge * z, -self.ridge * self.stretch * z)

    def regulariser_value(self, x: Array, y: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(0.5 * self.ridge * np.square(y - self.stretch * x).sum(axis=1))

    def losses(self, x: Array, y: Array, records: MeanRecords, weights: Array) -> tuple[Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.zeros(len(y)), -self.slope * (y @ (weights @ records.features))

    def constants(self, box: Mapping[str, float], radius: float | None) -> LipschitzConstants | None:
        """G_y = ridge (y − stretch x), G_z = ridge z + slope a, G_x = ridge stretch z: no box is needed."""
        if radius is None or not math.isfinite(radius):
            return None
        regulariser = np.diag([0.0, self.ridge, self.ridge])
        regulariser[0, 2] = regulariser[1, 0] = self.ridge * self.stretch
        data: dict[Split, Array] = {"train": np.zeros((3, 3)), "validation": np.zeros((3, 3))}
        swap: dict[Split, Array] = {"train": np.zeros(3), "validation": np.array([0.0, 0.0, 2.0 * self.slope * radius])}
        return LipschitzConstants(data, regulariser, swap, two_point=False)

    # Ground truth, over all agents' (train, validation) records: weight 1/m for each agent, 1/n for each record.

    def lower_solution(self, x: Array) -> Array:
        """y*(x), (q,)."""
        return self.stretch * x

    def hypergradient(self, validation: Sequence[MeanRecords]) -> Array:
        """∇F, (p,), the same at every x."""
        means = [v.features.mean(axis=0) for v in validation]
        return np.asarray(-self.slope * self.stretch * np.mean(means, axis=0))


ENTRY = Entry(
    "mean_lower_bound",
    MeanLowerBound,
    "the mean of validation records, felt through the lower level: the instance of the lower bounds",
    task="estimated a mean through a lower level",
)
