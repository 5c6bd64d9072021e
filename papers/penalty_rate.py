"""The penalty gradient from two private minimisers, with the rounds and the penalty of Theorem 4.

A gradient norm α takes T ~ 1/α² rounds (Proposition 10). Each minimiser has a fraction 1/(2T) of the budget and an
error r ~ √(d_y T)/(nε). The penalty λ balances the bias D₁/λ and the error λ·2r. α is their sum, so
α ~ λ⁻¹ ~ (√d_y/(nε))^{1/3}. Neither ∇_x f nor ∇_x g reads a record in this problem, so the gradient needs no noise.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from decentral_dp.bounded import Array
from decentral_dp.central.sensitivities import (
    default_penalty,
    minimiser_sensitivity,
    penalty_bias,
    smoothness,
)
from decentral_dp.constants import ProblemConstants, round_up
from papers.draws import mu_of, noised
from papers.findings import Check, Row, around, slope_check
from papers.instance import Instance, repeated

GAUSSIAN, WORST = "Gaussian inner noise", "inner noise along the worst direction"
UPPER, LOWER = 4, (10, 100, 1000)
_RECORDS = (10_000, 100_000, 1_000_000, 10_000_000)


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    repeats, dimensions = (6, LOWER[:2]) if quick else (20, LOWER)
    for repeat, q, rng, instance, x in repeated("e1", seed, repeats, dimensions, UPPER):
        for n in _RECORDS:
            for panel in (GAUSSIAN, WORST):
                lam, rounds = tuned(instance, x, n)
                errors = inner_errors(rng, instance, x, n, lam, rounds, 40, panel == WORST)
                rmse = penalty_error(instance, x, lam, *errors)
                rows.append(Row(panel, f"d_y = {q}", "records n", n, "RMSE of the gradient", repeat, rmse))
    return rows


def tuned(instance: Instance, x: Array, n: int) -> tuple[float, int]:
    """Choose λ and T for the smallest α that the bounds on bias and noise allow.

    Args:
        instance: problem instance.
        x: upper point (p,).
        n: number of train records.

    Returns:
        λ and T.
    """
    c, d = instance.constants(x), instance.train.shape[1]
    sensitivity = max(minimiser_sensitivity(c, n, n, 0.0).values())

    def parameters(alpha: float) -> tuple[float, int, float]:
        """Return λ and T for α, and the sum of bias and noise."""
        rounds = descent_steps(smoothness(c), 1.0, alpha)
        r = sensitivity * math.sqrt(2.0 * rounds * d) / mu_of()
        lam = default_penalty(c, r, r)
        return lam, rounds, penalty_bias(c) / lam + estimator_bias(c, lam, r, r)

    alpha = float(brentq(lambda a: math.log(parameters(math.exp(a))[2]) - a, math.log(1e-4), math.log(1e4), xtol=1e-6))
    lam, rounds, _ = parameters(math.exp(alpha))
    return lam, rounds


def estimator_bias(c: ProblemConstants, lam: float, plain: float, penalised: float) -> float:
    """Bound the distance β from ∇_x F + λ(∇_x G(ỹ^λ) − ∇_x G(ỹ)) to ∇L*_λ.

        (b_fxy + λ b_gxy)·penalised + λ b_gxy·plain

    Args:
        c: constants on the wider ball of y^λ.
        lam: λ > 0.
        plain: bound on ‖ỹ − y‖.
        penalised: bound on ‖ỹ^λ − y^λ‖.

    References:
        Kornowski 2024, Lemma 20.
    """
    return round_up((c.b_fxy + lam * c.b_gxy) * penalised + lam * c.b_gxy * plain)


def descent_steps(smooth: float, gap: float, target: float) -> int:
    """Compute the number of steps of size 1/(2b) after which the smallest gradient mapping is at most `target`.

        T = ⌈(64/3) b gap/α²⌉

    Args:
        smooth: b.
        gap: public bound on the value at the start minus the infimum.
        target: α.

    Limits:
        The bias may be α/8, and the noise of each step `noise_quantile` up to α/8.

    References:
        Kornowski 2024, Proposition 10.

    Example:
        >>> descent_steps(smooth=2.0, gap=1.0, target=0.5)
        171
    """
    return max(1, math.ceil(64.0 / 3.0 * smooth * gap / target**2))


def inner_errors(
    rng: np.random.Generator, instance: Instance, x: Array, n: int, lam: float, rounds: int, draws: int, worst: bool
) -> tuple[Array, Array]:
    """Draw the errors of released minimisers of G and of G + F/λ.

    Args:
        rng: random bits.
        instance: problem instance.
        x: upper point (p,).
        n: number of train records, and of validation records.
        lam: penalty λ.
        rounds: T; each minimiser has a fraction 1/(2T) of the budget.
        draws: number of draws of each.
        worst: whether to rotate the errors along the first column of P, with opposite signs.

    Returns:
        Released minus exact minimisers of G and of G + F/λ, (draws, q) each.
    """
    each = mu_of() / math.sqrt(2.0 * rounds)
    plain = minimiser_sensitivity(instance.constants(x), n, n, 0.0)
    penalised = minimiser_sensitivity(instance.constants(x, 1.0 + 1.0 / lam), n, n, 0.0, lam)
    errors = [
        noised(rng, np.zeros((draws, instance.train.shape[1])), max(sensitivity.values()) / each)
        for sensitivity in (plain, penalised)
    ]
    if worst:
        lengths = [np.linalg.norm(e, axis=1)[:, None] for e in errors]
        errors = [sign * length * instance.lift[:, 0] for sign, length in zip((1.0, -1.0), lengths, strict=True)]
    return errors[0], errors[1]


def penalty_error(instance: Instance, x: Array, lam: float, error: Array, error_penalised: Array) -> float:
    """Measure the error of the penalty gradient at released minimisers.

    Args:
        instance: problem instance.
        x: upper point (p,).
        lam: penalty λ.
        error: errors of the minimiser of G, (draws, q).
        error_penalised: errors of the minimiser of G + F/λ, (draws, q).

    Returns:
        Root mean squared distance to the hypergradient.
    """
    y, penalised = instance.minimiser(x) + error, instance.penalised(x, lam) + error_penalised
    distance = instance.penalty(x, y, penalised, lam) - instance.hypergradient(x)
    return math.sqrt(float(np.square(distance).sum(axis=1).mean()))


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    checks = [
        slope_check(rows, f"{panel}, {series}: n^(−1/3)", (panel, series), around(-1.0 / 3.0, -0.5))
        for panel in (GAUSSIAN, WORST)
        for series in dict.fromkeys(rows["series"])
    ]
    return checks, ["λ and T determine the exponent, which is therefore equal for both kinds of inner error."]
