"""The slope of the validation loss from two private minimisers (Kornowski, Section 7, its sign corrected).

With θ = argmin g, θ^λ = argmin g + f/λ (the argmin of f + λg) and R(θ) = ½‖θ‖², the validation loss F(w) = f(θ_w) has

    dF/dw ≈ λ(R(θ^λ) − R(θ)),     dF/dlog w ≈ wλ(R(θ^λ) − R(θ)),

exact as λ → ∞: if mixing in the validation loss makes the solution grow, the regularisation is too strong, and w must
fall. The printed update adds this number to w, and so climbs. Neither f nor R(θ) depends on both w and data, so given
the two released minimisers the slope is post-processing, and the noise that the paper adds to it is not needed.

Isotropic noise of deviations s₁ and s₂ adds d(s₂² − s₁²)/2 to the difference in expectation; it is subtracted.
"""

from __future__ import annotations

import math

import numpy as np

from decentral_dp.tuning.constants import Family, minimiser_sensitivity
from decentral_dp.tuning.records import Records
from decentral_dp.tuning.solver import Part, certificate, minimise
from decentral_dp.tuning.tuner_releaser import TunerRelease, TunerReleaser

CHANNEL = "pulled"


def slope(weight: float, lam: float, plain: TunerRelease, penalised: TunerRelease) -> float:
    """Estimate of dF/dlog w from the released minimisers of g and of g + f/λ."""
    d = plain.value.size
    grown = 0.5 * float(penalised.value @ penalised.value - plain.value @ plain.value)
    return weight * lam * (grown - 0.5 * d * (penalised.scale**2 - plain.scale**2))


def slope_noise(weight: float, lam: float, plain: TunerRelease, penalised: TunerRelease) -> float:
    """About the standard deviation of the estimate, from released values: λw√(s₁²‖θ‖² + s₂²‖θ^λ‖²)."""
    first, second = (r.scale * float(np.linalg.norm(r.value)) for r in (plain, penalised))
    return weight * lam * math.hypot(first, second)


def release_penalised(
    releaser: TunerReleaser, index: int, family: Family, train: Records, validation: Records, weight: float, lam: float
) -> TunerRelease:
    """The private minimiser of g + f/λ."""
    counts, d = (len(train.labels), len(validation.labels)), train.features.shape[1]
    accuracy = certificate(family, weight, counts, d, 1.0 + 1.0 / lam).accuracy
    penalised = minimise(family, [Part(train, 1.0), Part(validation, 1.0 / lam)], weight)
    sensitivity = minimiser_sensitivity(family, weight, counts[0], accuracy, (lam, counts[1]))
    return releaser.release(index, CHANNEL, penalised, sensitivity)
