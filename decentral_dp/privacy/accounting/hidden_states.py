"""Privacy cost against adversaries that do not see every message (theorem P).

Round t maps the messages m_{t−1} of all agents to m_{i,t} = Φ_{i,t}(m_{t−1}) + z_{i,t}, z_{i,t} ~ N(0, s²_{i,t} I)
independent. For all data sets

    ‖Φ_{i,t}(m) − Φ_{i,t}(m')‖ ≤ Σ_j R_{t,ij} ‖m_j − m'_j‖,

and the replaced record of agent v moves v's noiseless message of round t by at most D_t. The adversary sees the
messages of the agents S_t of each round, and the published average Σ_i w_i m_{i,T−1}. All else about the rounds is
public and drawn independently of records and noise. For any k ≥ 0 with k_{i,t} = 0 on S_t and

    a_t = R_t k_{t−1} + D_t e_v,     k_{−1} = 0,

the view of the adversary is a pair with at most the Gaussian pair of

    μ² = Σ_{t<T−1} Σ_i (a_{i,t} − k_{i,t})₊²/s²_{i,t}  +  Σ_{i∈S_{T−1}} a²_{i,T−1}/s²_{i,T−1}
         +  (Σ_{i∉S_{T−1}} w_i a_{i,T−1})² / Σ_{i∉S_{T−1}} w_i² s²_{i,T−1}.

k_{i,t} bounds the distance of the messages of agent i in two coupled runs, and a shift of that agent's noise removes
the excess. Every k gives a bound. It is evaluated at the k of the solver with every rounding upwards, so the solver
need not be trusted. Without a published average the last term is absent. k = 0 and S_t of all agents give the cost of
all messages.

Noise of 0 cannot be shifted: an agent that is absent in a round keeps its message, R_i = e_i, s = D = 0 and k = a.
Members of the adversary have s = ∞ and are in every S_t, together with the agents whose messages they receive.

Agents that play the same part share one k. Any partition into cells gives a bound, with the largest row sums of R
between cells, and loses nothing if the cells are an equitable partition.

Proof in docs/proofs/37, with the Lipschitz factors of steps in docs/proofs/38: see `step_factor`. The sharper cost of a
complete graph is that of one agent with noise s/√m and movement D/m.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from decentral_dp.bounded import Array

# Exchanges of variables between zero and positive.
_PIVOTS = 40
# Relative change of a bound at which the solver stops, where less time matters more.
_SMALL_CHANGE = 1e-5
# Fraction of the smallest noise that the solver uses instead of none; bounds are evaluated without it.
_SOLVER_NOISE = 2.0**-10
# Number of cells from which factors are sparse, and matrices of a batch are inverted one by one.
_SPARSE = 40
# Largest relative error of one operation in float64.
_UNIT = 2.0**-53
# Significant decimal digits by which agents that play the same part are found.
_DIGITS = 11


class HiddenRounds(NamedTuple):
    """The public numbers of T rounds among m agents.

    Args:
        factors: (K, m, m) different R: Lipschitz factors from the message of agent j to that of agent i, in l2.
        factor_index: (T,) the R of each round.
        noise: s, (T, m) standard deviations; 0 without noise; +inf at members of the adversary.
        observed: S, (T, m) whether the adversary sees the message.
        rounding: (T, m) addition by float64 to the l2 distance of two noiseless messages.
        weights: w, (m,) of the published average of the last messages; 0 if none is published.

    References:
        docs/proofs/37.
    """

    factors: Array
    factor_index: NDArray[np.int64]
    noise: Array
    observed: NDArray[np.bool_]
    rounding: Array
    weights: Array


class _Systems(NamedTuple):
    """V systems of n cells each, with the fields of `HiddenRounds`; the victim is the first cell.

    Args:
        copies: (V, n) number of agents of a cell.
        shift: (V, T) movement of the victim's message by its record.
        terms: number of agents, for bounds on rounding.
    """

    factors: Array
    factor_index: NDArray[np.int64]
    noise: Array
    observed: NDArray[np.bool_]
    rounding: Array
    weights: Array
    copies: Array
    shift: Array
    terms: int


def hidden_mu(
    rounds: HiddenRounds,
    victims: Sequence[int] | NDArray[np.int64],
    shift: Array,
    most_cells: int | None = None,
    radius: int | None = None,
) -> Array:
    """Bound μ of one record of each of several agents.

    Args:
        rounds: the rounds.
        victims: agents v, no members of the adversary.
        shift: D, (T, m), movement of an agent's noiseless message by its record.
        most_cells: a victim with more different parts than this gets one part for each distance from it, for a looser
            bound in less time; default no limit.
        radius: agents at a larger distance from the victim count as observed, and the solver stops at a small change,
            for a looser bound in less time; default no limit.

    Returns:
        (len(victims),) bounds in float64; +inf if an observed message has no noise, and may differ.

    Raises:
        ValueError: the adversary has members, and does not see one of their inputs.

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
    for t in range(1, len(rounds.noise)):
        factors = rounds.factors[rounds.factor_index[t]]
        if factors[np.ix_(inside[t], hidden[t - 1])].any():
            raise ValueError("an adversary must see all inputs of its members")
    if inside[:, victims].any():
        raise ValueError("the victim must not be a member of the adversary")
    public = np.vstack([rounds.weights, rounds.observed])
    roles = _unique_columns(public)
    parts = _unique_columns(np.vstack([public, _rounded(rounds.noise), _rounded(rounds.rounding)]))
    if (rounds.noise == 0.0).any():
        # An observed message without noise has no bound.
        radius = None
    systems = [_system(rounds, int(v), shift[:, v], roles, parts, most_cells, radius) for v in victims]
    mu = np.empty(len(systems))
    # Victims with equal numbers up to rounding share one system with the largest of them.
    groups: dict[bytes, list[int]] = {}
    for place, one in enumerate(systems):
        key = b"".join(np.array(part.shape).tobytes() + _rounded(part).tobytes() for part in one[:-1])
        groups.setdefault(key, []).append(place)
    tolerance = 0.0 if radius is None else _SMALL_CHANGE
    batches: dict[int, list[tuple[list[int], _Systems]]] = {}
    for places in groups.values():
        one = systems[places[0]]
        for place in places[1:]:
            one = one._replace(
                factors=np.maximum(one.factors, systems[place].factors),
                noise=np.minimum(one.noise, systems[place].noise),
                rounding=np.maximum(one.rounding, systems[place].rounding),
                shift=np.maximum(one.shift, systems[place].shift),
            )
        batches.setdefault(one.copies.shape[1], []).append((places, one))
    for batch in batches.values():
        fields = zip(_Systems._fields, zip(*(one for _, one in batch), strict=True), strict=True)
        joined: Any = {name: np.concatenate(part) for name, part in fields if name not in ("factor_index", "terms")}
        for (places, _), value in zip(batch, _smallest_mu(batch[0][1]._replace(**joined), tolerance), strict=True):
            mu[places] = value
    return mu


