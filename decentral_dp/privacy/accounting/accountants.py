"""Accountants: pure ε and ε(δ) of a ledger, per agent, channel and split, and noise scales for a target budget.

Adjacency: one record of one agent is replaced. Train and validation records are disjoint, so an agent's budget is the
larger of what one train record and one validation record can cost; a record in both would cost the sum.

What composes, given the public transcript so far (each bound holds whatever the transcript):

    Laplace     pure: Σε_t. (ε, δ): privacy-loss distributions
    other       known to be of pure ε and nothing else: pure: Σε_t. (ε, δ): as randomised response, the worst of them
    exponential mechanisms: the same, and ρ = ε²/8 concentrated (bounded range; Dong, Durfee & Rogers 2020)
    Gaussian    pure: ∞.    (ε, δ): exactly Gaussian with μ² = Σμ_t², δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)
    both        (ε, δ): privacy-loss distributions
    a fresh batch, fixed size, share η of the pool, feeding several channels of one round: one release of
                E_t = Σ_channels ε (or μ² = Σ_channels μ²) on that batch, amplified once: log(1 + η(e^{E_t} − 1)).
                Amplifying channel by channel and adding would under-report.
    Poisson     Gaussian releases on a Poisson sample: privacy-loss distributions of the pair of the unit (proof 11)

Prices are those of ideal samplers, and float64 ones are not: what they may add (`float_slack`) is in every ε, and is
taken from δ before ε is read off; of several bounds on it, that with the least ε. So ε(δ) holds for the noise that is
drawn. The pure ε holds but for the slack's δ: no float64 sampler has the tails that pure ε needs.

Every (ε, δ) is the smallest of the pure sum, the concentrated bound ρ + 2√(ρ ln 1/δ) with ρ = Σε²/2 + Σμ²/2 (Bun &
Steinke 2016), the Gaussian closed form and the privacy-loss distribution, as far as they apply.

Calibration inverts the accountants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.errors import InputError
from decentral_dp.formatting import epsilon_text
from decentral_dp.privacy.accounting import loss_distributions
from decentral_dp.privacy.accounting.charges import (
    MOST_COLUMNS,
    Charges,
    ComposedCharges,
    accounts,
    charges,
    gather,
    sampling_slack,
)
from decentral_dp.privacy.accounting.loss_distributions import Releases, amplify, log_gaussian_delta, smallest_epsilon
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import NO_NOISE, DominatingPair

# Below this δ tails are cut where float64 has no numbers left.
SMALLEST_NUMERICAL_DELTA = 1e-100
# Above this ε a finer number means nothing, and its grid would overflow.
LARGEST_NUMERICAL_EPSILON = 1e4
# Above this ε before amplification, samples are composed under a tilt alone.
LARGEST_SAMPLED_EPSILON = 1e6
# A numerical composition is not repeated for a bound on the samplers that may lower ε by less than this part of it.
_WORTH = 1e-3
_WORTH_A_FORMULA = 1e-6


class PrivacyCost(NamedTuple):
    """epsilon: (m,) at the budget's δ. epsilon_pure: (m,) at δ = 0."""

    epsilon: Array
    epsilon_pure: Array


@dataclass(frozen=True)
class Budget:
    """What a ledger costs, per agent; +inf where nothing is proven.

    epsilon: (m,) smallest ε known to hold with δ. epsilon_pure: (m,) with δ = 0. channels: the same for what each
    channel alone reveals. records: the same for one train and for one validation record. slack_epsilon, slack_delta:
    the largest share that all these numbers contain for float64 samplers. notes: sentences on how they came about.
    """

    delta: float
    epsilon: Array
    epsilon_pure: Array
    channels: Mapping[str, PrivacyCost]
    records: Mapping[Split, PrivacyCost]
    slack_epsilon: float
    slack_delta: float
    notes: tuple[str, ...] = field(default=())


