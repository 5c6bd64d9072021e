"""Inverting the accountants: noise scales for a target budget, and rounds for a cap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.formatting import epsilon_text
from decentral_dp.privacy.accounting.accountants import epsilon_at, epsilon_of, gaussian_epsilon, settles
from decentral_dp.privacy.accounting.charges import (
    MOST_COLUMNS,
    Charges,
    ComposedCharges,
    accounts,
    charges,
    gather,
    sampling_slack,
)
from decentral_dp.privacy.accounting.loss_distributions import Releases
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import NO_NOISE

# A calibrated agent spends between (1 − this) and all of the target.
TIGHTNESS = 1e-3
# So often the target may be missed before it is asked whether any noise meets it.
_TURNS_BEFORE_DOUBT = 3
# Factors that leave nothing of a price but what does not depend on the noise. Their fractions move the noise against
# the grid, finely enough that no other factor reaches less than _SURELY of the least price at these.
_ENDLESS_NOISE = 2.0 ** (60.0 + np.arange(16) / 16.0)
_SURELY = 0.9


def calibrate(
    ledger: Ledger, epsilon: float, delta: float, shares: Mapping[str, float] | None = None
) -> dict[str, Array]:
    """Find factors on the ledger's noise scales such that every agent's ε(δ) meets the target.

    Args:
        ledger: the releases with the scales to start from.
        epsilon: the target, above 0.
        delta: δ; 0 for pure ε.
        shares: channel → part of the budget, summing to one. Laplace channels are scaled so that their pure ε (weighted
            by the sampling rate) stand in this proportion, Gaussian ones so that their μ² do. Without shares the ratios
            of the given scales stay. One factor per agent on top of that meets the target.

    Returns:
        Channel → factor of every agent, (m,). The budget is never exceeded, and every agent spends at least (1 − 10⁻³)
        of it.

    Raises:
        InputError: a target that is not positive, or that no amount of noise on these releases can meet.

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
    if not epsilon > 0.0 or not np.isfinite(epsilon):
        raise InputError(f"privacy.epsilon: got {epsilon}, wanted a finite number above 0.")
    charged = charges(ledger)
    _check_calibratable(ledger, charged)
    factors = _split(charged, ledger.n_agents, shares)
    push = _common(charges(_scaled(ledger, factors)), ledger.n_agents, epsilon, delta)
    # Prices are not exactly proportional to 1/scale: the grid follows a scale by powers of two, and what rounding costs
    # a Gaussian release does not shrink with more noise. So the scaled ledger is priced afresh until it fits.
    for turn in range(60):
        factors = {c: f * push for c, f in factors.items()}
        scaled = _scaled(ledger, factors)
        spent = epsilon_of(scaled, delta)
        over, slack = spent > epsilon, (spent > 0.0) & (spent < (1.0 - TIGHTNESS) * epsilon)
        if not over.any() and (turn > 3 or not slack.any()):
            return factors
        if turn == _TURNS_BEFORE_DOUBT and over.any():
            _check_reachable(scaled, epsilon, delta)
        need = _common(charges(scaled), ledger.n_agents, epsilon, delta)
        push = np.where(over, np.maximum(need, 1.0 + 1e-6), np.where(slack, need, 1.0))
    if np.isinf(spent).any():
        raise InputError(
            f"privacy.epsilon: got {epsilon:g}, but with so little noise the sampling of these few releases in float64 "
            f"may add more than delta = {delta:g} to it; lower epsilon, or spread it over more rounds."
        )
    raise InputError(
        f"privacy.epsilon: no noise was found that brings these releases to {epsilon:g} at delta = {delta:g}; "
        f"{_mend(ledger)}."
    )


def _check_reachable(ledger: Ledger, epsilon: float, delta: float) -> None:
    """Refuse a target below what rounding and sampling in float64 cost under ever so much noise, and name that cost.

    The grid is a power of two: of all noise scales between two powers, the largest make it the smallest part of them.
    """
    prices = np.stack([epsilon_of(ledger.rescaled(factor), delta) for factor in _ENDLESS_NOISE])
    least = float(prices.min(axis=0).max())
    if epsilon >= _SURELY * least:
        return
    charged = charges(ledger.rescaled(_ENDLESS_NOISE[0]))
    slack = [list(sampling_slack(charged, kind, None, delta)) for kind in charged.kinds]
    if np.isinf(least):
        lost = max(float(bounds[0].delta.max()) for bounds in slack)
        raise InputError(
            f"privacy.delta: got {delta:g}, but sampling these releases in float64 may add {lost:.2g} to it, whatever "
            f"the noise; take a larger delta{' or fewer rounds' if ledger.rounds > 1 else ''}."
        )
    drawn = max(min(float(s.added(least).max()) for s in bounds) for bounds in slack)
    raise InputError(
        f"privacy.epsilon: got {epsilon:g}, but the smallest that any noise reaches here at delta = {delta:g} is about "
        f"{epsilon_text(least)}: rounding to the noise's grid and sampling in float64 ({drawn:.2g} of it) cost that "
        f"much, and more noise does not shrink it; {_mend(ledger)}."
    )


