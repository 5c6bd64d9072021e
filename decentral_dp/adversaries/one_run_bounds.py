"""Bounds on the number of right guesses in one run, under (ε, δ) and under any trade-off curve.

m fair coins are tossed, and each decides one record. A mechanism runs once. From its output alone an attacker guesses r
of the coins, of its own choice; V of these guesses are right. How large V may be follows from the guarantee of a single
record, since the coins are independent.

Under (ε, δ) (Steinke, Nasr & Jagielski, NeurIPS 2023, Theorem 5.2):

    P(V ≥ v) ≤ β + 2mδ·α,     β = P(B ≥ v),     α = max_{1 ≤ i ≤ v} P(v − i ≤ B < v)/i,     B ~ Bin(r, e^ε/(1 + e^ε)).

Under a trade-off curve f (Mahloujifar, Melis & Chaudhuri, ICML 2025, arXiv 2410.22235, the recursion of their audit;
the proof here is our own). f(α) is the least type II error of any test between two worlds that differ in one record, in
either direction, at type I error α. The largest power at that error is F = 1 − f, concave and increasing. Let
p_j = P(V = j), and

    h_c = Σ_{j ≥ c} j·p_j/m,     w_c = Σ_{j ≥ c} (r − j)·p_j/m.

Claim: h_c ≤ F(w_{c−1}) for c = 1, …, r.

Proof. Fix a coin i and all the others. Let V_i be the number of right guesses but for that of coin i. It depends on the
output and on the other coins alone. The event S_b, that coin i is guessed as b and V_i ≥ c − 1, is therefore a test
between the two worlds of coin i: P_1(S_1) ≤ F(P_0(S_1)) and P_0(S_0) ≤ F(P_1(S_0)). The mean of both sides over coin i,
over the other coins and over i = 1, …, m is, F being concave,

    mean P(i is guessed right, V_i ≥ c − 1) ≤ F(mean P(i is guessed wrong, V_i ≥ c − 1)).

Where i is guessed right, V = V_i + 1, so that the left side is Σ_i P(i right, V ≥ c)/m = E[V; V ≥ c]/m = h_c. Where i
is guessed wrong, V = V_i, and the mean on the right is E[r − V; V ≥ c − 1]/m = w_{c−1}. ∎

Let G(h) be the least x with F(x) ≥ h. Suppose P(V ≥ v) ≥ τ. Of all laws p with that tail and h_c ≤ F(w_{c−1}), one has
the least tails P(V ≥ k) for all k < v. It has mass τ at v, then from c = v down to 1

    p_{c−1} = max(0, G(h_c) − w_c)·m/(r − c + 1).

Proof. Let d be the difference of another such law to this one, D_k = Σ_{j ≥ k} d_j and A_c = Σ_{k ≥ c} D_k. Then
D_v ≥ 0 and A_v ≥ 0, for this law has all its mass at v. Suppose that A_c and D_c are at least 0. Then
Σ_{j ≥ c} j·d_j = (c − 1)·D_c + A_c ≥ 0: the other h_c is at least this one. If p_{c−1} = 0, then D_{c−1} ≥ D_c ≥ 0.
Else w_{c−1} = G(h_c) here, and at least that there, which says (r − c + 1)·D_{c−1} ≥ A_c. In both cases D_{c−1} ≥ 0
and A_{c−1} = A_c + D_{c−1} ≥ 0. ∎

So P(V ≥ v) ≥ τ is impossible where the masses of that law add up to more than 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom

# Largest ε and μ that are looked at.
LARGEST_EPSILON, LARGEST_MU = 60.0, 20.0
# What float64 may add to the masses, and how near a root is found: both only take off what is shown.
_ROUNDING, _TOLERANCE = 1e-9, 1e-6

LeastError = Callable[[float], float]
"""h → G(h), the least type I error at which a test has power h."""


def gaussian_error(mu: float) -> LeastError:
    """Give G of the curve between N(0, 1) and N(μ, 1): Φ(Φ⁻¹(h) − μ).

    Example:
        >>> round(gaussian_error(mu=2.0)(0.5), 4)
        0.0228
    """
    return lambda power: float(ndtr(ndtri(min(power, 1.0)) - mu))


def approximate_error(epsilon: float, delta: float) -> LeastError:
    """Give G of the curve of (ε, δ): max(0, e^(−ε)·(h − δ), 1 − δ − e^ε·(1 − h)).

    Example:
        >>> approximate_error(epsilon=0.0, delta=0.1)(0.6)
        0.5
    """
    grown = float(np.exp(epsilon))
    return lambda power: max(0.0, (power - delta) / grown, 1.0 - delta - grown * (1.0 - power))


def impossible(right: int, guesses: int, canaries: int, error: LeastError, probability: float) -> bool:
    """Say whether so many right guesses, or more, are less likely than a probability under a trade-off curve.

    Args:
        right: v ≥ 0, how many are right.
        guesses: r, how many are made.
        canaries: m, how many coins there are.
        error: G of the curve.
        probability: τ.

    Returns:
        Whether P(V ≥ v) < τ is proven.

    References:
        The recursion of Mahloujifar, Melis & Chaudhuri 2025 (arXiv 2410.22235), proven in the docstring of this module.

    Example:
        >>> impossible(10, 10, 10, gaussian_error(mu=0.0), 2e-3), impossible(10, 10, 10, gaussian_error(mu=0.0), 5e-4)
        (True, False)
    """
    total, correct, wrong = probability, right * probability / canaries, (guesses - right) * probability / canaries
    for c in range(right, 0, -1):
        # Float64 may take too little, never too much.
        least = (1.0 - _ROUNDING) * error(correct)
        added = max(0.0, least - wrong) * canaries / (guesses - c + 1)
        total += added
        correct += (c - 1) * added / canaries
        wrong += (guesses - c + 1) * added / canaries
        if total > 1.0 + _ROUNDING:
            return True
    return False


def most_refuted(refuted: Callable[[float], bool], largest: float) -> float:
    """Find the largest parameter that is refuted, from below; `refuted` holds up to some number.

    Args:
        refuted: parameter → whether it is.
        largest: parameter that is not exceeded.

    Returns:
        0 where not even 0 is refuted.
    """
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, largest
    if refuted(high):
        return high
    while high - low > _TOLERANCE:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def mu_refuted(right: int, guesses: int, canaries: int, risk: float) -> float:
    """Find the largest μ under which so many right guesses are less likely than the risk.

    Args:
        right: how many are right.
        guesses: how many were made.
        canaries: how many coins there were.
        risk: one less the confidence.

    Returns:
        μ of a Gaussian trade-off curve, from below.

    Example:
        >>> round(mu_refuted(right=95, guesses=100, canaries=100, risk=0.05), 3)
        1.083
    """
    return most_refuted(lambda mu: impossible(right, guesses, canaries, gaussian_error(mu), risk), LARGEST_MU)


def epsilon_refuted(right: int, guesses: int, canaries: int, delta: float, risk: float) -> float:
    """Find the largest ε under which so many right guesses are less likely than the risk, by Steinke et al.

    Args:
        right: how many are right.
        guesses: how many were made.
        canaries: how many coins there were.
        delta: δ.
        risk: one less the confidence.

    Returns:
        ε, from below; 0 where not even 0 is refuted.
    """

    def excess(epsilon: float) -> float:
        return chance(right, guesses, canaries, epsilon, delta) - risk

    if excess(0.0) >= 0.0:
        return 0.0
    if excess(LARGEST_EPSILON) < 0.0:
        return LARGEST_EPSILON
    return float(brentq(excess, 0.0, LARGEST_EPSILON, xtol=_TOLERANCE)) - _TOLERANCE


def chance(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Bound the probability of so many right guesses or more, under (ε, δ).

    Args:
        right: how many are right.
        guesses: how many were made.
        canaries: how many coins there were.
        epsilon: ε.
        delta: δ.

    Returns:
        A probability, at most 1.

    References:
        Steinke, Nasr & Jagielski, NeurIPS 2023, Theorem 5.2.
    """
    q = 1.0 / (1.0 + np.exp(-epsilon))
    if right == 0:
        return 1.0
    steps = np.arange(1, right + 1)
    within = np.cumsum(binom.pmf(right - steps, guesses, q))
    slack = float((within / steps).max())
    return min(1.0, float(binom.sf(right - 1, guesses, q)) + 2.0 * canaries * delta * slack)