def price(ledger: Ledger, delta: float) -> Budget:
    """Price every agent of a ledger.

    Args:
        ledger: what was, or is to be, released.
        delta: δ of the budget, from 0 up to, but below, 1.

    Returns:
        The budget of each agent, with a breakdown by channel and by kind of record.

    Raises:
        InputError: a δ that is none, or a line that is unknown or cannot be priced soundly.

    References:
        Bun & Steinke 2016 (concentrated); Doroshenko et al. 2022 (numerical composition). See docs/proofs/09 and 10.

    Example:
        >>> from decentral_dp.privacy.ledger import ChannelLedger
        >>> ones = np.ones((4, 1))
        >>> line = ChannelLedger(channel="y", mechanism="gaussian", dimension=1, group=np.zeros(3, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": ones}, rate={"train": ones})
        >>> budget = price(Ledger(3, (line,)), delta=1e-5)
        >>> budget.epsilon.round(3).tolist(), budget.epsilon_pure.tolist()
        ([4.377, 4.377, 4.377], [inf, inf, inf])
    """
    _check_delta(delta)
    charged = charges(ledger)
    notes: list[str] = []
    nothing = PrivacyCost(np.zeros(ledger.n_agents), np.zeros(ledger.n_agents))
    known: dict[tuple[int, ...], tuple[PrivacyCost, float, float]] = {}

    def settle(split: Split, channel: str | None = None) -> tuple[PrivacyCost, float, float]:
        # What is charged alike is one object, and is settled once.
        lines = tuple(id(line) for line in charged.lines[split] if channel in (None, line.channel))
        if lines not in known:
            known[lines] = _cost_of_split(charged, split, channel, delta, notes)
        return known[lines]

    settled = {split: settle(split) for split in charged.kinds}
    records = {split: cost for split, (cost, _, _) in settled.items()}
    alone: dict[str, list[PrivacyCost]] = {name: [nothing] for name in charged.names}
    for split in charged.kinds:
        for line in charged.lines[split]:
            alone[line.channel].append(settle(split, line.channel)[0])
    channels = {name: _largest(costs) for name, costs in alone.items()}
    whole = _largest([nothing, *records.values()])
    return Budget(
        delta,
        whole.epsilon,
        whole.epsilon_pure,
        channels,
        records,
        max((epsilon for _, epsilon, _ in settled.values()), default=0.0),
        max((lost for _, _, lost in settled.values()), default=0.0),
        tuple(dict.fromkeys(notes)),
    )


def epsilon_of(ledger: Ledger, delta: float) -> Array:
    """Price every agent of a ledger, without the breakdown by channel that `price` gives.

    Args:
        ledger: what was, or is to be, released.
        delta: δ, from 0 up to, but below, 1.

    Returns:
        (m,) ε(δ) of every agent.

    Raises:
        InputError: as `price`.
    """
    _check_delta(delta)
    charged = charges(ledger)
    costs = [_cost_of_split(charged, split, None, delta, [])[0] for split in charged.kinds]
    return _largest([PrivacyCost(np.zeros(ledger.n_agents), np.zeros(ledger.n_agents)), *costs]).epsilon


def spending(ledger: Ledger, delta: float, rounds: Sequence[int]) -> Array:
    """Bound the ε that the worst agent has spent after each of some rounds.

    Agents are bounded by the elementwise maxima of their releases: the worst agent's own curve wherever one agent is
    charged most in every round, as with equal schedules, or the smallest shard.

    Args:
        ledger: what was, or is to be, released.
        delta: δ, from 0 up to, but below, 1.
        rounds: T of them, in ascending order.

    Returns:
        (T,) upper bounds.

    Raises:
        InputError: as `price`.
    """
    _check_delta(delta)
    cuts = np.asarray(rounds, dtype=np.int64) * ledger.releases_per_round
    charged = charges(ledger)
    worst = np.zeros(cuts.size)
    for split in charged.kinds:
        composed, least = accounts(charged, split, None).dominating(), np.full(cuts.size, np.inf)
        parts = [composed.releases_between(a, b) for a, b in zip([-1, *cuts[:-1]], cuts, strict=True)]
        for slack in sampling_slack(charged, split, None, delta):
            most = slack.largest()
            spent = _epsilon_by_segment(parts, float(most.remaining_delta(delta)[0]))
            least = np.minimum(least, np.where(spent > 0.0, most.total(spent), 0.0))
            if settles(composed, most.added_epsilon(least), least):
                break
        worst = np.maximum(worst, least)
    return worst


