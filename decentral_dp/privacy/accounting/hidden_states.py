"""Privacy cost against adversaries that do not observe all messages (theorem P).

Round t maps the messages m_{t−1} of all agents to m_{i,t} = Φ_{i,t}(m_{t−1}) + z_{i,t}, z_{i,t} ~ N(0, s²_{i,t} I)
independent. For all data sets

    ‖Φ_{i,t}(m) − Φ_{i,t}(m')‖ ≤ Σ_j R_{t,ij} ‖m_j − m'_j‖,

and the replaced record of agent v moves v's noiseless message of round t by at most D_t. The adversary sees the
messages of the agents S_t of each round, and the published average Σ_i w_i m_{i,T−1}. All else about the rounds is
public and drawn independently of records and noise. For any k ≥ 0 with k_{i,t} = 0 on S_t and

    a_t = R_t k_{t−1} + D_t e_v,     k_{−1} = 0,

the adversary's view is dominated by the Gaussian pair of

    μ² = Σ_{t<T−1} Σ_i (a_{i,t} − k_{i,t})₊²/s²_{i,t}  +  Σ_{i∈S_{T−1}} a²_{i,T−1}/s²_{i,T−1}
         +  (Σ_{i∉S_{T−1}} w_i a_{i,T−1})² / Σ_{i∉S_{T−1}} w_i² s²_{i,T−1}.

k_{i,t} bounds the distance of the messages of agent i in two coupled runs, and a shift of that agent's noise removes
the excess. Every k gives a bound. It is evaluated at the k of the solver with all rounding upwards, so the solver
need not be trusted. Without a published average the last term is absent. k = 0 and S_t of all agents give the cost of
all messages.

Noise of covariance Σ_t between agents gives Σ_t y_tᵀ|Σ_t⁻¹|y_t, y = (a − k)₊, and the last term (wᵀa)²/wᵀΣw.

Noise of 0 cannot be shifted: an agent that is absent in a round keeps its message, R_i = e_i, s = D = 0 and k = a.
Members of the adversary have s = ∞ and are in every S_t, together with the agents whose messages they receive.

Agents that play the same part share one k. Any partition into cells gives a bound, with the largest row sums of R
between cells. It is exact if the cells are an equitable partition.

The proof is in docs/proofs/37, and the Lipschitz factors of steps are in docs/proofs/38 (see `step_factor`). The
sharper cost of a complete graph equals the cost of one agent with noise s/√m and movement D/m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from decentral_dp.bounded import Array

# Exchanges of variables between zero and positive.
_PIVOTS = 40
# Relative change of a bound at which the solver stops, where less time matters more.
_SMALL_CHANGE = 1e-4
# Ratio of the distances to the first and the last round of rounds whose k are free, where less time matters more.
_SPREAD = 1.2
# Fraction of the smallest noise that the solver uses instead of none; bounds are evaluated without it.
_SOLVER_NOISE = 2.0**-10
# Largest relative error of one operation in float64.
_UNIT = 2.0**-53
# Significant decimal digits by which agents that play the same part are found.
_DIGITS = 11


class HiddenRounds(NamedTuple):
    """Public numbers that describe T rounds among m agents.

    Args:
        factors: distinct matrices R, (K, m, m), of the l2 Lipschitz factors from agent j's message to agent i's
            message.
        factor_index: index of the matrix R of each round, (T,).
        noise: standard deviations s, (T, m), with 0 for no noise and +inf for members of the adversary.
        observed: whether the adversary observes each message (S), (T, m).
        rounding: amount that float64 rounding adds to the l2 distance of two noiseless messages, (T, m).
        weights: weights w of the published average of the last messages, (m,), all 0 if no average is published.
        covariance: C, (m, m). The noise of round t has the covariance s_i s_j C_ij between agents. None (the default)
            means independent noise.

    References:
        docs/proofs/37.
    """

    factors: Array
    factor_index: NDArray[np.int64]
    noise: Array
    observed: NDArray[np.bool_]
    rounding: Array
    weights: Array
    covariance: Array | None = None


class _System(NamedTuple):
    """Rounds among n cells of agents, of which the victim is the first.

    Args:
        rounds: rounds of one agent of each cell, with the largest sums of factors over a cell's agents.
        weights: sum of the weights of a cell's agents that are not seen in the last round, (n,).
        precision: sums of |C⁻¹| over the agents of two cells, (n, n).
        variance: variance of the noise of the published average.
        shift: movement of the victim's message by its record, (T,).
    """

    rounds: HiddenRounds
    weights: Array
    precision: Array
    variance: Array
    shift: Array


def hidden_mu(
    rounds: HiddenRounds,
    victims: Sequence[int] | NDArray[np.int64],
    shift: Array,
    most_cells: int | None = None,
    radius: int | None = None,
) -> Array:
    """Bound μ for one record of each of several agents.

    Args:
        rounds: public numbers of the rounds.
        victims: agents v that are not members of the adversary.
        shift: distance D by which each agent's record can move its noiseless message, (T, m).
        most_cells: limit on the different parts for a victim. Above it, each distance from the victim gets one part,
            for a looser bound in less time. None (the default) means no limit.
        radius: distance from the victim beyond which agents count as observed. The solver then stops at a small change,
            for a looser bound in less time. None (the default) means no limit.

    Returns:
        Bounds in float64, (len(victims),), +inf if an observed message has no noise and may differ.

    Raises:
        ValueError: the adversary has members but does not see one of their inputs.

    Example:
        >>> pull = np.array([[[2, 1, 0], [1, 1, 1], [0, 1, 2]]]) / 3.0
        >>> seen = np.array([[False, True, True]] * 2)
        >>> noise = np.array([[1.0, 1.0, np.inf]] * 2)
        >>> rounds = HiddenRounds(pull, np.zeros(2, dtype=np.int64), noise, seen, np.zeros((2, 3)), np.zeros(3))
        >>> hidden_mu(rounds, [0], np.array([[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])).round(6).tolist()
        [0.632456]
    """
    inside = np.isinf(rounds.noise)
    hidden = ~rounds.observed
    unseen_inputs = (
        rounds.factors[rounds.factor_index[t]][np.ix_(inside[t], hidden[t - 1])].any()
        for t in range(1, len(rounds.noise))
    )
    all_send = np.isfinite(rounds.noise).all() and rounds.noise.all()
    average_is_seen = rounds.weights.any() and (radius is not None or rounds.observed[-1].any())
    fault = ""
    if any(unseen_inputs):
        fault = "an adversary must see all inputs of its members"
    elif inside[:, victims].any():
        fault = "the victim must not be a member of the adversary"
    elif rounds.covariance is not None and (not all_send or average_is_seen):
        fault = (
            "correlated noise requires that all agents send in every round, none of them is a member, and no last "
            "message is observed with an average"
        )
    if fault:
        raise ValueError(fault)
    precision = None if rounds.covariance is None else _bound_precision(rounds.covariance)
    public = np.vstack([rounds.weights, rounds.observed])
    roles = _unique_columns(public)
    parts = _unique_columns(np.vstack([public, _rounded(rounds.noise), _rounded(rounds.rounding)]))
    if (rounds.noise == 0.0).any():
        # An observed message without noise has no bound.
        radius = None
    systems = [_system(rounds, precision, int(v), shift[:, v], roles, parts, most_cells, radius) for v in victims]
    # Victims with equal numbers up to rounding share one system with the largest of them.
    groups: dict[bytes, list[int]] = {}
    for place, one in enumerate(systems):
        parts_of_key = (*one.rounds[:-1], *one[1:])
        key = b"".join(np.array(part.shape).tobytes() + _rounded(part).tobytes() for part in parts_of_key)
        groups.setdefault(key, []).append(place)
    mu = np.empty(len(systems))
    for places in groups.values():
        same = [systems[place] for place in places]
        worst = same[0].rounds._replace(
            factors=np.max([one.rounds.factors for one in same], axis=0),
            noise=np.min([one.rounds.noise for one in same], axis=0),
            rounding=np.max([one.rounds.rounding for one in same], axis=0),
        )
        system = _System(
            worst,
            np.max([one.weights for one in same], axis=0),
            np.max([one.precision for one in same], axis=0),
            np.min([one.variance for one in same], axis=0),
            np.max([one.shift for one in same], axis=0),
        )
        mu[places] = _smallest_mu(system, rounds.noise.shape[1], radius is not None)
    return mu


def add_release(mu: Array, earlier: Array) -> Array:
    """Bound μ of the rounds and of a value that was released before them, rounded up.

        √(μ_0² + μ²)

    Args:
        mu: bounds on μ of the rounds, which hold for every released value, (V,).
        earlier: privacy costs μ_0 of releasing the value, (V,).

    References:
        docs/proofs/37.
    """
    return np.asarray(np.hypot(mu, earlier) * (1.0 + 8.0 * _UNIT))


def _rounded(values: NDArray[Any]) -> Array:
    """Return values with `_DIGITS` significant digits, for comparison."""
    mantissa, exponent = np.frexp(values * 1.0)
    return np.asarray(np.ldexp(np.round(mantissa, _DIGITS), exponent) + 0.0)


def _system(
    rounds: HiddenRounds,
    precision: Array | None,
    victim: int,
    shift: Array,
    roles: NDArray[np.int64],
    parts: NDArray[np.int64],
    most_cells: int | None,
    radius: int | None,
) -> _System:
    """Return the system of a victim, with agents that play the same part in one cell.

    Args:
        rounds: rounds of all agents.
        precision: matrix |C⁻¹|, rounded up; None for independent noise.
        victim: agent v.
        shift: movement of its message, (T,).
        roles: numbers that differ if weights or observed rounds differ, (m,).
        parts: numbers that differ if these, noise or rounding differ, (m,).
        most_cells, radius: limits, as in `hidden_mu`.
    """
    m = rounds.noise.shape[1]
    # Messages that are always observed are equal in both data sets: they move no other message.
    moves = np.where(rounds.observed[:-1].all(axis=0), 0.0, rounds.factors)
    # Distance 0 marks the victim.
    distance, observed = _distances(moves, victim), rounds.observed
    if radius is not None and distance.max() > radius:
        far = distance > radius
        moves, observed = np.where(far, 0.0, moves), observed | far
        distance = _distances(moves, victim)
    # Agents of one cell receive the same, and send the same.
    shared = [] if rounds.covariance is None else [rounds.covariance[None]]
    both_ways = np.concatenate([moves, moves.transpose(0, 2, 1), *shared])
    cells = _cells(both_ways, np.vstack([distance, parts, observed[0]]))
    if most_cells is not None and cells.max() >= most_cells:
        cells = _unique_columns(np.vstack([distance, roles]))
    n = int(cells.max()) + 1
    member = np.zeros((n, m))
    member[cells, np.arange(m)] = 1.0
    first = np.unique(cells, return_index=True)[1]

    def largest(values: Array) -> Array:
        """Return the largest value of the last axis over each cell."""
        order = np.argsort(cells, kind="stable")
        starts = np.searchsorted(cells[order], np.arange(n))
        return np.asarray(np.maximum.reduceat(values[..., order], starts, axis=-1))

    sums = moves @ member.T
    cells_of_rounds = HiddenRounds(
        largest(sums.transpose(0, 2, 1)).transpose(0, 2, 1),
        rounds.factor_index,
        -largest(-rounds.noise),
        observed[:, first],
        largest(rounds.rounding),
        rounds.weights[first],
    )
    averaged = np.where(observed[-1], 0.0, rounds.weights)
    scaled = averaged * np.where(averaged > 0.0, rounds.noise[-1], 0.0)
    if precision is None:
        inverse, variance = np.diag(member.sum(axis=1)), float(scaled @ scaled)
    else:
        covariance = cast(Array, rounds.covariance)
        inverse = member @ precision @ member.T
        # Pairs of agents cancel.
        sizes = scaled @ np.abs(covariance) @ scaled
        variance = float(scaled @ covariance @ scaled - 4.0 * (m + 2.0) * _UNIT * sizes)
    return _System(cells_of_rounds, member @ averaged, inverse, np.array(variance), shift)


def _bound_precision(covariance: Array) -> Array:
    """Bound the entries of |C⁻¹| from above: C⁻¹ = X − C⁻¹(CX − I)."""
    m, inverse = len(covariance), np.linalg.inv(covariance)
    sizes = np.abs(covariance) @ np.abs(inverse)
    residual = np.abs(covariance @ inverse - np.eye(m)) + 4.0 * (m + 2.0) * _UNIT * sizes
    share = float(residual.sum(axis=1).max())
    if not share < 0.5:
        raise ValueError("the covariance is near singular")
    return np.asarray(np.abs(inverse) + np.abs(inverse).sum(axis=1).max() / (1.0 - share) * residual.max() * 1.01)


def _cells(factors: Array, facts: Array) -> NDArray[np.int64]:
    """Return each agent's cell, (m,), by columns of facts, refined until sums of R over other cells are equal.

    Sums are compared under three weightings of the cells. Cells that the weightings do not separate stay together, for
    a looser bound.
    """
    cells = _unique_columns(facts)
    for _ in range(cells.size):
        labels = np.stack([np.cos((cells + 1.0) * speed) for speed in (1.0, 2.0**0.5, 3.0**0.5)], axis=1)
        sums = np.round(factors @ labels, _DIGITS - 2).transpose(0, 2, 1).reshape(-1, cells.size)
        finer = _unique_columns(np.vstack([cells * 1.0, sums]))
        if finer.max() == cells.max():
            break
        cells = finer
    return cells


def _unique_columns(facts: Array) -> NDArray[np.int64]:
    """Return the number of each column, (m,), among the different columns in lexicographic order."""
    return np.unique(facts, axis=1, return_inverse=True)[1].reshape(-1)


def _distances(factors: Array, victim: int) -> Array:
    """Return the least number of rounds, (m,), after which an agent's message depends on the victim's (m if never)."""
    links = scipy.sparse.csr_array((factors != 0.0).any(axis=0).T)
    distance = scipy.sparse.csgraph.dijkstra(links, indices=victim, unweighted=True)
    return np.asarray(np.where(np.isinf(distance), factors.shape[1], distance))


def _smallest_mu(system: _System, terms: int, is_quick: bool) -> float:
    """Return the smallest bound over all k of the solver, which may stop at a small change.

    It minimises the sum without ( )₊ over k ≥ 0, a sparse quadratic program: some k are free, and the others are 0. The
    free k solve a banded linear system.

    Args:
        system: system of the victim.
        terms: number of agents, for bounds on rounding.
        is_quick: whether k is free in few rounds and linear between them, and the solver stops at a small change.
    """
    shape = system.rounds.noise.shape
    best = _mu_at(system, np.zeros(shape), terms)
    hidden = ~system.rounds.observed[:-1]
    if not hidden.any():
        return best
    knots = _knots(len(hidden)) if is_quick else np.arange(len(hidden))
    between = np.stack([np.interp(np.arange(len(hidden)), knots, one) for one in np.eye(len(knots))], axis=1)
    hidden = hidden[knots].ravel()
    curvature, constant = _quadratic(system, between)
    row, column, value = (
        part[curvature.row >= curvature.col] for part in (curvature.row, curvature.col, curvature.data)
    )
    apart, free = np.zeros(hidden.size), hidden.copy()
    fewest, patience = hidden.size + 1, 3
    for _ in range(_PIVOTS):
        place = np.cumsum(free) - 1
        both = free[row] & free[column]
        i, j = place[row[both]], place[column[both]]
        bands = np.zeros((int((i - j).max(initial=0)) + 1, int(free.sum())))
        bands[i - j, j] = value[both]
        apart = np.zeros(hidden.size)
        try:
            apart[free] = scipy.linalg.solveh_banded(bands, -constant[free], lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            break
        slope = curvature @ apart + constant
        k = np.zeros(shape)
        k[:-1] = between @ np.maximum(apart, 0.0).reshape(len(knots), -1)
        before, best = best, min(best, _mu_at(system, k, terms))
        if is_quick and best >= (1.0 - _SMALL_CHANGE) * before:
            break
        least, flat = (-1e-12 * np.abs(part).max(initial=0.0) for part in (apart, slope))
        wrong = np.where(free, apart < least, hidden & (slope < flat))
        count = int(wrong.sum())
        if not count:
            break
        # Kim & Park 2011: exchange all variables while that helps, then only the last one, which terminates.
        if count < fewest:
            fewest, patience = count, 3
        elif patience:
            patience -= 1
        else:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return best


def _knots(rounds: int) -> NDArray[np.int64]:
    """Return rounds whose spacing grows with the distance to the nearer end."""
    ends = [0]
    while 2 * ends[-1] < rounds:
        ends.append(max(ends[-1] + 1, int(ends[-1] * _SPREAD)))
    near = np.array([t for t in ends if 2 * t < rounds], dtype=np.int64)
    return np.union1d(near, rounds - 1 - near)


def _quadratic(system: _System, between: Array) -> tuple[Any, Array]:
    """Return H and g of the sum without ( )₊, kᵀHk + 2gᵀk plus a constant.

    Args:
        system: system of the victim.
        between: interpolation of k in time, (T − 1, J).
    """
    rounds = system.rounds
    T, n = rounds.noise.shape
    smallest = rounds.noise.min(where=rounds.noise > 0.0, initial=np.inf)
    little = _SOLVER_NOISE * (smallest if np.isfinite(smallest) else 1.0)
    noise = np.where(rounds.noise > 0.0, rounds.noise, little)
    # a − k = B k + b.
    entries = [(-np.ones((T - 1) * n), *2 * (np.arange((T - 1) * n),))]
    for number, factors in enumerate(rounds.factors):
        i, j = np.nonzero(factors)
        starts = np.flatnonzero(rounds.factor_index[1:] == number)[:, None] * n
        entries.append((np.tile(factors[i, j], len(starts)), (starts + n + i).ravel(), (starts + j).ravel()))
    values, rows, columns = map(np.concatenate, zip(*entries, strict=True))
    B = scipy.sparse.csr_array((values, (rows, columns)), shape=(T * n, (T - 1) * n))
    if len(between.T) < T - 1:
        B = B @ scipy.sparse.kron(scipy.sparse.csr_array(between), scipy.sparse.eye_array(n), format="csr")
    b = rounds.rounding.copy()
    b[:, 0] += system.shift
    b = np.where(np.isfinite(b), b, 0.0).ravel()
    inverse = 1.0 / noise
    inverse[-1] = np.where(rounds.observed[-1], inverse[-1], 0.0)
    scales = scipy.sparse.diags_array(inverse.ravel())
    precision = scipy.sparse.kron(scipy.sparse.eye_array(T), scipy.sparse.csr_array(system.precision), format="csr")
    mean = np.zeros((1, T * n))
    mean[0, -n:] = system.weights / math.sqrt(system.variance if system.variance > 0.0 else 1.0)
    averaged = scipy.sparse.csr_array(mean)
    half = (scales @ precision @ scales + averaged.T @ averaged) @ B
    return (B.T @ half).tocoo(), half.T @ b


def _mu_at(system: _System, apart: Array, agents: int) -> float:
    """Return the square root of the sum at k, (T, n), rounded up."""
    rounds, shift = system.rounds, system.shift
    terms = agents + 8.0
    before, total = np.zeros(rounds.noise.shape[1]), 0.0
    last = len(shift) - 1
    for t, (noise, seen) in enumerate(zip(rounds.noise, rounds.observed, strict=True)):
        a = rounds.factors[rounds.factor_index[t]] @ before + rounds.rounding[t]
        a[0] += shift[t]
        # A sum of m nonnegative products has at most m + 1 relative roundings, and so has a row sum of R.
        a *= 1.0 + 4.0 * terms * _UNIT
        noiseless = noise == 0.0
        if (noiseless & seen & (a > 0.0)).any() or not np.isfinite(a).all():
            return math.inf
        # The inputs of members are equal in both data sets, and so are their messages.
        paid = ~noiseless & np.isfinite(noise)
        before = np.where(seen, 0.0, a if t == last else np.where(noiseless, a, apart[t]))
        excess = np.where(paid, np.maximum(a - before, 0.0) / np.where(paid, noise, 1.0), 0.0)
        total += float(excess @ system.precision @ excess)
    moved = float(system.weights @ before)
    if moved > 0.0:
        total = total + moved**2 / float(system.variance) if system.variance > 0.0 else math.inf
    return math.sqrt(total) * (1.0 + 4.0 * (2.0 * terms + len(shift)) * _UNIT)
