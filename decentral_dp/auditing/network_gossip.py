"""Exact network DP of linear gossip with Gaussian noise, and a bound on the effect of float64.

All agents run, coordinate by coordinate,

    ṽ_{t+1} = A_t ṽ_t + (public terms) + λ_t u_t + n_{t+1},     n_{i,t+1} ~ N(0, s_{i,t+1}²),
    A_t = diag(k_t)(I + W) − diag(c_t)

with W the mixing matrix, ṽ_0 public, and u_{i,t} the mean over agent i's first N_{i,t} records of bounded numbers that
do not depend on ṽ. The observer, a set O of agents, follows the protocol and remembers the messages ṽ_{j,t},
t = 1..T, of its neighbours N, its own noise, records and released values, W, k, c, λ, s and counts. It may know all
records except one. Its own releases add nothing: given n_O, ṽ_O is a function of the received messages.

Replacing one record of agent v, read from round τ on, moves λ_t u_{v,t} by λ_t (a' − a)/N_{v,t} for t ≥ τ. This is one
direction of R^d, the same in all rounds, and a distance of at most λ_t·2C/N_{v,t} =: g_{v,t}. Noise is independent and
identically distributed over coordinates, so only that direction counts. Along it the messages are Gaussian, with a
covariance Σ without records and a mean that moves by L g_v. Such a pair of distributions is exactly a Gaussian pair
(Dong, Roth & Su, "Gaussian differential privacy", J. R. Stat. Soc. B, 2022) with

    μ² = (L g_v)ᵀ Σ⁻¹ (L g_v),

maximised over the records, which differ in their arrival τ. An earlier arrival is not always worse, since in correlated
noise earlier movements can cancel.

Σ has T·|N| rows and is never formed. Let H be the agents that are neither in O nor in N, B = A_t[N, H], and Π_t the
covariance of ṽ_{H,t} given the messages up to t; Π_0 = 0, since ṽ_0 is public. The Kalman filter gives independent
innovations of covariance S. Its error moves by d, with a recursion that is linear in g:

    S = B Π Bᵀ + D_N      K = A_HH Π Bᵀ S⁻¹      F = A_HH − K B      Π' = F Π Fᵀ + D_H + K D_N Kᵀ
    r = B d + g_N         d' = F d + g_H − K g_N                     μ² = Σ_t rᵀ S⁻¹ r,   d_τ = 0

D = diag(s²). S ≥ D_N and Π' ≥ D_H, so nothing is singular while all agents add noise, and every term of Π' is positive
semi-definite (Joseph's form). Backwards, V_t(d) = dᵀQ d + 2 qᵀd + c is the loss of the rounds from t on, and c is μ²
for a record that arrives at t: one pass for all victims and all arrivals, O(T m³) for each observer.

The effect of float64 is bounded. Messages are ṽ = g·(rint(public/g) + rint(private/g) + rint(N s/g)), on the grid g of
`mechanisms`. Without the last rounding, z = g·(rint(public/g) + rint(private/g)) + s N. ṽ is z rounded to the grid, and
the view of an observer O is a function of the path of z outside O and of O's own noise. Given the past of z, the mean
of z_{i,t+1} differs from real arithmetic by at most D_{i,t+1} in a coordinate, and √d D_{i,t+1} + E_{i,t} in norm:

    D_{i,t+1} = o·g_{i,t+1} + Σ_j |A_ij,t| r_{j,t} + φ_t,   r_{j,t} = g_{j,t}/2 outside O, and D_{j,t} + g_{j,t}/2 in O

(its two roundings, o = 1, or 3/2 if the private one is random; the roundings of received messages; φ from the public
part; E from summing and clipping, `summation_slack`). Both distributions of the path are chains of Gaussian kernels of
the same variance, hence (adaptive composition) a pair with at most

    ν² = Σ_{t, i∉O} (√d D_{i,t+1} + E_{i,t})²/s_{i,t+1}²,

and the views in two neighbouring data sets are a pair with at most μ + 2ν: float64 to real, real to real, real to
float64 (group privacy; Dong, Roth & Su, "Gaussian differential privacy", J. R. Stat. Soc. B, 2022).

All noise counts here, not only the victim's, and float64 variates are not exactly normal: see
`simulation.jobs.published.epsilon_in_float64`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError, quoted
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.simulation.jobs.published import LARGEST_VARIATE, epsilon_in_float64
from decentral_dp.topology.graphs import list_agents

# Products of two numbers, in addition to agents³, that take as long as a round of an observer on one core.
_PER_ROUND = 7e4
_PER_SECOND = 5e8
MOST_SECONDS = 120.0
# Largest trace of a covariance in units of the noise, for an inverse with enough correct digits.
_LARGEST_TRACE = 1e12


@dataclass(frozen=True, eq=False)
class NetworkBudget:
    """Privacy cost μ of each pair of an observer and a victim.

    Attributes:
        observers: sets of agents, ascending.
        mu: value of μ for each pair, (o, m); NaN if the victim is a member of the observer.
        arrival: first round that reads the worst record, (o, m); −1 if mu is NaN.
        total: value of μ against an adversary that observes all messages, (m,), which is at least mu.
    """

    observers: tuple[tuple[int, ...], ...]
    mu: Array
    arrival: NDArray[np.int64]
    total: Array


class _Gossip(NamedTuple):
    """Rounds of one observer.

    Attributes:
        mixing: matrix I + W, (m, m).
        share, shrink, noise: values k, c and s of each round and agent, (T, m).
        observed, hidden: indices of the agents N and H.
    """

    mixing: Array
    share: Array
    shrink: Array
    noise: Array
    observed: NDArray[np.int64]
    hidden: NDArray[np.int64]

    def blocks(self, t: int) -> tuple[Array, Array]:
        """Return B in units of the messages' noise, (n, h), and A_HH, (h, h), of round t."""
        n, h = self.observed, self.hidden
        own_weights = self.share[t, h][:, None] * self.mixing[np.ix_(h, h)] - np.diag(self.shrink[t, h])
        return (self.share[t, n] / self.noise[t, n])[:, None] * self.mixing[np.ix_(n, h)], own_weights


