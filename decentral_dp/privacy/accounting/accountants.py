"""Accountants: the pure ε and ε(δ) of a ledger for each agent, channel and split, and the calibration of noise scales.

Adjacency: one record of one agent is replaced. Train and validation records are disjoint, so an agent's budget is the
larger cost of one train record and one validation record. A record in both would cost the sum.

Composition, given the public transcript so far (each bound holds for every transcript):

    Laplace     pure: Σε_t. (ε, δ): privacy-loss distributions
    other       only the pure ε is known. pure: Σε_t. (ε, δ): as randomised response, the worst case
    exponential mechanisms: the same, and ρ = ε²/8 concentrated (bounded range; Dong, Durfee & Rogers 2020)
    Gaussian    pure: ∞.    (ε, δ): exactly Gaussian with μ² = Σμ_t², δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)
    both        (ε, δ): privacy-loss distributions
    a fresh batch, fixed size, share η of the pool, feeding several channels of one round: one release of
                E_t = Σ_channels ε (or μ² = Σ_channels μ²) on that batch, amplified once: log(1 + η(e^{E_t} − 1)).
                Amplifying channel by channel and adding would under-report.
    Poisson     Gaussian releases on a Poisson sample: privacy-loss distributions of the pair of the unit (proof 11)

These are costs of ideal samplers. The slack of float64 samplers (`float_slack`) is included in every ε and taken from δ
before ε is computed, by the bound that leads to the least ε. So ε(δ) holds for the noise that is drawn. The pure ε
holds except for the slack's δ, since no float64 sampler has the tails that pure ε needs.

Every (ε, δ) is the smallest of the pure sum, the concentrated bound ρ + 2√(ρ ln 1/δ) with ρ = Σε²/2 + Σμ²/2 (Bun &
Steinke 2016), the Gaussian closed form and the privacy-loss distribution, as far as they apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    charges,
    collect_charges,
    count_samples,
    gather,
)
from decentral_dp.privacy.accounting.loss_distributions import Releases, amplify, log_gaussian_delta, smallest_epsilon
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import NO_NOISE, DominatingPair

# Below this δ the tails exceed the range of float64.
SMALLEST_NUMERICAL_DELTA = 1e-100
# Above this ε numerical composition has no use, and its grid would overflow.
LARGEST_NUMERICAL_EPSILON = 1e4
# Above this ε before amplification, samples are composed under a tilt only.
LARGEST_SAMPLED_EPSILON = 1e6
# Relative reduction of ε below which no further bound on the samplers is composed.
_WORTH = 1e-3
_WORTH_A_FORMULA = 1e-6


class PrivacyCost(NamedTuple):
    """Privacy cost of each agent.

    Attributes:
        epsilon: ε at the budget's δ, (m,).
        epsilon_pure: ε at δ = 0, (m,).
    """

    epsilon: Array
    epsilon_pure: Array


@dataclass(frozen=True)
class AgentCosts:
    """Privacy cost of a ledger for each agent, with +inf where there is no proof.

    Attributes:
        delta: privacy parameter δ.
        epsilon: smallest certified ε at δ, (m,).
        epsilon_pure: ε at δ = 0, (m,).
        channels: channel → cost of the releases on this channel only.
        records: split → cost of one record of the split.
        slack_epsilon: largest part of any agent's ε that is due to float64 samplers.
        slack_delta: largest part of δ that is due to float64 samplers.
        bundles: number of bundles of agents whose ε is composed jointly, or 0 if each agent is composed separately.
        has_pure_only: whether only the pure ε of ideal samplers is available for some agents.
    """

    delta: float
    epsilon: Array
    epsilon_pure: Array
    channels: Mapping[str, PrivacyCost]
    records: Mapping[Split, PrivacyCost]
    slack_epsilon: float
    slack_delta: float
    bundles: int = 0
    has_pure_only: bool = False


def account(ledger: Ledger, delta: float) -> AgentCosts:
    """Compute the privacy cost of every agent of a ledger.

    Args:
        ledger: recorded or planned releases.
        delta: privacy parameter δ, in [0, 1).

    Returns:
        The budget of each agent, by channel and by split.

    Raises:
        InputError: δ is outside of [0, 1), or no rule covers an entry of the ledger.

    References:
        Bun & Steinke 2016 (concentrated); Doroshenko et al. 2022 (numerical composition). See docs/proofs/09 and 10.

    Example:
        >>> from decentral_dp.privacy.ledger import ChannelLedger
        >>> ones = np.ones((4, 1))
        >>> line = ChannelLedger(channel="y", mechanism="gaussian", dimension=1, group=np.zeros(3, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": ones}, rate={"train": ones})
        >>> budget = account(Ledger(3, (line,)), delta=1e-5)
        >>> budget.epsilon.round(3).tolist(), budget.epsilon_pure.tolist()
        ([4.377, 4.377, 4.377], [inf, inf, inf])
    """
    _check_delta(delta)
    ledger_charges = charges(ledger)
    free = PrivacyCost(np.zeros(ledger.n_agents), np.zeros(ledger.n_agents))
    costs_of_lines: dict[tuple[int, ...], AgentCosts] = {}

    def settle(split: Split, channel: str | None = None) -> AgentCosts:
        # Equal charges are one object, and are composed once.
        lines = tuple(id(line) for line in ledger_charges.lines[split] if channel in (None, line.channel))
        if lines not in costs_of_lines:
            costs_of_lines[lines] = _cost_of_split(ledger_charges, split, channel, delta)
        return costs_of_lines[lines]

    split_costs = {split: settle(split) for split in ledger_charges.kinds}
    records = {split: PrivacyCost(cost.epsilon, cost.epsilon_pure) for split, cost in split_costs.items()}
    by_channel: dict[str, list[PrivacyCost | AgentCosts]] = {name: [free] for name in ledger_charges.names}
    for split in ledger_charges.kinds:
        for line in ledger_charges.lines[split]:
            by_channel[line.channel].append(settle(split, line.channel))
    channels = {name: _largest(costs) for name, costs in by_channel.items()}
    whole = _largest([free, *records.values()])
    return AgentCosts(
        delta,
        whole.epsilon,
        whole.epsilon_pure,
        channels,
        records,
        max((cost.slack_epsilon for cost in split_costs.values()), default=0.0),
        max((cost.slack_delta for cost in split_costs.values()), default=0.0),
        max((cost.bundles for cost in costs_of_lines.values()), default=0),
        any(cost.has_pure_only for cost in costs_of_lines.values()),
    )


def epsilon_of(ledger: Ledger, delta: float) -> Array:
    """Compute ε for every agent of a ledger, without the breakdown that `account` returns.

    Args:
        ledger: recorded or planned releases.
        delta: privacy parameter δ, in [0, 1).

    Returns:
        ε(δ) of every agent, (m,).

    Raises:
        InputError: δ is outside of [0, 1), or no rule covers an entry of the ledger.
    """
    _check_delta(delta)
    ledger_charges = charges(ledger)
    costs = [_cost_of_split(ledger_charges, split, None, delta) for split in ledger_charges.kinds]
    return _largest([PrivacyCost(np.zeros(ledger.n_agents), np.zeros(ledger.n_agents)), *costs]).epsilon


def spending(ledger: Ledger, delta: float, rounds: Sequence[int]) -> Array:
    """Bound the worst agent's ε after each of the given rounds.

    The bound composes the elementwise largest releases of all agents. It equals the worst agent's ε if the same agent,
    such as the one with the smallest shard, is charged most in every round.

    Args:
        ledger: recorded or planned releases.
        delta: privacy parameter δ, in [0, 1).
        rounds: rounds in ascending order, (T,).

    Returns:
        Upper bounds, (T,).

    Raises:
        InputError: δ is outside of [0, 1), or no rule covers an entry of the ledger.
    """
    _check_delta(delta)
    cuts = np.asarray(rounds, dtype=np.int64) * ledger.releases_per_round
    ledger_charges = charges(ledger)
    worst = np.zeros(cuts.size)
    for split in ledger_charges.kinds:
        composition, least = collect_charges(ledger_charges, split, None), np.full(cuts.size, np.inf)
        composition = composition.largest(np.arange(composition.groups))
        parts = [composition.releases_between(a, b) for a, b in zip([-1, *cuts[:-1]], cuts, strict=True)]
        for slack in count_samples(ledger_charges, split, None).slacks(delta):
            most = slack.largest()
            epsilons = _epsilon_by_segment(parts, float(most.remaining_delta(delta)[0]))
            least = np.minimum(least, np.where(epsilons > 0.0, most.total(epsilons), 0.0))
            if settles(composition, most.added_epsilon(least), least):
                break
        worst = np.maximum(worst, least)
    return worst


def gaussian_epsilon(mu: Array | float, delta: Array | float) -> Array:
    """Solve δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) for ε, from above: the cost of a Gaussian pair.

    Args:
        mu: distance of the pair in standard deviations, any shape.
        delta: privacy parameter δ, broadcastable.

    Returns:
        ε, elementwise; +inf if μ is infinite or δ is 0, and 0 if μ is 0.

    References:
        Balle & Wang 2018, Theorem 8.

    Example:
        >>> float(gaussian_epsilon(1.0, 1e-5).round(3)), float(gaussian_epsilon(0.0, 0.0))
        (4.377, 0.0)
    """
    distance, delta_array = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(delta, dtype=np.float64))
    if (distance == 0.0).all():
        return np.zeros(distance.shape)
    m = np.clip(distance, 1e-9, 1e150)
    target = np.log(np.maximum(delta_array, 1e-300))
    high = smallest_epsilon(m, target)
    within = log_gaussian_delta(m, np.zeros_like(m)) <= target
    impossible = ~np.isfinite(distance) | (delta_array <= 0.0)
    return np.where(distance == 0.0, 0.0, np.where(impossible, np.inf, np.where(within, 0.0, high)))


def pure_epsilon(releases: Releases) -> float:
    """Compute Σε with one amplified term for each round with a fresh batch. It is +inf if any release is Gaussian."""
    sampled_releases = (releases.sampled_gaussian, releases.poisson, releases.poisson_groups)
    if releases.mu > 0.0 or any((part[0] > 0.0).any() for part in sampled_releases):
        return float("inf")
    plain = releases.laplace.sum() + releases.pure.sum() + releases.bounded_range.sum()
    return float(plain + amplify(*releases.sampled_laplace).sum())


def epsilon_at(releases: Releases, delta: float, factor: float = 1.0) -> float:
    """Compute the smallest certified ε(δ) of one record's releases.

    Args:
        releases: costs of the releases.
        delta: privacy parameter δ; 0 gives the pure ε.
        factor: factor by which all noise scales are multiplied.
    """
    return float(_epsilon_by_segment([releases.divide(factor)], delta)[-1])


def _epsilon_by_segment(segments: Sequence[Releases], delta: float) -> Array:
    """Compute ε(δ) after each segment of releases."""
    pure = np.cumsum([pure_epsilon(s) for s in segments])
    # Infinite if a release has no noise.
    if delta == 0.0 or not np.isfinite([float(sum(np.sum(part) for part in s)) for s in segments]).all():
        return np.asarray(pure)
    mu = np.sqrt(np.cumsum([s.mu**2 for s in segments]))
    if all(s.only_gaussian for s in segments):
        return gaussian_epsilon(mu, delta)
    rho = np.cumsum([_zcdp_rho(s) for s in segments])
    best = np.minimum(pure, rho + 2.0 * np.sqrt(rho * np.log(1.0 / delta)))
    has_sampling = any(s.poisson.size or s.poisson_groups.size or s.sampled_gaussian.size for s in segments)
    if not has_sampling:
        # The sum of pure releases plus the exact Gaussian part.
        plain = np.cumsum([pure_epsilon(s._replace(mu=0.0)) for s in segments]) if mu[-1] > 0.0 else pure
        best = np.minimum(best, plain + gaussian_epsilon(mu, delta))
    # The cost of a sampled release before amplification may be far too large.
    is_too_large = not has_sampling and best[-1] > LARGEST_NUMERICAL_EPSILON
    if delta < SMALLEST_NUMERICAL_DELTA or not best[-1] > 0.0 or is_too_large:
        return np.asarray(best)
    numerical = loss_distributions.epsilons(segments, delta, tilted=best[-1] > LARGEST_SAMPLED_EPSILON)
    return np.asarray(np.minimum(best, numerical))


def _zcdp_rho(releases: Releases) -> float:
    """Compute ρ of zero-concentrated differential privacy, without amplification.

    A pure release contributes ε²/2, an exponential mechanism ε²/8, and a Gaussian release μ²/2.
    """
    squares = (releases.laplace**2).sum() + (amplify(*releases.sampled_laplace) ** 2).sum()
    squares += (releases.pure**2).sum() + 0.25 * (releases.bounded_range**2).sum()
    for sampled_releases in (releases.sampled_gaussian, releases.poisson, releases.poisson_groups):
        squares += (sampled_releases[0] ** 2).sum()
    return 0.5 * float(squares + releases.mu**2)


def _largest(costs: Sequence[PrivacyCost | AgentCosts]) -> PrivacyCost:
    epsilon = np.max([c.epsilon for c in costs], axis=0)
    return PrivacyCost(epsilon, np.max([c.epsilon_pure for c in costs], axis=0))


def _cost_of_split(ledger_charges: Charges, split: Split, channel: str | None, delta: float) -> AgentCosts:
    """Compute the cost of one record of a split for every agent, over all channels or over one, without a breakdown."""
    composition = collect_charges(ledger_charges, split, channel)
    pure, size = composition.pure(), composition.size()
    hidden, bundles = np.isfinite(size) & (size > 0.0), 0
    has_bound = np.zeros(size.shape, dtype=bool)
    bounds = count_samples(ledger_charges, split, channel).slacks(delta)
    first = next(bounds)
    epsilon, added_epsilon, lost_delta = np.full(size.shape, np.inf), first.added_epsilon(0.0), first.delta
    for slack in chain([first], bounds):
        remaining_delta = slack.remaining_delta(delta)
        has_bound |= remaining_delta > 0.0
        if delta == 0.0:
            ideal = pure
        elif composition.has_only(DominatingPair.GAUSSIAN):
            ideal = gaussian_epsilon(composition.mu(), remaining_delta)
        else:
            ideal, bundles = _compose(composition, pure, remaining_delta)
        total = slack.total(ideal)
        better = total < epsilon
        epsilon = np.where(better, total, epsilon)
        added_epsilon, lost_delta = (
            np.where(better, slack.added_epsilon(ideal), added_epsilon),
            np.where(better, slack.delta, lost_delta),
        )
        if settles(composition, added_epsilon[hidden], epsilon[hidden]):
            break
    return AgentCosts(
        delta,
        epsilon[ledger_charges.group],
        (pure + first.epsilon)[ledger_charges.group],
        {},
        {},
        float(added_epsilon.max()),
        float(lost_delta.max()),
        bundles,
        has_pure_only=delta > 0.0 and bool((hidden & ~has_bound).any()),
    )


def settles(composition: ComposedCharges, added_epsilon: Array | float, epsilon: Array | float) -> bool:
    """Return whether no other bound on the samplers could make it worth composing these releases again.

    Args:
        composition: composition of the releases.
        added_epsilon: addition of float64 samplers to ε, (G,) or a number.
        epsilon: current ε, (G,) or a number.
    """
    worth = _WORTH_A_FORMULA if composition.has_only(DominatingPair.GAUSSIAN) else _WORTH
    return bool((np.isfinite(epsilon) & (added_epsilon <= worth * epsilon)).all())


def _compose(composition: ComposedCharges, pure: Array, delta: Array) -> tuple[Array, int]:
    """Compute ε(δ), (G,), column by column. Equal columns, and bundles of too many columns, share one composition.

    Returns:
        ε(δ), and the number of such bundles.
    """
    size = composition.size()
    out = np.where(np.isfinite(size), 0.0, np.inf)
    open_columns = np.flatnonzero(np.isfinite(size) & (size > 0.0))
    bundles = composition.equal_groups(open_columns)
    if has_too_many := len(bundles) > MOST_COLUMNS:
        bundles = gather(bundles, size)
    for bundle in bundles:
        out[bundle] = epsilon_at(composition.releases(bundle), float(delta[bundle].min()))
    return np.minimum(out, pure), len(bundles) if has_too_many else 0


def _check_delta(delta: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise InputError(f"privacy.delta: out of range (got {delta}, expected a number in [0, 1), usually 1e-5).")


# A calibrated agent spends between (1 − this) and all of the target.
TIGHTNESS = 1e-3
# Iterations before a check that any noise meets the target.
_TURNS_BEFORE_DOUBT = 3
# Factors at which only costs that do not depend on the noise are left. Their fractions shift the noise against the
# grid, so finely that no other factor has a cost below _LEAST_SHARE of the least one.
_ENDLESS_NOISE = 2.0 ** (60.0 + np.arange(16) / 16.0)
_LEAST_SHARE = 0.9


def calibrate(
    ledger: Ledger, epsilon: float, delta: float, shares: Mapping[str, float] | None = None, uniform: bool = False
) -> dict[str, Array]:
    """Find factors for the noise scales of a ledger such that every agent's ε(δ) meets the target.

    Args:
        ledger: releases with initial scales.
        epsilon: target ε, above 0.
        delta: privacy parameter δ; 0 gives the pure ε.
        shares: channel → share of the budget, with sum 1: a share of the pure ε for Laplace channels (weighted by the
            sampling rate) and of μ² for Gaussian channels. None (the default) keeps the ratios of the scales. In both
            cases, a further factor per agent makes ε(δ) meet the target.
        uniform: whether all agents use the factors of the most expensive agent, as required for shared noise.

    Returns:
        Channel → factor for each agent, (m,). The budget is never exceeded, and every agent spends at least (1 − 10⁻³)
        of it.

    Raises:
        InputError: no amount of noise meets the target.

    Limits:
        If there are more than MOST_COLUMNS different schedules and the composition is numerical, agents of similar cost
        share a factor and may spend slightly less of the budget.

    Example:
        >>> from decentral_dp.privacy.ledger import ChannelLedger
        >>> ones = np.ones((4, 1))
        >>> laplace = ChannelLedger(channel="y", mechanism="laplace", dimension=1, group=np.zeros(2, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": 0.5 * ones}, rate={"train": ones})
        >>> ledger = Ledger(2, (laplace,))
        >>> calibrate(ledger, epsilon=0.5, delta=0.0)["y"].round(2).tolist()
        [2.0, 2.0]
    """
    ledger_charges = charges(ledger)
    for fault in _uncalibratable(ledger, ledger_charges, shares):
        raise InputError(fault)

    def largest_if_uniform(values: Array) -> Array:
        return np.full_like(values, values.max()) if uniform else values

    factors = {c: largest_if_uniform(f) for c, f in _split(ledger_charges, ledger.n_agents, shares).items()}
    push = largest_if_uniform(_common(charges(_rescale_channels(ledger, factors)), epsilon, delta))
    # Costs are not exactly proportional to 1/scale: the grid follows a scale by powers of two, and the cost of rounding
    # does not shrink with more Gaussian noise. So the scaled ledger is accounted again until it fits.
    why = ""
    for turn in range(60):
        factors = {c: f * push for c, f in factors.items()}
        scaled_ledger = _rescale_channels(ledger, factors)
        epsilon_spent = largest_if_uniform(epsilon_of(scaled_ledger, delta))
        over, slack = epsilon_spent > epsilon, (epsilon_spent > 0.0) & (epsilon_spent < (1.0 - TIGHTNESS) * epsilon)
        if not over.any() and (turn > 3 or not slack.any()):
            return factors
        if turn == _TURNS_BEFORE_DOUBT and over.any() and (why := _unreachable(scaled_ledger, epsilon, delta)):
            break
        need = largest_if_uniform(_common(charges(scaled_ledger), epsilon, delta))
        push = np.where(over, np.maximum(need, 1.0 + 1e-6), np.where(slack, need, 1.0))
    if not why and np.isinf(epsilon_spent).any():
        why = (
            f"privacy.epsilon: too large for these few releases, whose float64 sampling may add more than delta = "
            f"{delta:g} (got {epsilon:g}). Fix: lower epsilon, or use more rounds."
        )
    raise InputError(
        why
        or f"privacy.epsilon: not attainable at delta = {delta:g} with any noise (got {epsilon:g}). Fix: "
        f"{_advice(ledger)}."
    )


def _unreachable(ledger: Ledger, epsilon: float, delta: float) -> str:
    """Describe a target below the cost of rounding and float64 sampling, which no noise reduces; "" for others.

    Among noise scales between two powers of two, the largest have the relatively finest grid.
    """
    costs = np.stack([epsilon_of(ledger.rescale(factor), delta) for factor in _ENDLESS_NOISE])
    least = float(costs.min(axis=0).max())
    if epsilon >= _LEAST_SHARE * least:
        return ""
    ledger_charges = charges(ledger.rescale(_ENDLESS_NOISE[0]))
    slack = [list(count_samples(ledger_charges, kind, None).slacks(delta)) for kind in ledger_charges.kinds]
    if np.isinf(least):
        lost_delta = max(float(bounds[0].delta.max()) for bounds in slack)
        return (
            f"privacy.delta: too small, since float64 sampling of these releases may add {lost_delta:.2g} "
            f"with any noise (got {delta:g}). Fix: use a larger "
            f"delta{' or fewer rounds' if ledger.rounds > 1 else ''}."
        )
    added_epsilon = max(min(float(s.added_epsilon(least).max()) for s in bounds) for bounds in slack)
    return (
        f"privacy.epsilon: too small, since float64 rounding and sampling ({added_epsilon:.2g}) cost "
        f"about {epsilon_text(least)} at delta = {delta:g} with any noise (got {epsilon:g}). Fix: "
        f"{_advice(ledger)}."
    )


def _advice(ledger: Ledger) -> str:
    return "raise epsilon, or run fewer rounds" if ledger.rounds > 1 else "raise epsilon"


def _uncalibratable(ledger: Ledger, ledger_charges: Charges, shares: Mapping[str, float] | None) -> Iterator[str]:
    """Yield reasons why these releases cannot be calibrated."""
    for c in ledger.charged_channels:
        if c.mechanism == NO_NOISE:
            yield f"privacy.epsilon: channel {c.channel!r} has no noise. Fix: set its mechanism."
        if any(np.isinf(s).any() for s in c.sensitivity.values()):
            yield (
                f"privacy.epsilon: the sensitivity of channel {c.channel!r} is unbounded. Fix: clip its "
                "records, or declare the constants that bound it."
            )
    lines = [line for split_lines in ledger_charges.lines.values() for line in split_lines]
    if not any((line.loss > 0.0).any() for line in lines):
        yield (
            "privacy.epsilon: no release reads a record, so there is no noise to calibrate. Fix: list the "
            "releases of a custom algorithm in RELEASES."
        )
    if shares is not None and set(shares) != set(ledger_charges.names):
        yield f"privacy.share: got {dict(shares)}, expected a share for each of {', '.join(ledger_charges.names)}."
    if shares is not None and len({line.mechanism for line in lines}) > 1:
        yield "privacy.share: channels have different mechanisms. Fix: set scales instead."


def _split(ledger_charges: Charges, agents: int, shares: Mapping[str, float] | None) -> dict[str, Array]:
    """Return channel → factor per agent that gives the channels' costs the proportion of the shares."""
    if shares is None:
        return {name: np.ones(agents) for name in ledger_charges.names}
    out = {}
    for name in ledger_charges.names:
        costs = []
        for kind in ledger_charges.kinds:
            # Σ η_t ε_t for Laplace, Σ η_t² μ_t² for Gaussian releases.
            composition = collect_charges(ledger_charges, kind, name)
            total = composition.mu() ** 2 + composition.sums
            for way, (_, base, rate) in composition.subsampled.items():
                total = total + ((base * rate) ** (1.0 if way == "sampled_laplace" else 2.0)).sum(axis=0)
            costs.append(total)
        cost = np.max(costs, axis=0)[ledger_charges.group]
        out[name] = np.where(cost > 0.0, cost / shares[name], 1.0)
    # Gaussian costs are μ², which falls with the square of the scale.
    gaussian = any(line.mechanism.unit == "μ" for lines in ledger_charges.lines.values() for line in lines)
    return {name: np.sqrt(f) if gaussian else f for name, f in out.items()}


def _rescale_channels(ledger: Ledger, factors: Mapping[str, Array]) -> Ledger:
    channels = [
        replace(ledger, channels=(c,)).rescale(factors[c.channel]).channels[0] if c.channel in factors else c
        for c in ledger.channels
    ]
    return replace(ledger, channels=tuple(channels))


def _common(ledger_charges: Charges, epsilon: float, delta: float) -> Array:
    """Return the factors, (m,), that bring the cost of each agent's most expensive split just below the target."""
    need = np.zeros(int(ledger_charges.group.max()) + 1)
    for kind in ledger_charges.kinds:
        composition = collect_charges(ledger_charges, kind, None)
        # δ left for ideal samplers and ε added, by each bound.
        bounds = [
            (float(slack.remaining_delta(delta).min()), float(slack.added_epsilon(epsilon).max()))
            for slack in count_samples(ledger_charges, kind, None).slacks(delta)
        ]
        least = np.full(composition.groups, np.inf)
        for remaining_delta, added_epsilon in [
            pair for pair in bounds if pair[0] > 0.0 and pair[1] <= 0.5 * epsilon
        ] or bounds[:1]:
            # Far from the solution the slack may exceed the budget.
            gaussian_delta = 0.5 * delta if remaining_delta == 0.0 and composition.gaussian else remaining_delta
            least = np.minimum(
                least, _needed_factors(composition, max(0.5 * epsilon, epsilon - added_epsilon), gaussian_delta)
            )
            if settles(composition, added_epsilon, epsilon):
                break
        need = np.maximum(need, least)
    return np.where(need > 0.0, need, 1.0)[ledger_charges.group]


def _needed_factors(composition: ComposedCharges, epsilon: float, delta: float) -> Array:
    """Return the needed factors, (G,), 0 without charges."""
    size = composition.size()
    out = np.zeros(composition.groups)
    open_groups = np.flatnonzero(size > 0.0)
    if composition.has_only(DominatingPair.GAUSSIAN) and delta > 0.0:
        return composition.mu() / largest_mu(epsilon, delta)
    if composition.has_only(DominatingPair.LAPLACE) and delta == 0.0:
        return composition.pure() / (epsilon * (1.0 - 2e-6))
    bundles = composition.equal_groups(open_groups)
    if len(bundles) > MOST_COLUMNS:
        bundles = gather(bundles, size)
    start: float | None = None
    for bundle in bundles:
        start = smallest_factor(partial(epsilon_at, composition.releases(bundle), delta), epsilon, start)
        out[bundle] = start
    return out


@lru_cache(maxsize=64)
def largest_mu(epsilon: float, delta: float) -> float:
    """Compute the largest μ for which a Gaussian pair is (ε, δ)-private, rounded down.

    Example:
        >>> round(largest_mu(epsilon=1.0, delta=1e-5), 3)
        0.268
    """
    return 1.0 / smallest_factor(lambda f: float(gaussian_epsilon(1.0 / f, delta)), epsilon, None, 1e-9)


def smallest_factor(
    cost_of: Callable[[float], float], target: float, guess: float | None, tightness: float = 0.5 * TIGHTNESS
) -> float:
    """Find a factor whose cost lies in [(1 − tightness)·target, target].

    The search uses the false position method on logarithms, between a factor that is too small and one that is large
    enough.

    Args:
        cost_of: factor → cost, which decreases as the factor increases.
        target: target cost.
        guess: initial factor; None means 1.
        tightness: relative tolerance. The default is half of TIGHTNESS.

    Raises:
        InputError: no factor has such a cost.

    Example:
        >>> round(smallest_factor(lambda factor: 3.0 / factor, target=1.5, guess=None), 2)
        2.0
    """
    aim = target * (1.0 - 0.5 * tightness)
    small: tuple[float, float] | None = None
    large: tuple[float, float] | None = None
    factor = guess if guess is not None else 1.0
    for turn in range(200):
        cost = cost_of(factor)
        if target * (1.0 - tightness) <= cost <= target:
            return factor
        if cost > target:
            small = (factor, cost)
        else:
            large = (factor, cost)
        if small is None or large is None:
            # ε is about proportional to 1/factor. A little further, the next point lies on the other side.
            ratio = cost / aim if 0.0 < cost < np.inf else (4.0 if small else 0.25)
            factor *= float(np.clip(ratio * (1.02 if small else 0.98), 1e-3, 1e3))
            continue
        (a, cost_a), (b, cost_b) = small, large
        if b / a < 1.0 + 1e-13:
            break
        if turn % 4 == 3 or not np.isfinite(cost_a) or cost_b <= 0.0 or cost_a <= cost_b:
            factor = float(np.sqrt(a * b))
        else:
            position = (np.log(cost_a) - np.log(aim)) / (np.log(cost_a) - np.log(cost_b))
            factor = float(np.exp(np.log(a) + np.clip(position, 0.02, 0.98) * (np.log(b) - np.log(a))))
    if large is None:
        raise InputError(
            f"privacy.epsilon: no amount of noise gives {target} for these releases. Fix: increase epsilon or delta."
        )
    return large[0]
