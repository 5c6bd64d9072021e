"""Membership inference under a privacy guarantee: ceilings on the AUC, each in its own game.

M trains on n records D and publishes θ; a score S(θ, z) guesses whether z was in D. With f = 1[S > S'] + ½·1[S = S'],
the AUC is the expectation of f over everything: records, the trainer's randomness, and ties by a coin. (ε, δ) bounds
such an expectation of any f in [0, 1] on neighbours D ~ D':  E f(M(D)) ≤ e^ε E f(M(D')) + δ.

    game                                                         neighbours               function
    a member with a record left out, within one run              one record replaced      `within_run`
    the same, but the two differ as groups                       either                   `shifted`

An AUC of one run on finitely many records scatters around its expectation, by its noise and by its split: what is held
against a ceiling is a mean over runs. A ceiling says nothing about a game that is not its own: numbers that one of them
forbids are possible in another. Proof 31 has the ceilings of more games.
"""

from __future__ import annotations

import math

from scipy.special import expit


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
    check(epsilon, delta)
    return 1.0 - (1.0 - delta) * float(expit(-epsilon))


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
    check(epsilon, delta)
    if not 0.0 <= distance <= 1.0:
        raise ValueError(f"an AUC lies between 0 and 1, got {distance}")
    if math.isinf(epsilon):
        return 1.0
    low = math.exp(-epsilon)
    return min(1.0, distance / low + delta if low else 1.0, 1.0 - low * (1.0 - distance - delta))


def check(budget: float, delta: float, name: str = "ε") -> None:
    if not budget >= 0.0:
        raise ValueError(f"{name} is at least 0, got {budget}")
    if not 0.0 <= delta <= 1.0:
        raise ValueError(f"δ lies between 0 and 1, got {delta}")
