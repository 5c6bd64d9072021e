"""Membership inference under a privacy guarantee: a ceiling on the AUC.

M trains on n records D and publishes θ; a score S(θ, z) guesses whether z was in D. With f = 1[S > S'] + ½·1[S = S'],
the AUC is the expectation of f over everything: records, the trainer's randomness, and ties by a coin. (ε, δ) bounds
such an expectation of any f in [0, 1] on neighbours D ~ D':  E f(M(D)) ≤ e^ε E f(M(D')) + δ. `within_run` is the
ceiling of one game: a member is told from a record left out, within one run, where neighbours differ in one record.

An AUC of one run on finitely many records scatters around its expectation, by its noise and by its split: what is held
against a ceiling is a mean over runs. A ceiling says nothing about another game: numbers that it forbids are possible
there. Proof 31 has the ceilings of more games.
"""

from __future__ import annotations

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
    check_budget(epsilon, delta)
    return 1.0 - (1.0 - delta) * float(expit(-epsilon))


def check_budget(budget: float, delta: float, name: str = "ε") -> None:
    """Raises ValueError unless the budget is at least 0 and δ lies from 0 to 1. name: of the budget."""
    if not budget >= 0.0:
        raise ValueError(f"{name} is at least 0, got {budget}")
    if not 0.0 <= delta <= 1.0:
        raise ValueError(f"δ lies between 0 and 1, got {delta}")