def add_release(mu: Array, earlier: Array) -> Array:
    """Bound μ of the rounds together with a value that was released before them, rounded up.

        √(μ_0² + μ²)

    Args:
        mu: μ, (V,) of the rounds, whatever the value.
        earlier: μ_0, (V,) of its release.

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
    victim: int,
    shift: Array,
    roles: NDArray[np.int64],
    parts: NDArray[np.int64],
    most_cells: int | None,
    radius: int | None,
) -> _Systems:
    """Return the system of a victim, with agents that play the same part in one cell.

    Args:
        rounds: of all agents.
        victim: v.
        shift: (T,) movement of its message.
        roles: (m,) numbers that differ if weights or observed rounds do.
        parts: (m,) numbers that differ if these, noise or rounding do.
        most_cells, radius: of `hidden_mu`.
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
    both_ways = np.concatenate([moves, moves.transpose(0, 2, 1)])
    cells = _cells(both_ways, np.vstack([distance, parts, observed[0]]))
    if most_cells is not None and cells.max() >= most_cells:
        cells = _unique_columns(np.vstack([distance, roles]))
    n = int(cells.max()) + 1
    member = np.zeros((n, m))
    member[cells, np.arange(m)] = 1.0
    first = np.unique(cells, return_index=True)[1]

    def largest(values: Array) -> Array:
        """Return the largest of the last axis over each cell."""
        order = np.argsort(cells, kind="stable")
        starts = np.searchsorted(cells[order], np.arange(n))
        return np.asarray(np.maximum.reduceat(values[..., order], starts, axis=-1))

    sums = moves @ member.T
    factors = largest(sums.transpose(0, 2, 1)).transpose(0, 2, 1)
    return _Systems(
        factors[None],
        rounds.factor_index,
        -largest(-rounds.noise)[None],
        observed[None, :, first],
        largest(rounds.rounding)[None],
        rounds.weights[None, first],
        member.sum(axis=1)[None],
        shift[None],
        m,
    )


