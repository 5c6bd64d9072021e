"""Lower bounds on ε: from the scores of many runs, and from one run with many canaries.

m records are replaced by canaries: invented rows with one of two labels, by a fair coin each. After one run an attacker
guesses the coins of the r canaries whose two losses are farthest apart. How many may be right follows from what one
replaced record may cost, for the coins are independent, and any of them alone is one replaced record. Where all
releases are Gaussian and read every record, that is a curve G_μ, and the largest μ that is refuted is turned to ε at δ.
Elsewhere it is (ε, δ) alone.

The bounds on the number of right guesses are these. m fair coins are tossed, and each decides one record. A mechanism
runs once. From its output alone an attacker guesses r of the coins, of its own choice; V of these guesses are right.
How large V may be follows from the guarantee of a single record, since the coins are independent.

Under (ε, δ) (Steinke, Nasr & Jagielski, NeurIPS 2023, Theorem 5.2):

    P(V ≥ v) ≤ β + 2mδ·α,     β = P(B ≥ v),     α = max_{1 ≤ i ≤ v} P(v − i ≤ B < v)/i,     B ~ Bin(r, e^ε/(1 + e^ε)).

Under a trade-off curve f (Mahloujifar, Melis & Chaudhuri, ICML 2025, arXiv 2410.22235, the recursion of their audit;
the proof here is our own). f(α) is the least type II error of any test between two neighbouring data sets, in either
direction, at type I error α. The largest power at that error is F = 1 − f, concave and increasing. Let
p_j = P(V = j), and

    h_c = Σ_{j ≥ c} j·p_j/m,     w_c = Σ_{j ≥ c} (r − j)·p_j/m.

Claim: h_c ≤ F(w_{c−1}) for c = 1, …, r.

Proof. Fix a coin i and all the others. Let V_i be the number of right guesses but for that of coin i. It depends on the
output and on the other coins alone. The event S_b, that coin i is guessed as b and V_i ≥ c − 1, is therefore a test
between the two data sets of coin i: P_1(S_1) ≤ F(P_0(S_1)) and P_0(S_0) ≤ F(P_1(S_0)). The mean of both sides over coin
i, over the other coins and over i = 1, …, m is, F being concave,

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
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from decentral_dp.auditing.losses import is_amplified
from decentral_dp.bounded import Array
from decentral_dp.central.jobs import CoordinatorMinimaxJob
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems.saddle import Attackable
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.statistics import rate_at_least, rate_at_most


def counting_limit(runs: int, delta: float, risk: float) -> float:
    """The most that counting can show with so many runs of each data set: every run told apart."""
    n = runs - runs // 2
    least, most = rate_at_least(n, n, 0.5 * risk), rate_at_most(0, n, 0.5 * risk)
    return max(0.0, float(np.log(np.maximum(least - delta, 1e-300) / most)))


def from_likelihoods(first: Array, second: Array, delta: float, risk: float) -> float:
    """Compute a lower bound on ε at δ from log-likelihood ratios, which holds but for probability `risk`.

    P₁(L ≥ t) ≤ e^{−t} P₀(L ≥ t), so that the rate of the other data set need not be counted, and
    ε ≥ t + log(1 − δ/P₀(L ≥ t)). t is the k-th largest of the scores, k fixed beforehand: the share of the law above it
    is at least the low end of the interval of Clopper and Pearson for k of n.

    Args:
        first: (n,) log-likelihood ratios of the first data set over the second, of runs of the first.
        second: the same ratios, of runs of the second.
        delta: δ.
        risk: probability that the bound may fail.

    Returns:
        ε; 0 where nothing is shown.
    """
    best = 0.0
    for logs in (first, -second):
        n = logs.size
        # Fixed by n and δ alone: the fewest scores whose share, at the low end of its interval, is well above δ.
        least = rate_at_least(np.arange(1, n + 1), n, 0.5 * risk)
        enough = np.flatnonzero(least >= 4.0 * delta)
        if enough.size:
            k = int(enough[0])
            best = max(best, float(np.sort(logs)[n - 1 - k]) + float(np.log1p(-delta / least[k])))
    return best


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


def largest_refuted(refuted: Callable[[float], bool], largest: float) -> float:
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
    return largest_refuted(lambda mu: impossible(right, guesses, canaries, gaussian_error(mu), risk), LARGEST_MU)


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
    return largest_refuted(lambda epsilon: chance(right, guesses, canaries, epsilon, delta) < risk, LARGEST_EPSILON)


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


# Fewer canaries show nothing at any confidence that is worth having.
FEWEST_CANARIES = 20
# Of all canaries, the shares that are guessed; the risk is split among them.
_SHARES = (0.1, 0.25, 0.5, 1.0)
# Of showing something by coins that were not in the run.
_NULL_RISK = 1e-3


class Canaries(NamedTuple):
    """Where canaries lie, and both records of each.

    place: (m, 2) agent and row. first, second: records of m rows, alike but for the label. coins: (m,) whether the
    first is in the data.
    """

    place: NDArray[np.int64]
    first: Any
    second: Any
    coins: NDArray[np.bool_]


class Shown(NamedTuple):
    """What one run shows.

    epsilon: by the bound that fits. null: the same for coins that were not in the run. right: guesses of all canaries.
    plain: ε without the assumption of a Gaussian curve.
    """

    epsilon: float
    null: float
    right: int
    plain: float


def shown_in_one_run(job: PlannedJob, number: int, root: bytes, risk: float) -> Shown:
    """Show an ε by guessing the coins of canaries from one run.

    Args:
        job: of a trusted coordinator on a minimax problem.
        number: how many canaries.
        root: of their rows, their coins and the noise of the run.
        risk: one less the confidence.

    Returns:
        ε that the run shows, by two bounds, and the number of right guesses.

    Raises:
        InputError: where a record cannot be asked about, and for too few canaries or too many.
    """
    job, canaries = plant(job, number, root)
    scores = _scores(job, canaries, root)
    delta, gaussian = job.scenario.privacy.delta, gaussian_throughout(job)
    other = _coins(root, "null", canaries.coins.size)
    right = int(((scores > 0.0) == canaries.coins).sum())
    return Shown(
        one_run_bound(scores, canaries.coins, delta, risk, gaussian),
        one_run_bound(scores, other, delta, _NULL_RISK, gaussian),
        right,
        one_run_bound(scores, canaries.coins, delta, risk, gaussian=False),
    )


def plant(job: PlannedJob, number: int, root: bytes) -> tuple[CoordinatorMinimaxJob, Canaries]:
    """Invent canaries for a job, and toss their coins.

    Args:
        job: of a trusted coordinator on a minimax problem.
        number: how many canaries.
        root: of their rows and their coins.

    Returns:
        The job as it was given, and its canaries.

    Raises:
        InputError: where a record cannot be asked about, and for too few canaries or too many.
    """
    if not isinstance(job, CoordinatorMinimaxJob) or not isinstance(job.problem, Attackable):
        raise InputError(
            "audit: canaries need a model that can be asked about a record: a minimax problem of a trusted coordinator "
            "that classifies or regresses. Leave --canaries out."
        )
    shards = job.shards
    counts = np.array([len(records[0]) for records in job.records["train"]])
    if not FEWEST_CANARIES <= number <= counts.sum() // 2:
        raise InputError(
            f"audit: got {number} canaries; wanted {FEWEST_CANARIES} or more, and at most {counts.sum() // 2}, half of "
            "the train records."
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
    """(m,) the loss of the second record less that of the first, by what a run with the canaries publishes."""
    records = [type(r)(*(column.copy() for column in r)) for r in job.records["train"]]
    for k, (agent, row) in enumerate(canaries.place):
        chosen = canaries.first if canaries.coins[k] else canaries.second
        for column, value in zip(records[agent], chosen, strict=True):
            column[row] = value[k]
    planted = replace(job, records={**job.records, "train": tuple(records)})
    node = planted.with_root(root).coordinator_node()
    published = LocalEngine().coordinate(node, job.rounds).last_snapshot.published
    if "x" not in published or not np.isfinite(published["x"]).all():
        return np.zeros(canaries.coins.size)
    x, problem = published["x"].reshape(-1), cast(Attackable, job.problem)
    with np.errstate(all="ignore"):
        first, second = (problem.record_losses(x, r) for r in (canaries.first, canaries.second))
    return np.asarray(np.nan_to_num(second - first))


def one_run_bound(scores: Array, coins: NDArray[np.bool_], delta: float, risk: float, gaussian: bool) -> float:
    """Bound ε from below by guesses, the surest first.

    Args:
        scores: (m,) positive where the coin is guessed to be so.
        coins: (m,) as they fell.
        delta: δ.
        risk: one less the confidence.
        gaussian: whether one record costs a Gaussian trade-off curve, of unknown μ.

    Returns:
        ε that is shown; 0 where nothing is.
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
    """Say whether all that is released of records is their queries under Gaussian noise, without secret samples."""
    charged = job.ledger.charged_channels
    return bool(charged) and not is_amplified(job) and all(c.mechanism == GAUSSIAN for c in charged)