def gaussian_epsilon(mu: Array | float, delta: Array | float) -> Array:
    """Solve δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) for ε, from above: the price of a Gaussian pair.

    Args:
        mu: distance of the pair in standard deviations, any shape.
        delta: δ, broadcastable.

    Returns:
        ε, elementwise; +inf where μ is infinite or δ is 0, and 0 where μ is 0.

    References:
        Balle & Wang 2018, Theorem 8.

    Example:
        >>> float(gaussian_epsilon(1.0, 1e-5).round(3)), float(gaussian_epsilon(0.0, 0.0))
        (4.377, 0.0)
    """
    distance, allowed = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(delta, dtype=np.float64))
    if (distance == 0.0).all():
        return np.zeros(distance.shape)
    m = np.clip(distance, 1e-9, 1e150)
    target = np.log(np.maximum(allowed, 1e-300))
    high = smallest_epsilon(m, target)
    within = log_gaussian_delta(m, np.zeros_like(m)) <= target
    impossible = ~np.isfinite(distance) | (allowed <= 0.0)
    return np.where(distance == 0.0, 0.0, np.where(impossible, np.inf, np.where(within, 0.0, high)))


def pure_epsilon(releases: Releases) -> float:
    """Σε, with one amplified term per round of a fresh batch; +inf with Gaussian releases."""
    drawn = (releases.sampled_gaussian, releases.poisson, releases.poisson_groups)
    if releases.mu > 0.0 or any((part[0] > 0.0).any() for part in drawn):
        return float("inf")
    plain = releases.laplace.sum() + releases.pure.sum() + releases.bounded_range.sum()
    return float(plain + amplify(*releases.sampled_laplace).sum())


def epsilon_at(releases: Releases, delta: float, factor: float = 1.0) -> float:
    """Compute the smallest ε(δ) known for one record's releases.

    Args:
        releases: their prices, sorted by what composes with what.
        delta: δ; 0 gives the pure ε.
        factor: on all noise scales; default 1.
    """
    return float(_epsilon_by_segment([releases.divide(factor)], delta)[-1])


def _epsilon_by_segment(segments: Sequence[Releases], delta: float) -> Array:
    """ε(δ) after each segment of releases."""
    pure = np.cumsum([pure_epsilon(s) for s in segments])
    # Infinite if a release hides nothing at all.
    if delta == 0.0 or not np.isfinite([float(sum(np.sum(part) for part in s)) for s in segments]).all():
        return np.asarray(pure)
    mu = np.sqrt(np.cumsum([s.mu**2 for s in segments]))
    if all(s.only_gaussian for s in segments):
        return gaussian_epsilon(mu, delta)
    rho = np.cumsum([_zcdp_rho(s) for s in segments])
    best = np.minimum(pure, rho + 2.0 * np.sqrt(rho * np.log(1.0 / delta)))
    sampled = any(s.poisson.size or s.poisson_groups.size or s.sampled_gaussian.size for s in segments)
    if not sampled:
        # Pure releases by their sum, beside the Gaussian ones exactly.
        plain = np.cumsum([pure_epsilon(s._replace(mu=0.0)) for s in segments]) if mu[-1] > 0.0 else pure
        best = np.minimum(best, plain + gaussian_epsilon(mu, delta))
    # Before amplification a sampled release may look far dearer than it is.
    too_dear = not sampled and best[-1] > LARGEST_NUMERICAL_EPSILON
    if delta < SMALLEST_NUMERICAL_DELTA or not best[-1] > 0.0 or too_dear:
        return np.asarray(best)
    numerical = loss_distributions.epsilons(segments, delta, tilted=best[-1] > LARGEST_SAMPLED_EPSILON)
    return np.asarray(np.minimum(best, numerical))


def _zcdp_rho(releases: Releases) -> float:
    """ρ of zero-concentrated privacy, unamplified.

    ε²/2 per pure release, ε²/8 per exponential mechanism, μ²/2 per Gaussian one.
    """
    squares = (releases.laplace**2).sum() + (amplify(*releases.sampled_laplace) ** 2).sum()
    squares += (releases.pure**2).sum() + 0.25 * (releases.bounded_range**2).sum()
    for drawn in (releases.sampled_gaussian, releases.poisson, releases.poisson_groups):
        squares += (drawn[0] ** 2).sum()
    return 0.5 * float(squares + releases.mu**2)