def _cells(factors: Array, facts: Array) -> NDArray[np.int64]:
    """Partition agents by columns of facts, refined until sums of R over other cells are equal, (m,) numbers of cells.

    Sums are compared under three weightings of the cells. Cells that these confuse stay together, for a looser bound.
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
    """Number the different columns in lexicographic order; (m,) the number of each column."""
    return np.unique(facts, axis=1, return_inverse=True)[1].reshape(-1)


def _distances(factors: Array, victim: int) -> Array:
    """Return (m,) the least number of rounds after which an agent's message depends on the victim's; m for never."""
    links = scipy.sparse.csr_array((factors != 0.0).any(axis=0).T)
    distance = scipy.sparse.csgraph.dijkstra(links, indices=victim, unweighted=True)
    return np.asarray(np.where(np.isinf(distance), factors.shape[1], distance))


def _smallest_mu(systems: _Systems, tolerance: float) -> Array:
    """Return the smallest bound of each system over all k of the solver, until it changes by less than a fraction."""
    hidden = ~systems.observed
    hidden[:, -1] = False
    free = hidden.copy()
    best = _mu_at(systems, np.zeros(hidden.shape))
    fewest = np.full(len(free), np.iinfo(np.int64).max)
    patience, running = np.full(len(free), 3), np.ones(len(free), dtype=np.bool_)
    for _ in range(_PIVOTS):
        apart, slope = _solve(systems, free)
        before, best = best, np.fmin(best, _mu_at(systems, np.maximum(apart, 0.0)))
        if tolerance and (best >= (1.0 - tolerance) * before).all():
            break
        largest = np.maximum(np.abs(apart).max(axis=(1, 2), initial=0.0), 1e-300)[:, None, None]
        steepest = np.maximum(np.abs(slope).max(axis=(1, 2), initial=0.0), 1e-300)[:, None, None]
        wrong = np.where(free, apart < -1e-12 * largest, hidden & (slope < -1e-12 * steepest)) & running[:, None, None]
        counts = wrong.sum(axis=(1, 2))
        running = counts > 0
        if not running.any():
            break
        # Kim & Park 2011: exchange all variables while that helps, then only the last one, which terminates.
        helps = counts < fewest
        fewest = np.where(helps, counts, fewest)
        last_only = running & ~helps & (patience == 0)
        patience = np.where(helps, 3, np.maximum(patience - 1, 0))
        for v in np.flatnonzero(last_only):
            last = np.flatnonzero(wrong[v])[-1]
            wrong[v] = False
            wrong[v].flat[last] = True
        free ^= wrong
    return best


def _solve(systems: _Systems, free: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Minimise the sum without ( )₊ over the free k, the others 0.

    With V_t(a) the least sum of the rounds from t on, quadratic in a = a_t, P and p its second and first order:

        V_t(a) = min_k (a − k)ᵀM_t(a − k) + V_{t+1}(R_{t+1} k + b_{t+1}),     M = diag(copies/s²),

    one linear system of n unknowns for each round.

    Returns:
        (V, T, n) k, and half the derivative of the sum in k.
    """
    count, rounds, n = free.shape
    noise = systems.noise
    smallest = noise.min(axis=(1, 2), where=noise > 0.0, initial=np.inf)[:, None, None]
    little = _SOLVER_NOISE * np.where(np.isfinite(smallest), smallest, 1.0)
    square = np.square(np.where(noise > 0.0, noise, little))
    weight = systems.copies[:, None] / square
    pushed = systems.rounding.copy()
    pushed[:, :, 0] += systems.shift
    pushed = np.where(np.isfinite(pushed), pushed, 0.0)
    last = _last_term(systems, square[:, -1])
    P, p = last, np.zeros((count, n))
    gains, offsets = np.empty((rounds, count, n, n)), np.zeros((rounds, count, n))
    transposed: Any = systems.factors.transpose(1, 0, 3, 2)
    if n >= _SPARSE:
        transposed = [[scipy.sparse.csr_array(weights) for weights in each] for each in transposed]
    diagonal = np.arange(n)
    for t in range(rounds - 2, -1, -1):
        R = systems.factors[:, systems.factor_index[t + 1]]
        RP, G = _congruence(transposed[systems.factor_index[t + 1]], P)
        g = np.einsum("vij,vj->vi", RP, pushed[:, t + 1]) + np.einsum("vji,vj->vi", R, p)
        M, chosen = weight[:, t], free[:, t]
        H = np.where(chosen[:, :, None] & chosen[:, None, :], G, 0.0)
        H[:, diagonal, diagonal] += np.where(chosen, M, 1.0)
        inverse = _inverse(H)
        gains[t] = inverse * np.where(chosen, M, 0.0)[:, None]
        offsets[t] = np.einsum("vij,vj->vi", inverse, np.where(chosen, -g, 0.0))
        P = -M[:, :, None] * gains[t]
        P[:, diagonal, diagonal] += M
        P = 0.5 * (P + P.transpose(0, 2, 1))
        p = -M * offsets[t]
    k, slope = np.zeros((count, rounds, n)), np.zeros((count, rounds, n))
    before = np.zeros((count, n))
    for t in range(rounds):
        R = systems.factors[:, systems.factor_index[t]]
        a = np.einsum("vij,vj->vi", R, before) + pushed[:, t]
        if t < rounds - 1:
            k[:, t] = np.einsum("vij,vj->vi", gains[t], a) + offsets[t]
            paid = weight[:, t] * (a - k[:, t])
        else:
            paid = np.einsum("vij,vj->vi", last, a)
        if t:
            slope[:, t - 1] += np.einsum("vji,vj->vi", R, paid)
        slope[:, t] -= paid
        before = k[:, t]
    return k, slope