def pairwise(
    mixing: Any,
    contraction: Array,
    injected: Array,
    noise: Array,
    observers: Sequence[Sequence[int]] | None = None,
    arrivals: NDArray[np.bool_] | None = None,
    share: Array | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NetworkBudget:
    """Compute μ of every pair of an observer and a victim.

    Args:
        mixing: mixing matrix W, (m, m), dense or sparse.
        contraction: factor c of each round, (T,) or (T, m).
        injected: largest change g of λ_t u_t when one record is replaced, (T, m).
        noise: standard deviation s of the release with index t + 1, (T, m).
        observers: sets of agents. By default, every agent is an observer.
        arrivals: whether a record of an agent is first read in round t, (T, m). By default all are first read in round
            0.
        share: factor k of each round, (T,) or (T, m); default 1.
        progress: callback that receives the number of observers completed and the total.

    Raises:
        InputError: the noise is not positive, or the computation would take more than MOST_SECONDS.

    References:
        Proof in docs/proofs/25.

    Example:
        >>> from decentral_dp.topology import build_topology
        >>> injected, noise = np.full((4, 3), 0.1), np.ones((4, 3))
        >>> seen = pairwise(build_topology("path", 3).mixing, np.zeros(4), injected, noise)
        >>> seen.mu[0].round(3).tolist(), seen.total.round(3).tolist()
        ([nan, 0.182, 0.083], [0.2, 0.2, 0.2])
    """
    weights = np.asarray(mixing.toarray() if hasattr(mixing, "toarray") else mixing, dtype=np.float64)
    m = len(weights)
    g, s = np.asarray(injected, dtype=np.float64), np.asarray(noise, dtype=np.float64)
    shrink, shares = _per_agent(contraction, m), _per_agent(np.ones(len(g)) if share is None else share, m)
    arrives = np.arange(len(g))[:, None] == np.zeros(m) if arrivals is None else arrivals
    if not (s > 0.0).all() or not all(np.isfinite(part).all() for part in (g, s, shrink, shares)):
        raise InputError(
            "network: noise scales must be positive and finite, and learning rates and clipping norms "
            "finite. Fix: correct the ones that are not."
        )
    sets = observer_sets(observers, [str(agent) for agent in range(m)])
    require_time(len(sets), m, len(g), duration(len(sets), m, len(g)))
    mixing_weights = np.eye(m) + weights
    mu, arrival = np.full((len(sets), m), np.nan), np.full((len(sets), m), -1)
    for row, members in enumerate(sets):
        outside = np.setdiff1d(np.arange(m), members)
        near = (weights[list(members)][:, outside] != 0.0).any(axis=0)
        gossip = _Gossip(mixing_weights, shares, shrink, s, outside[near], outside[~near])
        mu[row, outside], arrival[row, outside] = _worst_arrivals(gossip, g, arrives, outside)
        if progress is not None:
            progress(row + 1, len(sets))
    return NetworkBudget(sets, mu, arrival, everything(g, s, arrives))


def everything(injected: Array, noise: Array, arrivals: NDArray[np.bool_]) -> Array:
    """Compute μ of each victim for all messages, (m,); see `pairwise` for the arguments.

    Example:
        >>> first = np.array([[True], [False]])
        >>> everything(np.array([[3.0], [4.0]]), np.ones((2, 1)), first).tolist()
        [5.0]
    """
    squared_mu = np.cumsum(((injected / noise) ** 2)[::-1], axis=0)[::-1]
    return np.asarray(np.sqrt(np.where(arrivals, squared_mu, 0.0).max(axis=0)))


def duration(observers: int, agents: int, rounds: int) -> float:
    """Return the approximate running time of `pairwise` on one core, in seconds."""
    return observers * rounds * (_PER_ROUND + float(agents) ** 3) / _PER_SECOND


def require_time(observers: int, agents: int, rounds: int, seconds: float) -> None:
    """Raise InputError if the seconds exceed MOST_SECONDS."""
    if seconds > MOST_SECONDS:
        raise InputError(
            f"network: {observers} observers of {agents} agents over {rounds} rounds take too long to compute "
            f"(got about {seconds / 60.0:.0f} minutes, expected at most {MOST_SECONDS / 60.0:.0f}). Fix: name "
            "fewer observers with --coalition, or use fewer agents or rounds."
        )


def _per_agent(values: Array, m: int) -> Array:
    numbers = np.asarray(values, dtype=np.float64)
    return np.repeat(numbers[:, None], m, axis=1) if numbers.ndim == 1 else numbers


def observer_sets(
    coalitions: Sequence[Sequence[int | str]] | None, labels: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    """Return the observers as ascending sets of agents' numbers. By default, every agent is an observer.

    Args:
        coalitions: sets of agents, by number or by name.
        labels: names of the agents.

    Raises:
        InputError: a set is empty, names an unknown agent, or contains all agents, so that no victim is left.

    Example:
        >>> observer_sets(None, "abc"), observer_sets([["c", 0]], "abc")
        (((0,), (1,), (2,)), ((0, 2),))
    """
    number, sets = {label: agent for agent, label in enumerate(labels)}, []
    for members in [[i] for i in range(len(labels))] if coalitions is None else coalitions:
        agents = {number.get(agent, -1) if isinstance(agent, str) else int(agent) for agent in members}
        problem = ""
        if isinstance(members, str) or not agents or not agents <= set(range(len(labels))):
            some = f"expected some of {list_agents(list(labels))}"
            problem = f"invalid agents (got {quoted(members)}, {some}). Fix: use numbers or names of these agents."
        elif len(agents) == len(labels):
            most = f"got {len(agents)} agents, expected at most {len(labels) - 1}"
            problem = f"a coalition of all agents leaves no victim ({most}). Fix: remove an agent from it."
        if problem:
            raise InputError(f"coalitions: {problem}", command=f"--coalition: {problem}")
        sets.append(tuple(sorted(agents)))
    return tuple(sets)


def _worst_arrivals(
    gossip: _Gossip, g: Array, arrives: NDArray[np.bool_], outside: NDArray[np.int64]
) -> tuple[Array, NDArray[np.int64]]:
    """Return μ and the worst arrival of all agents outside one observer."""
    observed_columns, hidden = np.searchsorted(outside, gossip.observed), np.searchsorted(outside, gossip.hidden)
    left_factor = np.zeros((hidden.size, hidden.size))
    slope, value = np.zeros((hidden.size, outside.size)), np.zeros(outside.size)
    worst, arrival = np.zeros(outside.size), np.zeros(outside.size, dtype=np.int64)
    for t, (gain, inverse) in reversed(list(enumerate(_filter(gossip)))):
        reach, inner = gossip.blocks(t)
        error = inner - gain @ reach
        # Movement by one record of the messages (in units of their noise), and of the error of the filter.
        direct, lasting = np.zeros((observed_columns.size, outside.size)), np.zeros((hidden.size, outside.size))
        direct[np.arange(observed_columns.size), observed_columns] = (g[t] / gossip.noise[t])[gossip.observed]
        lasting[np.arange(hidden.size), hidden] = g[t, gossip.hidden]
        lasting -= gain @ direct
        observed_part, later = inverse @ direct, left_factor @ lasting
        value = value + (direct * observed_part).sum(axis=0) + (lasting * (later + 2.0 * slope)).sum(axis=0)
        slope = reach.T @ observed_part + error.T @ (later + slope)
        left_factor = reach.T @ inverse @ reach + error.T @ left_factor @ error
        worse = arrives[t, outside] & (value >= worst)
        worst, arrival = np.where(worse, value, worst), np.where(worse, t, arrival)
    return np.sqrt(worst), arrival


def _filter(gossip: _Gossip) -> Iterator[tuple[Array, Array]]:
    """Yield K and S⁻¹ of every round, with every message divided by the standard deviation of its noise: S ≥ I."""
    spread = np.zeros((gossip.hidden.size, gossip.hidden.size))
    for t in range(len(gossip.noise)):
        reach, inner = gossip.blocks(t)
        common = reach @ spread
        noise = common @ reach.T + np.eye(gossip.observed.size)
        # S ≥ I, so its trace bounds its condition number.
        if not np.trace(noise) <= _LARGEST_TRACE:
            raise InputError(
                f"network: noise scales differ too much for float64 before round {t} (got a variance ratio of "
                f"{np.trace(noise):.1g}, expected at most {_LARGEST_TRACE:g}). Fix: use noise scales that "
                "differ less between agents and rounds."
            )
        inverse = np.asarray(np.linalg.inv(noise), dtype=np.float64)
        gain: Array = inner @ common.T @ inverse
        yield gain, inverse
        error = inner - gain @ reach
        spread = error @ spread @ error.T + np.diag(gossip.noise[t, gossip.hidden] ** 2) + gain @ gain.T


class Messages(NamedTuple):
    """Numbers that determine the messages.

    Args:
        mixing: mixing matrix W, (m, m).
        share, contraction: factors k and c of A_t = k_t (I + W) − c_t I, (T,) each.
        noise: standard deviations s, (T, m).
        dimension: dimension d of a message.
        sum_error: error E of summing and clipping, (T, m).
        start: largest |ṽ_0|.
        largest_addition: largest amount that a round adds to a coordinate, without noise, (T,).
    """

    mixing: Array
    share: Array
    contraction: Array
    noise: Array
    dimension: int
    sum_error: Array
    start: float
    largest_addition: Array


def rounding(messages: Messages, observers: tuple[tuple[int, ...], ...]) -> Array:
    """Return ν of each observer, (o,); +inf if messages may leave the grid of their noise."""
    rounds, m = messages.noise.shape
    cells, identity = GAUSSIAN.grid(messages.noise, messages.dimension), np.eye(m)
    cells_per_coordinate = 1.5 if GAUSSIAN.rounds_at_random(messages.dimension) else 1.0
    terms = 16.0 + float((messages.mixing != 0.0).sum(axis=1).max())
    inside = np.zeros((len(observers), m), dtype=np.bool_)
    for row, members in enumerate(observers):
        inside[row, list(members)] = True
    reach, total, largest = np.zeros((len(observers), m)), np.zeros(len(observers)), messages.start
    for t in range(rounds):
        step = np.abs(messages.share[t] * (identity + messages.mixing) - messages.contraction[t] * identity)
        # The terms of k_t (I + W) and of c_t I must not cancel.
        largest_message = (
            float((identity + np.abs(messages.mixing)).sum(axis=1).max()) + messages.contraction[t]
        ) * largest
        error = 2.0**-53 * terms * (largest_message + float(messages.largest_addition[t]))
        off = cells_per_coordinate * cells[t] + reach @ step.T + error
        total += np.where(
            inside, 0.0, ((np.sqrt(messages.dimension) * off + messages.sum_error[t]) / messages.noise[t]) ** 2
        ).sum(axis=1)
        reach = 0.5 * cells[t] + np.where(inside, off, 0.0)
        grown = float(step.sum(axis=1).max()) * largest + float(messages.largest_addition[t]) + error
        largest = grown + float((LARGEST_VARIATE * messages.noise[t] + 2.0 * cells[t]).max())
        if not largest < 2.0**52 * cells[t].min():
            return np.full(len(observers), np.inf)
    return np.sqrt(total)


def certified_epsilon(
    mu: Array, nu: Array, draws: NDArray[np.int64], dimension: int, delta: float, total_epsilon: Array
) -> Array:
    """Compute the ε that holds for float64 messages.

    Args:
        mu: exact μ, (o, m), NaN (as the result) if the victim is a member of the observer.
        nu: result of `rounding`, (o,).
        draws: number of normal variates outside the observer, (o,).
        dimension: dimension of a message.
        delta: δ of the guarantee.
        total_epsilon: ε against an adversary that observes all messages, (m,).

    Returns:
        ε of each pair, (o, m), at most `total_epsilon`.
    """
    inside = np.isnan(mu)
    distance = np.where(inside, 0.0, mu) + 2.0 * nu[:, None]
    bits = GAUSSIAN.bits(dimension)
    return np.where(inside, np.nan, epsilon_in_float64(distance, draws[:, None], bits, delta, total_epsilon))
