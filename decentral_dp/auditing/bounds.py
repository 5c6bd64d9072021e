"""Lower bounds on ε: from the scores of many runs, and from one run with many canaries.

Canaries replace m records: synthetic rows with one of two labels, chosen by fair Bernoulli draws. After one run the
attacker guesses the draws of the r canaries with the largest difference of losses. The draws are independent, and each
determines one replaced record. So the guarantee for one record bounds the number V of correct guesses. If all releases
are Gaussian and read every record, that guarantee is a curve G_μ, and the largest refuted μ is converted to ε at δ.
Otherwise it is (ε, δ).

Under (ε, δ) (Steinke, Nasr & Jagielski, NeurIPS 2023, Theorem 5.2):

    P(V ≥ v) ≤ β + 2mδ·α,     β = P(B ≥ v),     α = max_{1 ≤ i ≤ v} P(v − i ≤ B < v)/i,     B ~ Bin(r, e^ε/(1 + e^ε)).

Under a trade-off curve f (Mahloujifar, Melis & Chaudhuri, ICML 2025, arXiv 2410.22235, the recursion of their audit;
the proof here is our own). f(α) is the least type II error of any test between two neighbouring data sets, in either
direction, at type I error α. Its largest power is F = 1 − f, concave and increasing. Let
p_j = P(V = j), and

    h_c = Σ_{j ≥ c} j·p_j/m,     w_c = Σ_{j ≥ c} (r − j)·p_j/m.

Claim: h_c ≤ F(w_{c−1}) for c = 1, …, r.

Proof. Fix a draw i and all others. Let V_i be the number of correct guesses without that of draw i. It depends only
on the output and the other draws. The event S_b, that draw i is guessed as b and V_i ≥ c − 1, is therefore a test
between the two data sets of draw i: P_1(S_1) ≤ F(P_0(S_1)) and P_0(S_0) ≤ F(P_1(S_0)). The mean of both sides over draw
i, over the other draws and over i = 1, …, m is, F being concave,

    mean P(i is guessed right, V_i ≥ c − 1) ≤ F(mean P(i is guessed wrong, V_i ≥ c − 1)).

If i is guessed right, V = V_i + 1, so that the left side is Σ_i P(i right, V ≥ c)/m = E[V; V ≥ c]/m = h_c. If i
is guessed wrong, V = V_i, and the mean on the right is E[r − V; V ≥ c − 1]/m = w_{c−1}. ∎

Let G(h) be the least x with F(x) ≥ h. Suppose P(V ≥ v) ≥ τ. Among all distributions p with that tail and h_c ≤
F(w_{c−1}), one has the least tails P(V ≥ k) for all k < v. It has mass τ at v, then from c = v down to 1

    p_{c−1} = max(0, G(h_c) − w_c)·m/(r − c + 1).

Proof. Let d be the difference of another such distribution and this one, D_k = Σ_{j ≥ k} d_j and A_c = Σ_{k ≥ c} D_k.
Then D_v ≥ 0 and A_v ≥ 0, since this one has all its mass at v. Suppose that A_c and D_c are at least 0. Then Σ_{j ≥ c}
j·d_j = (c − 1)·D_c + A_c ≥ 0: the other h_c is at least this one. If p_{c−1} = 0, then D_{c−1} ≥ D_c ≥ 0. Else w_{c−1}
= G(h_c) here and at least that there, so (r − c + 1)·D_{c−1} ≥ A_c. In both cases D_{c−1} ≥ 0 and A_{c−1} = A_c +
D_{c−1} ≥ 0. ∎

So P(V ≥ v) ≥ τ is impossible if the masses of that distribution add up to more than 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from decentral_dp.auditing.losses import is_amplified
from decentral_dp.bounded import Array
from decentral_dp.central.jobs import CoordinatorMinimaxJob
from decentral_dp.central.problems.saddle import Attackable
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.statistics import rate_at_least, rate_at_most


def counting_limit(runs: int, delta: float, risk: float) -> float:
    """Return the largest possible bound by counting, if every run is distinguished."""
    n = runs - runs // 2
    least, most = rate_at_least(n, n, 0.5 * risk), rate_at_most(0, n, 0.5 * risk)
    return max(0.0, float(np.log(np.maximum(least - delta, 1e-300) / most)))


def bound_by_likelihoods(first: Array, second: Array, delta: float, risk: float) -> float:
    """Compute a lower bound on ε at δ from log-likelihood ratios, with failure probability at most `risk`.

    P₁(L ≥ t) ≤ e^{−t} P₀(L ≥ t), so P₁ need not be estimated, and ε ≥ t + log(1 − δ/P₀(L ≥ t)). t is the k-th largest
    score for a fixed k. The lower Clopper–Pearson limit for k of n bounds P₀(L ≥ t) from below.

    Args:
        first: log-likelihood ratios of the first data set over the second, (n,), in runs on the first.
        second: same ratios, in runs on the second.
        delta: δ.
        risk: probability of failure.

    Returns:
        ε ≥ 0.
    """
    best = 0.0
    for logs in (first, -second):
        n = logs.size
        # The fewest scores whose probability is certainly well above δ: k depends on n and δ only.
        least = rate_at_least(np.arange(1, n + 1), n, 0.5 * risk)
        enough = np.flatnonzero(least >= 4.0 * delta)
        if enough.size:
            k = int(enough[0])
            best = max(best, float(np.sort(logs)[n - 1 - k]) + float(np.log1p(-delta / least[k])))
    return best


# Largest ε and μ of a search.
LARGEST_EPSILON, LARGEST_MU = 60.0, 20.0
# Rounding of the masses, and tolerance of a root: both only lower the bound.
_ROUNDING, _TOLERANCE = 1e-9, 1e-6

LeastError = Callable[[float], float]
"""h → G(h), the least type I error at which a test has power h."""


def gaussian_error(mu: float) -> LeastError:
    """Return G of the curve between N(0, 1) and N(μ, 1): Φ(Φ⁻¹(h) − μ).

    Example:
        >>> round(gaussian_error(mu=2.0)(0.5), 4)
        0.0228
    """
    return lambda power: float(ndtr(ndtri(min(power, 1.0)) - mu))


def is_impossible(right: int, guesses: int, canaries: int, error: LeastError, probability: float) -> bool:
    """Return whether P(V ≥ v) < τ is proven under a trade-off curve.

    Args:
        right: number v ≥ 0 of correct guesses.
        guesses: r, number of guesses.
        canaries: m, number of canaries.
        error: G of the curve.
        probability: τ.

    References:
        The recursion of Mahloujifar, Melis & Chaudhuri 2025 (arXiv 2410.22235), proven in the docstring of this module.

    Example:
        >>> [is_impossible(10, 10, 10, gaussian_error(mu=0.0), p) for p in (2e-3, 5e-4)]
        [True, False]
    """
    total, correct, wrong = probability, right * probability / canaries, (guesses - right) * probability / canaries
    for c in range(right, 0, -1):
        # Rounded down.
        least = (1.0 - _ROUNDING) * error(correct)
        extra = max(0.0, least - wrong) * canaries / (guesses - c + 1)
        total += extra
        correct += (c - 1) * extra / canaries
        wrong += (guesses - c + 1) * extra / canaries
        if total > 1.0 + _ROUNDING:
            return True
    return False


def find_largest_refuted(is_refuted: Callable[[float], bool], largest: float) -> float:
    """Return the largest refuted parameter, from below; 0 if none is refuted.

    Args:
        is_refuted: parameter → whether it is refuted, true up to some number.
        largest: upper end of the search.
    """
    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, largest
    if is_refuted(high):
        return high
    while high - low > _TOLERANCE:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def mu_refuted(right: int, guesses: int, canaries: int, risk: float) -> float:
    """Return the largest μ under which P(V ≥ right) is below the risk.

    Args:
        right: number of correct guesses.
        guesses: number of guesses.
        canaries: number of canaries.
        risk: 1 − confidence.

    Returns:
        μ of a Gaussian trade-off curve, from below.

    Example:
        >>> round(mu_refuted(right=95, guesses=100, canaries=100, risk=0.05), 3)
        1.083
    """
    return find_largest_refuted(
        lambda mu: is_impossible(right, guesses, canaries, gaussian_error(mu), risk), LARGEST_MU
    )


def epsilon_refuted(right: int, guesses: int, canaries: int, delta: float, risk: float) -> float:
    """Return the largest ε under which P(V ≥ right) is below the risk, by Steinke et al.

    Args:
        right: number of correct guesses.
        guesses: number of guesses.
        canaries: number of canaries.
        delta: δ.
        risk: 1 − confidence.

    Returns:
        ε ≥ 0, from below.
    """
    return find_largest_refuted(
        lambda epsilon: bound_chance(right, guesses, canaries, epsilon, delta) < risk, LARGEST_EPSILON
    )


def bound_chance(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Bound P(V ≥ right) under (ε, δ) from above.

    Args:
        right: number of correct guesses.
        guesses: number of guesses.
        canaries: number of canaries.
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


# Fewer canaries give no positive bound at a useful confidence.
FEWEST_CANARIES = 20
# Fractions of the canaries that are guessed; the risk is divided among them.
_SHARES = (0.1, 0.25, 0.5, 1.0)
# Risk for labels that were not in the run.
_NULL_RISK = 1e-3


class Canaries(NamedTuple):
    """Canaries of a run.

    Args:
        place: agent and row of each canary, (m, 2).
        first, second: m records each, which differ only in the label.
        coins: whether the first record is in the data, (m,).
    """

    place: NDArray[np.int64]
    first: Any
    second: Any
    coins: NDArray[np.bool_]


class OneRunBounds(NamedTuple):
    """Lower bounds from one run.

    Args:
        epsilon: by the Gaussian curve if it applies, else by (ε, δ).
        null: the same bound for labels that were not in the run.
        right: number of correct guesses over all canaries.
        plain: bound by (ε, δ).
    """

    epsilon: float
    null: float
    right: int
    plain: float


def bound_by_one_run(job: PlannedJob, number: int, root: bytes, risk: float) -> OneRunBounds:
    """Bound ε by guessing the labels of canaries from one run.

    Args:
        job: job of a trusted coordinator on a minimax problem.
        number: number of canaries.
        root: key of rows, labels and the noise of the run.
        risk: 1 − confidence.

    Raises:
        InputError: as in `draw_canaries`.
    """
    job, canaries = draw_canaries(job, number, root)
    scores = _scores(job, canaries, root)
    delta, gaussian = job.scenario.privacy.delta, gaussian_throughout(job)
    null_coins = _coins(root, "null", canaries.coins.size)
    right = int(((scores > 0.0) == canaries.coins).sum())
    return OneRunBounds(
        one_run_bound(scores, canaries.coins, delta, risk, gaussian),
        one_run_bound(scores, null_coins, delta, _NULL_RISK, gaussian),
        right,
        one_run_bound(scores, canaries.coins, delta, risk, gaussian=False),
    )


def draw_canaries(job: PlannedJob, number: int, root: bytes) -> tuple[CoordinatorMinimaxJob, Canaries]:
    """Draw canaries for a job.

    Args:
        job: job of a trusted coordinator on a minimax problem.
        number: number of canaries.
        root: key of their rows and labels.

    Returns:
        The job with canaries, and the canaries.

    Raises:
        InputError: the model does not score records, or the number is out of range.
    """
    if not isinstance(job, CoordinatorMinimaxJob) or not isinstance(job.problem, Attackable):
        raise InputError(
            "audit: canaries require a minimax problem with a trusted coordinator, whose model scores "
            "records. Fix: remove --canaries."
        )
    shards = job.shards
    counts = np.array([len(records[0]) for records in job.records["train"]])
    if not FEWEST_CANARIES <= number <= counts.sum() // 2:
        raise InputError(
            f"audit: wrong number of canaries (got {number}, expected {FEWEST_CANARIES} to {counts.sum() // 2}, half "
            "of the train records)."
        )
    generator = Streams(root, "canaries", [0]).generator(0, 0, tag("rows"))
    flat = np.sort(generator.choice(int(counts.sum()), number, replace=False))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    agents = np.searchsorted(starts, flat, side="right") - 1
    place = np.stack([agents, flat - starts[agents]], axis=1)
    there = np.concatenate([np.asarray(part) for part in shards.train])
    size = float(np.linalg.norm(shards.features[there].reshape(there.size, -1), axis=1).max()) or 1.0
    rows = generator.normal(size=(number, *shards.features.shape[1:]))
    rows *= size / np.linalg.norm(rows.reshape(number, -1), axis=1).reshape(-1, *[1] * (rows.ndim - 1))
    labels = np.unique(np.asarray(shards.labels, dtype=np.float64)[there])
    pair = [job.problem.prepare(rows, np.full(number, label), job.clip.norm) for label in (labels[0], labels[-1])]
    return job, Canaries(place, pair[0], pair[1], _coins(root, "coins", number))


def _coins(root: bytes, name: str, n: int) -> NDArray[np.bool_]:
    return np.asarray(Streams(root, "canaries", [0]).generator(0, 0, tag(name)).random(n) < 0.5)


def _scores(job: CoordinatorMinimaxJob, canaries: Canaries, root: bytes) -> Array:
    """Return (m,) the loss of the second record minus that of the first, by the model that a run publishes."""
    records = [type(r)(*(column.copy() for column in r)) for r in job.records["train"]]
    for k, (agent, row) in enumerate(canaries.place):
        chosen = canaries.first if canaries.coins[k] else canaries.second
        for column, value in zip(records[agent], chosen, strict=True):
            column[row] = value[k]
    job_with_canaries = replace(job, records={**job.records, "train": tuple(records)})
    node = job_with_canaries.with_root(root).coordinator_node()
    published_values = LocalEngine().coordinate(node, job.rounds).last_snapshot.published
    if "x" not in published_values or not np.isfinite(published_values["x"]).all():
        return np.zeros(canaries.coins.size)
    x, problem = published_values["x"].reshape(-1), cast(Attackable, job.problem)
    with np.errstate(all="ignore"):
        first, second = (problem.record_losses(x, r) for r in (canaries.first, canaries.second))
    return np.asarray(np.nan_to_num(second - first))


def one_run_bound(scores: Array, coins: NDArray[np.bool_], delta: float, risk: float, gaussian: bool) -> float:
    """Bound ε from below by guesses, in the order of their scores.

    Args:
        scores: scores, (m,), positive if the attack predicts the label True.
        coins: drawn labels, (m,).
        delta: δ.
        risk: 1 − confidence.
        gaussian: whether the guarantee of one record is a Gaussian trade-off curve.

    Returns:
        ε ≥ 0.
    """
    order = np.argsort(-np.abs(scores), kind="stable")
    right = (scores > 0.0) == coins
    best = 0.0
    for share in _SHARES:
        r = max(1, round(share * coins.size))
        counts = int(right[order[:r]].sum()), r, coins.size
        if gaussian:
            mu = mu_refuted(*counts, risk / len(_SHARES))
            best = max(best, float(gaussian_epsilon(mu, delta)) if delta > 0.0 else 0.0)
        else:
            best = max(best, epsilon_refuted(*counts, delta, risk / len(_SHARES)))
    return best


def gaussian_throughout(job: PlannedJob) -> bool:
    """Return whether all releases are queries with Gaussian noise, without secret samples."""
    channels = job.ledger.charged_channels
    return bool(channels) and not is_amplified(job) and all(c.mechanism == GAUSSIAN for c in channels)
