"""Membership inference under a privacy guarantee: ceilings on the AUC, each in its own game.

M trains on n records D and publishes θ; a score S(θ, z) guesses whether z was in D. With f = 1[S > S'] + ½·1[S = S'],
the AUC is the expectation of f over everything: records, the trainer's randomness, and ties by a coin. (ε, δ) bounds
such an expectation of any f in [0, 1] on neighbours D ~ D':  E f(M(D)) ≤ e^ε E f(M(D')) + δ.

    game               who is compared                          neighbours               function
    within one run     a member with a record left out          one record replaced      `within_run`, `..._gaussian`
    two runs           one record, in and not in                those of the two runs    `across_runs`, `..._gaussian`
    within one run     a member with a record left out          one added or removed     `within_run_removed`
    within one run     the same, but the two differ as groups   either                   `shifted`

An AUC of one run on finitely many records scatters around its expectation, by its noise and by its split: what is held
against a ceiling is a mean over runs. A ceiling says nothing about a game that is not its own: numbers that one of them
forbids are possible in another. That of `across_runs` lies above that of `within_run`, by δ/2 at most.
"""

from __future__ import annotations

import math

from scipy.special import expit, ndtr


def within_run(epsilon: float, delta: float) -> float:
    """Bound the AUC of members against exchangeable others, one record replaced.

        (e^ε + δ)/(1 + e^ε) = 1 − (1 − δ)/(1 + e^ε)

    Let z ∈ D be a member, z' none, and D' = D with z' in z's place. A = E f(S(M(D), z), S(M(D), z')) is at most
    e^ε E f(S(M(D'), z), S(M(D'), z')) + δ. Exchanging z and z' does not change the law of the records, and in D' they
    have changed parts: the last expectation is that of a record left out against a member, 1 − A. So
    A ≤ e^ε(1 − A) + δ. Each member and each other record needs nothing but this exchange, so the mean over all pairs
    of a run obeys it too.

    Args:
        epsilon: ε ≥ 0.
        delta: δ in [0, 1].

    Raises:
        ValueError: what is no (ε, δ).

    Limits:
        Attained: of two records, in random order, M publishes the first as it is with probability δ, and else by
        randomised response. See docs/proofs/31.

    Example:
        >>> round(within_run(epsilon=1.0, delta=0.0), 4), within_run(epsilon=0.0, delta=0.0)
        (0.7311, 0.5)
    """
    _check(epsilon, delta)
    return 1.0 - (1.0 - delta) * float(expit(-epsilon))


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

    Raises:
        ValueError: what is no (ε, δ).

    Limits:
        Attained: M tells which run it is with probability δ, and else by randomised response. See docs/proofs/31.

    Example:
        >>> round(across_runs(epsilon=1.0, delta=0.01), 4)
        0.7364
    """
    _check(epsilon, delta)
    return 1.0 - (1.0 - delta) ** 2 * float(expit(-epsilon))


def within_run_gaussian(mu: float) -> float:
    """Bound the AUC as `within_run` where neighbours are no easier to tell than N(0, 1) and N(μ, 1): Φ(μ/2).

    What has probability 1 − A on one of them has at most Φ(Φ⁻¹(1 − A) + μ) on the other, so Φ⁻¹(A) ≤ μ − Φ⁻¹(A).

    Raises:
        ValueError: what is no μ.

    Limits:
        Attained: of two numbers 1 apart, in random order, M publishes the first plus N(0, 1/μ²).

    Example:
        >>> round(within_run_gaussian(mu=1.0), 4), round(across_runs_gaussian(mu=1.0), 4)
        (0.6915, 0.7602)
    """
    _check(mu, 0.0, "μ")
    return float(ndtr(0.5 * mu))


def across_runs_gaussian(mu: float) -> float:
    """Bound the AUC as `across_runs` for the same: Φ(μ/√2), for N(μ, 1) exceeds an independent N(0, 1).

    Raises:
        ValueError: what is no μ.
    """
    _check(mu, 0.0, "μ")
    return float(ndtr(mu / math.sqrt(2.0)))


def within_run_removed(epsilon: float, delta: float) -> float:
    """Bound the AUC as `within_run`, but neighbours have one record more or less: 1 − e^(−ε)(½ − δ).

    Without z, neither z nor z' is in D, and no score tells exchangeable ones apart: `shifted` from ½. Its other term,
    ½e^ε + δ, is never smaller, for cosh ε ≥ 1. It lies above (e^ε + δ)/(1 + e^ε), which is false here: replacing is
    removing and adding.

    Raises:
        ValueError: what is no (ε, δ).

    Limits:
        Attained with δ = 0. Of z and z', M of one of them names it with probability e^ε/(1 + e^ε), names the other with
        e^(−ε)/(1 + e^ε), and is silent with the rest. Of neither or both it names each with 1/(1 + e^ε).

    Example:
        >>> round(within_run_removed(epsilon=1.0, delta=0.0), 4)
        0.8161
    """
    return shifted(epsilon, delta, 0.5)


def shifted(epsilon: float, delta: float, distance: float) -> float:
    """Bound the AUC where members and others are drawn from different laws.

        min{e^ε A + δ, 1 − e^(−ε)(1 − A − δ)}

    Let D₀ be D without the member z, or with any other record in its place, as neighbours are. Given M(D₀), z and z'
    are as before, and S(M(D₀), ·) is a fixed function: E f(M(D₀)) ≤ A. From there, E f(M(D)) ≤ e^ε E f(M(D₀)) + δ and
    1 − E f(M(D₀)) ≤ e^ε(1 − E f(M(D))) + δ. It takes that z and z' are independent of the other records.

    Args:
        epsilon: ε ≥ 0.
        delta: δ in [0, 1].
        distance: A, the largest AUC of any fixed function of a record. Where the laws differ in the shares of classes
            alone, it is that of the best order of the classes.

    Raises:
        ValueError: what is no (ε, δ), or no AUC.

    Example:
        >>> round(shifted(epsilon=1.0, delta=0.0, distance=0.6), 4)
        0.8528
    """
    _check(epsilon, delta)
    if not 0.0 <= distance <= 1.0:
        raise ValueError(f"an AUC lies between 0 and 1, got {distance}")
    if math.isinf(epsilon):
        return 1.0
    low = math.exp(-epsilon)
    return min(1.0, distance / low + delta if low else 1.0, 1.0 - low * (1.0 - distance - delta))


def _check(budget: float, delta: float, name: str = "ε") -> None:
    if not budget >= 0.0:
        raise ValueError(f"{name} is at least 0, got {budget}")
    if not 0.0 <= delta <= 1.0:
        raise ValueError(f"δ lies between 0 and 1, got {delta}")
