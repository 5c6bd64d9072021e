"""Compute AUC bounds of games other than that of `auditing.membership.within_run`: see docs/proofs/31."""

from __future__ import annotations

import math

from scipy.special import expit, ndtr

from papers.membership import shifted


def across_runs(epsilon: float, delta: float) -> float:
    """Bound the AUC of one record, scored in a run with it and in an independent run without.

        1 − (1 − δ)²/(1 + e^ε)

    A test between M(D) and M(D') that errs with probability α on one errs with at least T(α) on the other.
    T(α) = max{0, 1 − δ − e^ε α, e^(−ε)(1 − δ − α)}. The thresholds of a score are such tests, so its AUC is at most
    1 − ∫T. Below T lie two triangles of base 1 − δ and height c = (1 − δ)/(1 + e^ε). T goes from (0, 1 − δ) by (c, c)
    to (1 − δ, 0).

    Args:
        epsilon: ε ≥ 0.
        delta: δ in [0, 1].

    Limits:
        Attained: M reveals the run with probability δ and uses randomised response otherwise. See docs/proofs/31.

    Example:
        >>> round(across_runs(epsilon=1.0, delta=0.01), 4)
        0.7364
    """
    return 1.0 - (1.0 - delta) ** 2 * float(expit(-epsilon))


def within_run_gaussian(mu: float) -> float:
    """Bound the AUC as `within_run` for μ-Gaussian DP: Φ(μ/2).

    An event of probability 1 − A on one neighbour has at most Φ(Φ⁻¹(1 − A) + μ) on the other, so Φ⁻¹(A) ≤ μ − Φ⁻¹(A).

    Limits:
        Attained: of two numbers 1 apart, in random order, M publishes the first plus N(0, 1/μ²).

    Example:
        >>> round(within_run_gaussian(mu=1.0), 4), round(across_runs_gaussian(mu=1.0), 4)
        (0.6915, 0.7602)
    """
    return float(ndtr(0.5 * mu))


def across_runs_gaussian(mu: float) -> float:
    """Bound the AUC as `across_runs` for the same: Φ(μ/√2), for N(μ, 1) exceeds an independent N(0, 1)."""
    return float(ndtr(mu / math.sqrt(2.0)))


def within_run_removed(epsilon: float, delta: float) -> float:
    """Bound the AUC as `within_run`, but neighbours have one record more or less: 1 − e^(−ε)(½ − δ).

    Without z, neither z nor z' is in D, and no score separates exchangeable ones: `shifted` from ½. Its other term,
    ½e^ε + δ, is never smaller, for cosh ε ≥ 1. It lies above (e^ε + δ)/(1 + e^ε), which is false here: replacing is
    removing and adding.

    Limits:
        Attained with δ = 0. If D has one of z and z', M names it with probability e^ε/(1 + e^ε), names the other with
        e^(−ε)/(1 + e^ε), and is silent with the rest. If D has neither or both, M names each with 1/(1 + e^ε).

    Example:
        >>> round(within_run_removed(epsilon=1.0, delta=0.0), 4)
        0.8161
    """
    return shifted(epsilon, delta, 0.5)
