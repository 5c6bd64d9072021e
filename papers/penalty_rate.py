"""The penalty gradient from two private minimisers, with rounds and penalty as Theorem 4 has them.

To reach α takes T ~ 1/α² rounds (Proposition 10), each with a share 1/(2T) of the budget for either minimiser, which
then errs by r ~ √(d_y T)/(nε). The penalty λ balances its bias D₁/λ against λ·2r. α is the sum of both, so that
α ~ λ⁻¹ ~ (√d_y/(nε))^{1/3}. Neither ∇_x f nor ∇_x g reads a record here: the gradient itself needs no noise.
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
    """Measure every point of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether there are fewer points and repetitions, in seconds.

    Returns:
        A row for each measured number, with the columns `findings.COLUMNS`.
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
        instance: the problem.
        x: (p,).
        n: records.

    Returns:
        λ and T.
    """
    c, d = instance.constants(x), instance.train.shape[1]
    sensitivity = max(minimiser_sensitivity(c, n, n, 0.0).values())

    def at(alpha: float) -> tuple[float, int, float]:
        """λ and T to reach α, and what bias and noise then add up to."""
        rounds = descent_steps(smoothness(c), 1.0, alpha)
        r = sensitivity * math.sqrt(2.0 * rounds * d) / mu_of()
        lam = default_penalty(c, r, r)
        return lam, rounds, penalty_bias(c) / lam + estimator_bias(c, lam, r, r)

    alpha = float(brentq(lambda a: math.log(at(math.exp(a))[2]) - a, math.log(1e-4), math.log(1e4), xtol=1e-6))
    lam, rounds, _ = at(math.exp(alpha))
    return lam, rounds


def estimator_bias(c: ProblemConstants, lam: float, plain: float, penalised: float) -> float:
    """Bound how far ∇_x F + λ(∇_x G(ỹ^λ) − ∇_x G(ỹ)) is from ∇L*_λ: β.

        (b_fxy + λ b_gxy)·penalised + λ b_gxy·plain

    Args:
        c: constants, which hold on the wider ball of y^λ.
        lam: λ > 0.
        plain: bound on ‖ỹ − y‖.
        penalised: bound on ‖ỹ^λ − y^λ‖.

    References:
        Kornowski 2024, Lemma 20.
    """
    return round_up((c.b_fxy + lam * c.b_gxy) * penalised + lam * c.b_gxy * plain)


def descent_steps(smooth: float, gap: float, target: float) -> int:
    """Count the steps of size 1/(2b) after which the best gradient mapping is at most `target`.

        T = ⌈(64/3) b gap/α²⌉

    Args:
        smooth: b.
        gap: bound on the value at the start minus its infimum, from public facts.
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
    """Draw the errors of released minimisers, of G and of G + F/λ.

    Args:
        rng: random bits.
        instance: the problem.
        x: (p,) upper point.
        n: train records, and as many validation records.
        lam: the penalty λ.
        rounds: T; either minimiser has a share 1/(2T) of the budget.
        draws: how many of each.
        worst: whether errors, as long, lie along the first column of P with opposite signs, which a bound on their
            length allows.

    Returns:
        Released minus exact minimisers, of G and of G + F/λ: (draws, q) each.
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
    """Measure the penalty gradient at released minimisers with these errors.

    Args:
        instance: the problem.
        x: (p,) upper point.
        lam: the penalty λ.
        error: (draws, q) of the minimiser of G.
        error_penalised: (draws, q) of that of G + F/λ.

    Returns:
        The root of the mean squared distance to the hypergradient.
    """
    y, penalised = instance.minimiser(x) + error, instance.penalised(x, lam) + error_penalised
    away = instance.penalty(x, y, penalised, lam) - instance.hypergradient(x)
    return math.sqrt(float(np.square(away).sum(axis=1).mean()))


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Hold the claims against what was measured.

    Args:
        rows: table of measured numbers, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the numbers.
    """
    checks = [
        slope_check(rows, f"{panel}, {series}: n^(−1/3)", (panel, series), around(-1.0 / 3.0, -0.5))
        for panel in (GAUSSIAN, WORST)
        for series in dict.fromkeys(rows["series"])
    ]
    return checks, ["The exponent is that of λ and T: it is the same for both kinds of inner error."]