def _largest(costs: Iterable[PrivacyCost]) -> PrivacyCost:
    listed = list(costs)
    epsilon = np.max([c.epsilon for c in listed], axis=0)
    return PrivacyCost(epsilon, np.max([c.epsilon_pure for c in listed], axis=0))


def _cost_of_split(
    charged: Charges, split: Split, channel: str | None, delta: float, notes: list[str]
) -> tuple[PrivacyCost, float, float]:
    """Price one record of a kind for every agent, over all channels or over one.

    Returns:
        The cost, and the largest part of it, in ε and in δ, that is for float64 samplers.
    """
    composed = accounts(charged, split, channel)
    pure, size = composed.pure(), composed.size()
    hidden = np.isfinite(size) & (size > 0.0)
    stated = np.zeros(size.shape, dtype=bool)
    bounds = sampling_slack(charged, split, channel, delta)
    first = next(bounds)
    epsilon, added, lost = np.full(size.shape, np.inf), first.added_epsilon(0.0), first.delta
    for slack in chain([first], bounds):
        left = slack.remaining_delta(delta)
        stated |= left > 0.0
        if delta == 0.0:
            ideal = pure
        elif composed.has_only(DominatingPair.GAUSSIAN):
            ideal = gaussian_epsilon(composed.mu(), left)
        else:
            ideal = _compose(composed, pure, left, notes)
        total = slack.total(ideal)
        better = total < epsilon
        epsilon = np.where(better, total, epsilon)
        added, lost = np.where(better, slack.added_epsilon(ideal), added), np.where(better, slack.delta, lost)
        if settles(composed, added[hidden], epsilon[hidden]):
            break
    if (hidden & ~stated).any() and delta > 0.0:
        notes.append(
            f"Sampling in float64 may add more than δ = {delta:g} to some agents' releases: only pure ε can be stated "
            "for them, and it holds for ideal samplers."
        )
    cost = PrivacyCost(epsilon[charged.group], (pure + first.epsilon)[charged.group])
    return cost, float(added.max()), float(lost.max())


def settles(composed: ComposedCharges, added: Array | float, epsilon: Array | float) -> bool:
    """Whether no other bound on the samplers is worth another composition of these releases.

    added, epsilon: (G,) or one number: what float64 samplers add to ε, and ε, of each column.
    """
    worth = _WORTH_A_FORMULA if composed.has_only(DominatingPair.GAUSSIAN) else _WORTH
    return bool((np.isfinite(epsilon) & (added <= worth * epsilon)).all())


def _compose(composed: ComposedCharges, pure: Array, delta: Array, notes: list[str]) -> Array:
    """(G,) ε(δ) column by column; columns that are equal, or too many, share one composition. delta: (G,)."""
    size = composed.size()
    out = np.where(np.isfinite(size), 0.0, np.inf)
    open_columns = np.flatnonzero(np.isfinite(size) & (size > 0.0))
    bundles = composed.equal_groups(open_columns)
    if len(bundles) > MOST_COLUMNS:
        bundles = gather(bundles, size)
        notes.append(
            f"More than {MOST_COLUMNS} different schedules: agents were gathered by cost into {len(bundles)} bundles, "
            "and each agent's ε(δ) is that of the elementwise largest releases of its bundle."
        )
    for bundle in bundles:
        out[bundle] = epsilon_at(composed.releases(bundle), float(delta[bundle].min()))
    return np.minimum(out, pure)