def _mend(ledger: Ledger) -> str:
    return "raise epsilon, or run fewer rounds" if ledger.rounds > 1 else "raise epsilon"


def rounds_within(ledger: Ledger, cap: float, delta: float) -> int:
    """Find the largest T such that the releases with index up to T cost every agent at most a cap.

    Args:
        ledger: the releases.
        cap: largest ε(δ), above 0.
        delta: δ.

    Returns:
        T; 0 if one round is too dear.

    Raises:
        InputError: the cap is not above 0.

    Example:
        >>> from decentral_dp.privacy.ledger import ChannelLedger
        >>> ones = np.ones((4, 1))
        >>> laplace = ChannelLedger(channel="y", mechanism="laplace", dimension=1, group=np.zeros(2, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": 0.5 * ones}, rate={"train": ones})
        >>> rounds_within(Ledger(2, (laplace,)), cap=0.6, delta=0.0)
        2
    """
    if not cap > 0.0:
        raise InputError(f"privacy.cap: got {cap}, wanted a number above 0.")

    def within(rounds: int) -> bool:
        return bool(epsilon_of(ledger.until(rounds), delta).max() <= cap)

    low, high = 0, ledger.rounds
    if within(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def _check_calibratable(ledger: Ledger, charged: Charges) -> None:
    for c in ledger.charged:
        if c.mechanism == NO_NOISE:
            raise InputError(
                f"privacy.epsilon: channel {c.channel!r} adds no noise that could be calibrated; give it a mechanism."
            )
        if any(np.isinf(s).any() for s in c.sensitivity.values()):
            raise InputError(
                f"privacy.epsilon: the sensitivity of channel {c.channel!r} is unbounded and no noise makes up for it; "
                "clip its records, or give the constants that bound it."
            )
    sensitivity = any((line.loss > 0.0).any() for lines in charged.lines.values() for line in lines)
    if not sensitivity:
        raise InputError("privacy.epsilon: no release touches any data, so there is no noise to calibrate.")


def _split(charged: Charges, agents: int, shares: Mapping[str, float] | None) -> dict[str, Array]:
    """Channel → factor per agent that puts the channels' own costs in the proportion of the shares."""
    if shares is None:
        return {name: np.ones(agents) for name in charged.names}
    if set(shares) != set(charged.names) or not all(s > 0.0 for s in shares.values()):
        raise InputError(
            f"privacy.share: wanted a positive share for each of {', '.join(charged.names)}, got {dict(shares)}."
        )
    if len({line.mechanism for lines in charged.lines.values() for line in lines}) > 1:
        raise InputError("privacy.share: channels of different mechanisms share no unit; give scales instead.")
    out = {}
    for name in charged.names:
        cost = np.max([_own_cost(accounts(charged, k, name)) for k in charged.kinds], axis=0)[charged.group]
        out[name] = np.where(cost > 0.0, cost / shares[name], 1.0)
    # Gaussian costs are μ², which falls with the square of the scale.
    gaussian = any(line.mechanism.unit == "μ" for lines in charged.lines.values() for line in lines)
    return {name: np.sqrt(f) if gaussian else f for name, f in out.items()}


def _own_cost(composed: ComposedCharges) -> Array:
    """(G,) Σ η_t ε_t for Laplace, Σ η_t² μ_t² for Gaussian releases."""
    total = composed.mu() ** 2
    for _, loss, column in (*composed.laplace, *composed.other, *composed.ranged):
        total = total + loss.sum(axis=0)[column]
    if composed.sampled_laplace is not None:
        total = total + (composed.sampled_laplace[1] * composed.sampled_laplace[2]).sum(axis=0)
    for sampled in (composed.sampled_gaussian, composed.sampled_poisson):
        if sampled is not None:
            total = total + ((sampled[1] * sampled[2]) ** 2).sum(axis=0)
    return np.asarray(total)


def _scaled(ledger: Ledger, factors: Mapping[str, Array]) -> Ledger:
    one = [
        replace(ledger, channels=(c,)).rescaled(factors[c.channel]).channels[0] if c.channel in factors else c
        for c in ledger.channels
    ]
    return replace(ledger, channels=tuple(one))


def _common(charged: Charges, agents: int, epsilon: float, delta: float) -> Array:
    """(m,) the factor that brings the dearest kind of record of every agent just under the target."""
    need = np.zeros(int(charged.group.max()) + 1)
    for kind in charged.kinds:
        composed = accounts(charged, kind, None)
        # What is left for ideal samplers, by the bounds that leave anything.
        every = [
            (float(slack.left(delta).min()), float(slack.added(epsilon).max()))
            for slack in sampling_slack(charged, kind, None, delta)
        ]
        least = np.full(composed.groups, np.inf)
        for left, added in [one for one in every if one[0] > 0.0 and one[1] <= 0.5 * epsilon] or every[:1]:
            # Far from the solution the slack may be more than everything.
            sampled = composed.sampled_gaussian is not None or composed.sampled_poisson is not None
            allowed = 0.5 * delta if left == 0.0 and (composed.gaussian or sampled) else left
            least = np.minimum(least, _needed(composed, max(0.5 * epsilon, epsilon - added), allowed))
            if settles(composed, added, epsilon):
                break
        need = np.maximum(need, least)
    return np.where(need > 0.0, need, 1.0)[charged.group]


def _needed(composed: ComposedCharges, epsilon: float, delta: float) -> Array:
    """(G,) factors; 0 where nothing is charged."""
    size = composed.size()
    out = np.zeros(composed.groups)
    open_groups = np.flatnonzero(size > 0.0)
    if composed.plain_gaussian and delta > 0.0:
        return composed.mu() / largest_mu(epsilon, delta)
    if composed.plain_laplace and delta == 0.0:
        return composed.pure() / (epsilon * (1.0 - 2e-6))
    bundles = composed.alike(open_groups)
    if len(bundles) > MOST_COLUMNS:
        bundles = gather(bundles, size)
    start: float | None = None
    for bundle in bundles:
        releases = composed.releases(bundle)
        start = solve(partial(_cost_at, releases, delta), epsilon, start)
        out[bundle] = start
    return out


def _cost_at(releases: Releases, delta: float, factor: float) -> float:
    """ε(δ) with all noise scales multiplied by a factor."""
    unit = np.array([[1.0 / factor], [1.0]])
    divided = Releases(
        releases.laplace / factor,
        releases.mu / factor,
        releases.sampled_laplace * unit,
        releases.sampled_gaussian * unit,
        releases.pure / factor,
        releases.ranged / factor,
        releases.poisson * unit,
    )
    return epsilon_at(divided, delta)


@lru_cache(maxsize=64)
def largest_mu(epsilon: float, delta: float) -> float:
    """Compute μ of the Gaussian pair that is (ε, δ)-private and no more, from below.

    Example:
        >>> round(largest_mu(epsilon=1.0, delta=1e-5), 3)
        0.268
    """
    return 1.0 / solve(lambda f: float(gaussian_epsilon(1.0 / f, delta)), epsilon, None, 1e-9)


def solve(
    price: Callable[[float], float], target: float, guess: float | None, tightness: float = 0.5 * TIGHTNESS
) -> float:
    """Find a factor whose price lies in [(1 − tightness)·target, target].

    False position in logarithms, between a factor that is too small and one that is large enough.

    Args:
        price: factor → price, which falls as the factor grows.
        target: of the price.
        guess: a factor to start from; None for 1.
        tightness: default half of TIGHTNESS.

    Example:
        >>> round(solve(lambda factor: 3.0 / factor, target=1.5, guess=None), 2)
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
        factor = _next(small, large, aim, turn)
        if large is not None and small is not None and large[0] / small[0] < 1.0 + 1e-13:
            break
    if large is None:
        raise InputError(
            f"privacy.epsilon: no amount of noise brings these releases down to {target}; raise epsilon or delta."
        )
    return large[0]


def _next(small: tuple[float, float] | None, large: tuple[float, float] | None, aim: float, turn: int) -> float:
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
