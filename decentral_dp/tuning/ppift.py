"""The slope of the validation loss by implicit differentiation at a private minimiser.

    dF/dlog w = −w θᵀ H⁻¹ b,     H = mean_train ∇²l(θ) + wI,     b = mean_validation ∇l(θ),

evaluated at a released θ, and released with noise. As θ is public, so are the mixed derivative wθ and all bounds at θ.
"""

from __future__ import annotations

import numpy as np

from decentral_dp.privacy.bounded import Array
from decentral_dp.tuning.constants import Family, slope_sensitivity
from decentral_dp.tuning.records import Records
from decentral_dp.tuning.solver import inverse_product, moments, solve_error
from decentral_dp.tuning.tuner_releaser import TunerRelease, TunerReleaser

CHANNEL = "slope"


def slope(family: Family, train: Records, validation: Records, weight: float, theta: Array) -> float:
    """−w θᵀ H⁻¹ b at θ, (d,): data-dependent, not private."""
    b = moments(family, validation, theta).gradient
    return -weight * float(theta @ inverse_product(family, train, weight, theta, b))


def release_slope(
    releaser: TunerReleaser,
    index: int,
    family: Family,
    train: Records,
    validation: Records,
    weight: float,
    theta: Array,
) -> TunerRelease:
    """The private slope at a released θ."""
    counts = len(train.labels), len(validation.labels)
    # A point at the origin has no slope to release; noise of no scale would have no grid.
    norm = max(float(np.linalg.norm(theta)) * (1.0 + 1e-12), 1e-9 * family.solution_radius(weight))
    error = solve_error(family, weight, norm, counts, theta.size)
    sensitivity = slope_sensitivity(family, weight, norm, *counts, error)
    exact = slope(family, train, validation, weight, theta)
    return releaser.release(index, CHANNEL, np.array([exact]), sensitivity)