def _congruence(transposed: Any, P: Array) -> tuple[Array, Array]:
    """Return RᵀP and RᵀPR of (V, n, n) matrices, P symmetric.

    Args:
        transposed: Rᵀ, an array or V sparse arrays.
        P: P.
    """
    if isinstance(transposed, np.ndarray):
        left = transposed @ P
        return left, left @ transposed.transpose(0, 2, 1)
    left = np.stack([weights @ matrix for weights, matrix in zip(transposed, P, strict=True)])
    return left, np.stack([weights @ matrix.T for weights, matrix in zip(transposed, left, strict=True)])


def _inverse(H: Array) -> Array:
    """Invert (V, n, n) positive definite matrices."""
    if H.shape[1] < _SPARSE:
        return np.asarray(np.linalg.inv(H))
    lapack, lower = scipy.linalg.lapack, np.empty(H.shape)
    for v, matrix in enumerate(H):
        lower[v] = np.tril(lapack.dpotri(lapack.dpotrf(matrix, lower=1)[0], lower=1)[0])
    out = lower + lower.transpose(0, 2, 1)
    diagonal = np.arange(H.shape[1])
    out[:, diagonal, diagonal] *= 0.5
    return out


def _last_term(systems: _Systems, square: Array) -> Array:
    """Return the matrix (V, n, n) of the quadratic cost of the last round."""
    seen = systems.observed[:, -1]
    averaged = np.where(seen, 0.0, systems.copies * systems.weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(averaged > 0.0, averaged * systems.weights * square, 0.0).sum(axis=1)
    matrix = averaged[:, :, None] * averaged[:, None, :] / np.where(variance > 0.0, variance, 1.0)[:, None, None]
    diagonal = np.arange(seen.shape[1])
    matrix[:, diagonal, diagonal] += np.where(seen, systems.copies / square, 0.0)
    return matrix


def _mu_at(systems: _Systems, apart: Array) -> Array:
    """Return √ of the sum at k, rounded up."""
    count, rounds, n = apart.shape
    terms = systems.terms + 8.0
    before, total = np.zeros((count, n)), np.zeros(count)
    infinite = np.zeros(count, dtype=np.bool_)
    for t in range(rounds):
        a = np.einsum("vij,vj->vi", systems.factors[:, systems.factor_index[t]], before) + systems.rounding[:, t]
        a[:, 0] += systems.shift[:, t]
        # A sum of m nonnegative products has at most m + 1 relative roundings, and so has a row sum of R.
        a *= 1.0 + 4.0 * terms * _UNIT
        noise, seen = systems.noise[:, t], systems.observed[:, t]
        noiseless = noise == 0.0
        infinite |= (noiseless & seen & (a > 0.0)).any(axis=1) | ~np.isfinite(a).all(axis=1)
        a = np.where(np.isfinite(a), a, 0.0)
        # The inputs of members are equal in both data sets, and so are their messages.
        paid = ~noiseless & np.isfinite(noise)
        before = np.where(seen, 0.0, a if t == rounds - 1 else np.where(noiseless, a, apart[:, t]))
        excess = np.where(paid, np.maximum(a - before, 0.0) / np.where(paid, noise, 1.0), 0.0)
        total += (systems.copies * np.square(excess)).sum(axis=1)
    averaged = systems.copies * systems.weights
    moved = (averaged * before).sum(axis=1)
    noise = np.where(np.isfinite(systems.noise[:, -1]), systems.noise[:, -1], 0.0)
    hides = np.where(systems.observed[:, -1], 0.0, averaged * systems.weights * np.square(noise)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        total += np.where(moved > 0.0, np.square(moved) / hides, 0.0)
    mu = np.sqrt(total) * (1.0 + 4.0 * (2.0 * terms + rounds) * _UNIT)
    return np.where(infinite, np.inf, mu)