def _check_delta(delta: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise InputError(f"privacy.delta: got {delta}, wanted a number from 0 up to, but below, 1; 1e-5 is usual.")


# A calibrated agent spends between (1 − this) and all of the target.
TIGHTNESS = 1e-3
# So often the target may be missed before it is asked whether any noise meets it.
_TURNS_BEFORE_DOUBT = 3
# Factors that leave nothing of a price but what does not depend on the noise. Their fractions move the noise against
# the grid, finely enough that no other factor reaches less than _LEAST_SHARE of the least price at these.
_ENDLESS_NOISE = 2.0 ** (60.0 + np.arange(16) / 16.0)
_LEAST_SHARE = 0.9


def calibrate(
    ledger: Ledger, epsilon: float, delta: float, shares: Mapping[str, float] | None = None, alike: bool = False
) -> dict[str, Array]:
    """Find factors on the ledger's noise scales such that every agent's ε(δ) meets the target.

    Args:
        ledger: the releases with the scales to start from.
        epsilon: the target, above 0.
        delta: δ; 0 for pure ε.
        shares: channel → part of the budget, summing to one. Laplace channels are scaled so that their pure ε (weighted
            by the sampling rate) stand in this proportion, Gaussian ones so that their μ² do. Without shares the ratios
            of the given scales stay. One factor per agent on top of that meets the target.
        alike: whether all agents get the factors of the most expensive, as where they share noise; default no.

    Returns:
        Channel → factor of every agent, (m,). The budget is never exceeded, and every agent spends at least (1 − 10⁻³)
        of it.

    Raises:
        InputError: a target that no amount of noise on these releases can meet.

    Limits:
        With more than MOST_COLUMNS different schedules and a numerical composition, agents of similar cost share a
        factor and may spend a little less.

    Example:
        >>> from decentral_dp.privacy.ledger import ChannelLedger
        >>> ones = np.ones((4, 1))
        >>> laplace = ChannelLedger(channel="y", mechanism="laplace", dimension=1, group=np.zeros(2, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": 0.5 * ones}, rate={"train": ones})
        >>> ledger = Ledger(2, (laplace,))
        >>> calibrate(ledger, epsilon=0.5, delta=0.0)["y"].round(2).tolist()
        [2.0, 2.0]
    """
    charged = charges(ledger)
    for fault in _uncalibratable(ledger, charged, shares):
        raise InputError(fault)

    def largest_if_alike(values: Array) -> Array:
        return np.full_like(values, values.max()) if alike else values

    factors = {c: largest_if_alike(f) for c, f in _split(charged, ledger.n_agents, shares).items()}
    push = largest_if_alike(_common(charges(_rescale_channels(ledger, factors)), ledger.n_agents, epsilon, delta))
    # Prices are not exactly proportional to 1/scale: the grid follows a scale by powers of two, and what rounding costs
    # a Gaussian release does not shrink with more noise. So the scaled ledger is priced afresh until it fits.
    for turn in range(60):
        factors = {c: f * push for c, f in factors.items()}
        scaled = _rescale_channels(ledger, factors)
        spent = largest_if_alike(epsilon_of(scaled, delta))
        over, slack = spent > epsilon, (spent > 0.0) & (spent < (1.0 - TIGHTNESS) * epsilon)
        if not over.any() and (turn > 3 or not slack.any()):
            return factors
        if turn == _TURNS_BEFORE_DOUBT and over.any():
            _check_reachable(scaled, epsilon, delta)
        need = largest_if_alike(_common(charges(scaled), ledger.n_agents, epsilon, delta))
        push = np.where(over, np.maximum(need, 1.0 + 1e-6), np.where(slack, need, 1.0))
    if np.isinf(spent).any():
        why = (
            f"got {epsilon:g}, but with so little noise the sampling of these few releases in float64 may add more "
            f"than delta = {delta:g} to it; lower epsilon, or spread it over more rounds."
        )
    else:
        why = f"no noise was found that brings these releases to {epsilon:g} at delta = {delta:g}; {_advice(ledger)}."
    raise InputError(f"privacy.epsilon: {why}")


def _check_reachable(ledger: Ledger, epsilon: float, delta: float) -> None:
    """Refuse a target below what rounding and sampling in float64 cost under ever so much noise, and name that cost.

    The grid is a power of two: of all noise scales between two powers, the largest make it the smallest part of them.
    """
    prices = np.stack([epsilon_of(ledger.rescale(factor), delta) for factor in _ENDLESS_NOISE])
    least = float(prices.min(axis=0).max())
    if epsilon >= _LEAST_SHARE * least:
        return
    charged = charges(ledger.rescale(_ENDLESS_NOISE[0]))
    slack = [list(sampling_slack(charged, kind, None, delta)) for kind in charged.kinds]
    if np.isinf(least):
        lost = max(float(bounds[0].delta.max()) for bounds in slack)
        why = (
            f"privacy.delta: got {delta:g}, but sampling these releases in float64 may add {lost:.2g} to it, whatever "
            f"the noise; take a larger delta{' or fewer rounds' if ledger.rounds > 1 else ''}."
        )
    else:
        drawn = max(min(float(s.added_epsilon(least).max()) for s in bounds) for bounds in slack)
        why = (
            f"privacy.epsilon: got {epsilon:g}, but the smallest that any noise reaches here at delta = {delta:g} is "
            f"about {epsilon_text(least)}: rounding to the noise's grid and sampling in float64 ({drawn:.2g} of it) "
            f"cost that much, and more noise does not shrink it; {_advice(ledger)}."
        )
    raise InputError(why)


def _advice(ledger: Ledger) -> str:
    return "raise epsilon, or run fewer rounds" if ledger.rounds > 1 else "raise epsilon"


def _uncalibratable(ledger: Ledger, charged: Charges, shares: Mapping[str, float] | None) -> Iterator[str]:
    """Yield why no noise is found for these releases."""
    for c in ledger.charged_channels:
        if c.mechanism == NO_NOISE:
            yield f"privacy.epsilon: channel {c.channel!r} adds no noise that could be calibrated; give it a mechanism."
        if any(np.isinf(s).any() for s in c.sensitivity.values()):
            yield (
                f"privacy.epsilon: the sensitivity of channel {c.channel!r} is unbounded and no noise makes up for it; "
                "clip its records, or give the constants that bound it."
            )
    lines = [line for split_lines in charged.lines.values() for line in split_lines]
    if not any((line.loss > 0.0).any() for line in lines):
        yield (
            "privacy.epsilon: no release reads a record, so there is no noise to calibrate. Fix: a custom algorithm "
            "names what it releases in RELEASES."
        )
    if shares is not None and set(shares) != set(charged.names):
        yield f"privacy.share: wanted a share for each of {', '.join(charged.names)}, got {dict(shares)}."
    if shares is not None and len({line.mechanism for line in lines}) > 1:
        yield "privacy.share: channels of different mechanisms share no unit; give scales instead."


def _split(charged: Charges, agents: int, shares: Mapping[str, float] | None) -> dict[str, Array]:
    """Channel → factor per agent that puts the channels' own costs in the proportion of the shares."""
    if shares is None:
        return {name: np.ones(agents) for name in charged.names}
    out = {}
    for name in charged.names:
        costs = []
        for kind in charged.kinds:
            # Σ η_t ε_t for Laplace, Σ η_t² μ_t² for Gaussian releases.
            composed = accounts(charged, kind, name)
            total = composed.mu() ** 2 + composed.sums
            for way, (_, base, rate) in composed.subsampled.items():
                total = total + ((base * rate) ** (1.0 if way == "sampled_laplace" else 2.0)).sum(axis=0)
            costs.append(total)
        cost = np.max(costs, axis=0)[charged.group]
        out[name] = np.where(cost > 0.0, cost / shares[name], 1.0)
    # Gaussian costs are μ², which falls with the square of the scale.
    gaussian = any(line.mechanism.unit == "μ" for lines in charged.lines.values() for line in lines)
    return {name: np.sqrt(f) if gaussian else f for name, f in out.items()}


def _rescale_channels(ledger: Ledger, factors: Mapping[str, Array]) -> Ledger:
    one = [
        replace(ledger, channels=(c,)).rescale(factors[c.channel]).channels[0] if c.channel in factors else c
        for c in ledger.channels
    ]
    return replace(ledger, channels=tuple(one))


def _common(charged: Charges, agents: int, epsilon: float, delta: float) -> Array:
    """(m,) the factor that brings the most expensive kind of record of every agent just under the target."""
    need = np.zeros(int(charged.group.max()) + 1)
    for kind in charged.kinds:
        composed = accounts(charged, kind, None)
        # What is left for ideal samplers, by the bounds that leave anything.
        every = [
            (float(slack.remaining_delta(delta).min()), float(slack.added_epsilon(epsilon).max()))
            for slack in sampling_slack(charged, kind, None, delta)
        ]
        least = np.full(composed.groups, np.inf)
        for left, added in [one for one in every if one[0] > 0.0 and one[1] <= 0.5 * epsilon] or every[:1]:
            # Far from the solution the slack may be more than everything.
            allowed = 0.5 * delta if left == 0.0 and composed.gaussian else left
            least = np.minimum(least, _needed_factors(composed, max(0.5 * epsilon, epsilon - added), allowed))
            if settles(composed, added, epsilon):
                break
        need = np.maximum(need, least)
    return np.where(need > 0.0, need, 1.0)[charged.group]


def _needed_factors(composed: ComposedCharges, epsilon: float, delta: float) -> Array:
    """(G,) factors; 0 where nothing is charged."""
    size = composed.size()
    out = np.zeros(composed.groups)
    open_groups = np.flatnonzero(size > 0.0)
    if composed.has_only(DominatingPair.GAUSSIAN) and delta > 0.0:
        return composed.mu() / largest_mu(epsilon, delta)
    if composed.has_only(DominatingPair.LAPLACE) and delta == 0.0:
        return composed.pure() / (epsilon * (1.0 - 2e-6))
    bundles = composed.equal_groups(open_groups)
    if len(bundles) > MOST_COLUMNS:
        bundles = gather(bundles, size)
    start: float | None = None
    for bundle in bundles:
        start = smallest_factor(partial(epsilon_at, composed.releases(bundle), delta), epsilon, start)
        out[bundle] = start
    return out


@lru_cache(maxsize=64)
def largest_mu(epsilon: float, delta: float) -> float:
    """Compute μ of the Gaussian pair that is (ε, δ)-private and no more, from below.

    Example:
        >>> round(largest_mu(epsilon=1.0, delta=1e-5), 3)
        0.268
    """
    return 1.0 / smallest_factor(lambda f: float(gaussian_epsilon(1.0 / f, delta)), epsilon, None, 1e-9)


def smallest_factor(
    price: Callable[[float], float], target: float, guess: float | None, tightness: float = 0.5 * TIGHTNESS
) -> float:
    """Find a factor whose price lies in [(1 − tightness)·target, target].

    False position in logarithms, between a factor that is too small and one that is large enough.

    Args:
        price: factor → price, which falls as the factor grows.
        target: of the price.
        guess: a factor to start from; None for 1.
        tightness: default half of TIGHTNESS.

    Raises:
        InputError: no factor has such a price.

    Example:
        >>> round(smallest_factor(lambda factor: 3.0 / factor, target=1.5, guess=None), 2)
        2.0
    """
    aim = target * (1.0 - 0.5 * tightness)
    small: tuple[float, float] | None = None
    large: tuple[float, float] | None = None
    factor = guess if guess is not None else 1.0
    for turn in range(200):
        cost = price(factor)
        if target * (1.0 - tightness) <= cost <= target:
            return factor
        if cost > target:
            small = (factor, cost)
        else:
            large = (factor, cost)
        factor = _next_factor(small, large, aim, turn)
        if large is not None and small is not None and large[0] / small[0] < 1.0 + 1e-13:
            break
    if large is None:
        raise InputError(
            f"privacy.epsilon: no amount of noise brings these releases down to {target}; raise epsilon or delta."
        )
    return large[0]


def _next_factor(small: tuple[float, float] | None, large: tuple[float, float] | None, aim: float, turn: int) -> float:
    if small is None or large is None:
        factor, cost = small or large or (1.0, aim)
        # About ε ∝ 1/factor; a little further, so that the next point lies on the other side.
        ratio = cost / aim if 0.0 < cost < np.inf else (4.0 if small else 0.25)
        return factor * float(np.clip(ratio * (1.02 if small else 0.98), 1e-3, 1e3))
    (a, cost_a), (b, cost_b) = small, large
    if turn % 4 == 3 or not np.isfinite(cost_a) or cost_b <= 0.0 or cost_a <= cost_b:
        return float(np.sqrt(a * b))
    position = (np.log(cost_a) - np.log(aim)) / (np.log(cost_a) - np.log(cost_b))
    return float(np.exp(np.log(a) + np.clip(position, 0.02, 0.98) * (np.log(b) - np.log(a))))
