"""Privacy budgets of the released-state protocol for T → ∞: certified sums over infinitely many rounds.

The release at the end of round t = 0, 1, … has sensitivity λ₀(t+1)^{−v}·2C/N_t and noise of standard deviation
σ(t+2)^{−ς}. The Laplace scale b is this deviation divided by √2. With N_t = n₀ + (t+1)B the cost is

    Laplace   ε_t = (2√2 C λ₀/σ) (t+2)^ς (t+1)^{−v} / (n₀ + (t+1)B)           Σε finite iff v > ς, Σε² iff v > ς − 1/2
    Gaussian  μ_t = (2 C λ₀/σ)   (t+2)^ς (t+1)^{−v} / (n₀ + (t+1)B)           Σμ² finite iff v > ς − 1/2

These are the budgets of an endless stream. A real shard is finite: N_t stays at n, and the conditions become v > ς + 1
for Σε and v > ς + 1/2 for the squares. So the pure ε of a finite shard diverges for every decay v ≤ 1 of the learning
rate with noise that does not grow, and ε(δ) is finite only if the learning rate decays faster than √t times the noise.

The sums are in exact arithmetic. Grid, summation slack and the samplers' slack, which a finite run is charged, grow
without bound with T and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms import LAPLACE, Mechanism, mechanism_of, noise_of
from decentral_dp.privacy.schedules import StepSize

# Rounds that are summed explicitly; the bounds on the remainder are tight.
_EXPLICIT_ROUNDS = 100_000


class DecayingRelease(NamedTuple):
    """Release of one channel in every round.

    Attributes:
        step: learning rate schedule λ_t.
        noise: schedule of the noise's standard deviation, with parameters (σ, ς).
        clip: clipping norm C.
    """

    step: StepSize
    noise: StepSize
    clip: float


class Arrivals(NamedTuple):
    """Number of records in round t, N_t = min(records, warm_start + (t + 1)·batch).

    Args:
        batch: number of records that arrive each round. `records = batch` bounds a minibatch of that size without
            amplification.
        warm_start: number of records before round 0.
        records: total number of records; None (the default) means an endless stream.
    """

    batch: int
    warm_start: int = 0
    records: int | None = None


def round_losses(
    query: DecayingRelease, arrivals: Arrivals, rounds: int = _EXPLICIT_ROUNDS, mechanism: Mechanism | str = LAPLACE
) -> Array:
    """Compute the cost of every round, in exact arithmetic.

    Args:
        query: release of each round.
        arrivals: arrivals of the records that it reads.
        rounds: number of rounds.
        mechanism: noise mechanism, "laplace" (the default) or "gaussian".

    Returns:
        ε_t (Laplace) or μ_t (Gaussian), (rounds,).

    Example:
        >>> from decentral_dp.privacy.schedules import StepSize
        >>> query = DecayingRelease(StepSize(0.1, 0.8), StepSize(1.0, 0.1), clip=1.0)
        >>> round_losses(query, Arrivals(batch=5), rounds=3).round(4).tolist()
        [0.0606, 0.0181, 0.009]
    """
    step, noise, _ = query
    t = np.arange(float(rounds))
    n = arrivals.warm_start + (t + 1.0) * arrivals.batch
    if arrivals.records is not None:
        n = np.minimum(n, float(arrivals.records))
    return np.asarray(_factor(query, mechanism) * (t + 2.0) ** noise.decay * (t + 1.0) ** -step.decay / n)


def remainder(
    query: DecayingRelease,
    arrivals: Arrivals,
    after: int = 0,
    mechanism: Mechanism | str = LAPLACE,
    squares: bool | None = None,
) -> float:
    """Bound Σ_{t≥after} ε_t (Laplace) or Σ_{t≥after} μ_t² (Gaussian) from above.

    Args:
        query: release of each round.
        arrivals: arrivals of the records that it reads.
        after: first round of the sum.
        mechanism: noise mechanism, "laplace" (the default) or "gaussian".
        squares: whether to sum squares, by default only for Gaussian noise.

    Returns:
        The bound; +inf if the sum diverges. See docs/proofs/04.

    Example:
        >>> from decentral_dp.privacy.schedules import StepSize
        >>> query = DecayingRelease(StepSize(0.1, 0.8), StepSize(1.0, 0.1), clip=1.0)
        >>> round(remainder(query, Arrivals(batch=5)), 3), remainder(query, Arrivals(batch=5, records=100))
        (0.122, inf)
    """
    (step, noise, _), (batch, warm_start, records) = query, arrivals
    factor = _factor(query, mechanism)
    if factor == 0.0:
        return 0.0
    power = 2 if (mechanism_of(mechanism).unit == "μ" if squares is None else squares) else 1
    exponent = power * (step.decay - noise.decay + (1.0 if records is None else 0.0))
    if exponent <= 1.0 or math.isinf(factor):
        return math.inf
    full = 0 if records is None else max(0, math.ceil((records - warm_start) / batch) - 1)
    start = max(after, _EXPLICIT_ROUNDS, full)
    explicit = round_losses(query, arrivals, start, mechanism)[after:]
    # With u = t + 1: (t+2)^ς (t+1)^{−v}/N = u^{ς−v} (1 + 1/u)^ς / N, and 1/N ≤ (1/B)(1/u)(1 − a/u + a²/u²), a = n₀/B.
    a = warm_start / batch
    share = np.array([1.0, -a, a * a]) / batch if records is None else np.array([1.0 / records])
    # Coefficients of an upper bound on (1 + 1/u)^exponent for u > start, in powers of 1/u.
    growth = power * noise.decay
    if 0.0 <= growth <= 1.0:
        series = np.array([1.0, growth])
    elif growth <= 2.0:
        series = np.array([1.0, growth, 0.5 * growth * (growth - 1.0)])
    else:
        series = np.array([(1.0 + 1.0 / (start + 1.0)) ** growth])
    for _ in range(power):
        series = np.convolve(series, share)
    tail = sum(float(c) * float(scipy.special.zeta(exponent + k, start + 1.0)) for k, c in enumerate(series))
    return float((explicit**power).sum() + factor**power * tail) * (1.0 + 1e-12)


def account_endless(
    queries: Sequence[DecayingRelease],
    batch: int,
    warm_start: int = 0,
    records: int | None = None,
    mechanism: Mechanism | str = LAPLACE,
    delta: float = 0.0,
) -> float:
    """Bound ε(δ) of one record after infinitely many rounds.

    Args:
        queries: all releases that read this split, one per channel.
        batch: number of records that arrive each round, as in `Arrivals`.
        warm_start: number of records before round 0.
        records: total number of records; None (the default) means an endless stream.
        mechanism: noise mechanism, "laplace" (the default) or "gaussian".
        delta: privacy parameter δ; 0 (the default) gives the pure ε.

    Returns:
        The smaller of Σε and ρ + 2√(ρ ln 1/δ) with ρ = Σε²/2 for Laplace noise, and the exact ε for Gaussian noise;
        +inf if there is no finite bound. See docs/proofs/04.

    Example:
        >>> from decentral_dp.privacy.schedules import StepSize
        >>> gradient = DecayingRelease(StepSize(0.1, 0.8), StepSize(1.0, 0.1), clip=1.0)
        >>> round(account_endless([gradient], batch=5), 3), account_endless([gradient], batch=5, records=100)
        (0.122, inf)
    """
    arrivals = Arrivals(batch, warm_start, records)
    if mechanism_of(mechanism).unit == "μ":
        mu = math.sqrt(sum(remainder(q, arrivals, mechanism=mechanism) for q in queries))
        return float(gaussian_epsilon(mu, delta))
    pure = sum(remainder(q, arrivals) for q in queries)
    if delta == 0.0:
        return pure
    rho = 0.5 * sum(remainder(q, arrivals, squares=True) for q in queries)
    return min(pure, rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta)))


def _factor(query: DecayingRelease, mechanism: Mechanism | str) -> float:
    size, scale = query.clip * query.step.scale, query.noise.scale
    if size == 0.0:
        return 0.0
    deviation = noise_of(mechanism_of(mechanism), "a tail").deviation
    return 2.0 * deviation * size / scale if scale > 0.0 else math.inf
