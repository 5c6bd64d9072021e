"""Published ε of papers on decentralised learning: claimed, certified and empirical, by setting.

    DECOR          Allouah et al. 2024, arXiv:2405.01031             pairwise noise that cancels
    CorN-DSGD      Rodio et al. 2025, arXiv:2501.14644 (Whisper)     optimised covariance of the noise
    PN-f-DP        Li et al. 2025, arXiv:2510.19934                  f-DP of random walks, and pairwise noise
    MFDL           Bellet et al. 2025, arXiv:2510.17480              pairwise ε by matrix factorisation
    Muffliato      Cyffers et al. 2022, arXiv:2206.05091             pairwise ε of gossip averages
    Top-DP         Guo et al. 2020, arXiv:2006.07817                 noise known to the neighbour is accounted

The claimed ε is the formula that the paper or its code evaluates. The certified ε is the smallest one that the
accountants of this package prove for the same releases. The empirical ε is a lower bound from a test with known error
rates. All are at δ = 1e-5 and replace one record or all records of an agent. σ is the multiplier of own noise and c
that of pairwise noise, relative to the clip. "As accounted" means fresh noise in every round, as in the paper's
accountant. "As run" means that pairwise noise is drawn once, as in the published scripts. Its scale has no effect then.

The formulas are reimplemented from public code. The pages in docs/papers/ list the parts of each paper that were read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_matrix
from scipy.special import gammaln, log_ndtr, logsumexp
from scipy.stats import norm

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.accountants import epsilon_at, gaussian_epsilon
from decentral_dp.privacy.accounting.loss_distributions import Releases
from decentral_dp.privacy.pair_noise import effective_scale
from decentral_dp.topology import build_topology
from papers.network_attacks import audit_network

DELTA = 1e-5
_LOG = math.log(1.0 / DELTA)
ALL_MESSAGES, NEIGHBOUR = "all messages", "one neighbour"
RECORD, AGENT = "record", "agent"
# Agents and steps of DECOR and PN-f-DP. The scripts run one step more than their accountants count.
AGENTS, STEPS, LIBSVM_STEPS = 16, 1000, 5000
# MNIST: records of a batch, accounted records of an agent, batches of a pass, and number of passes.
BATCH, SHARD, BATCHES, PASSES = 64, 3750, 59, 17
# Largest number of agents that hold the same record in the script's partition of MNIST.
COPIES = 15
GRAPHS = {"complete": "complete", "ring": "ring", "grid": "torus"}
MNIST, LIBSVM = "DECOR, MNIST", "DECOR, a9a"
CORN, PN, MFDL, MUFFLIATO, TOP = "CorN-DSGD", "PN-f-DP", "MFDL", "Muffliato", "Top-DP"


class Line(NamedTuple):
    """One published ε.

    Args:
        paper: short name of the paper.
        setting: setting of the releases.
        unit: unit of privacy, a record or an agent.
        adversary: messages that the adversary observes, all or those to one neighbour.
        claimed: ε as published.
        certified: smallest ε that this package proves.
        empirical: lower bound on ε.
    """

    paper: str
    setting: str
    unit: str
    adversary: str
    claimed: float
    certified: float
    empirical: float


# Accounting -----------------------------------------------------------------------------------------------------------


def gaussian(mu: float) -> float:
    """Compute the exact ε of a Gaussian mechanism at `DELTA`.

    Args:
        mu: μ, the sensitivity over the standard deviation.
    """
    return float(gaussian_epsilon(mu, DELTA))


def sampled(mu: float, rate: float, rounds: int, poisson: bool) -> float:
    """Compute the certified ε of Gaussian releases at `DELTA`, on Poisson samples or on batches of fixed size.

    Args:
        mu: μ of a release for a replaced record, without sampling.
        rate: q, or the fraction of the records in a batch.
        rounds: T.
        poisson: whether to use Poisson samples.
    """
    lines = np.array([[mu] * rounds, [rate] * rounds])
    return epsilon_at(Releases(poisson=lines) if poisson else Releases(sampled_gaussian=lines), DELTA)


def laplacian(graph: str, agents: int = AGENTS) -> Array:
    """Return the Laplacian of a graph, (m, m).

    Args:
        graph: kind of a graph without parameters.
        agents: m.
    """
    adjacency = np.asarray(build_topology(graph, agents).mixing.toarray() > 0.0, dtype=np.float64)
    np.fill_diagonal(adjacency, 0.0)
    return np.diag(adjacency.sum(axis=1)) - adjacency


def certified_mu(own: float, pair: float, graph: Array, reads: int) -> float:
    """Compute an upper bound on μ of the worst agent for fresh pairwise noise in each round.

    Args:
        own: σ, over the clip.
        pair: c, over the clip.
        graph: L, (m, m).
        reads: number of rounds in which a record changes its agent's message, by up to 2 clips.
    """
    edges = pair * np.sqrt(np.maximum(-graph, 0.0))
    return 2.0 * math.sqrt(reads) / float(effective_scale(np.full(len(graph), own), csr_matrix(edges), 0).min())


def exposure(own: float, pair: float, graph: Array) -> float:
    """Compute max_v [(σ²I + c²L)⁻¹]_vv, as in the papers' accountants.

    Args:
        own: σ.
        pair: c.
        graph: L, (m, m).
    """
    return float(np.linalg.inv(own**2 * np.eye(len(graph)) + pair**2 * graph).diagonal().max())


def constant_noise_mu(own: float, pair: float, graph: Array, reads: int, rounds: int, alternating: bool) -> float:
    """Compute μ per unit of sensitivity if pairwise noise is drawn once and used in every round.

    The covariance over rounds and agents is σ²I + 11ᵀ ⊗ c²L, so pairwise noise hides only the mean over the rounds.

    Args:
        own: σ.
        pair: c.
        graph: L.
        reads: number of rounds in which the record changes its agent's message.
        rounds: T.
        alternating: whether the changes alternate in sign, so that the mean over the rounds does not change.
    """
    in_mean = 0.0 if alternating else reads**2 / rounds
    return math.sqrt((reads - in_mean) / own**2 + in_mean * exposure(own, math.sqrt(rounds) * pair, graph))


# Claims ---------------------------------------------------------------------------------------------------------------


def zcdp_epsilon(rho: float) -> float:
    """Compute ε = ρ + 2√(ρ ln 1/δ) of ρ-zCDP at `DELTA`, as in DECOR and CorN-DSGD at user level.

    Args:
        rho: ρ.
    """
    return rho + 2.0 * math.sqrt(rho * _LOG)


def zcdp_rho(epsilon: float) -> float:
    """Compute the inverse of `zcdp_epsilon`."""
    return (math.sqrt(_LOG + epsilon) - math.sqrt(_LOG)) ** 2


def one_step_renyi(multiplier: float, rate: float) -> float:
    """Compute DECOR's ε at example level, the smallest Rényi divergence of *one* step on a batch.

        min over α of (1/(α − 1)) ln(1 + q² C(α, 2) min{4(e^ρ(2) − 1), 2e^ρ(2)} + 2 Σ_{j=3}^α q^j C(α, j) e^{(j−1)ρ(j)})

    with ρ(α) = 2α/z², z the noise multiplier of a batch's sum. It does not depend on the number of rounds or δ.
    """

    alphas, powers, log_terms = _renyi_terms(rate)
    rho = 2.0 / multiplier**2
    terms = log_terms + (powers - 1.0) * powers * rho
    second = 2.0 * rho + min(0.0, math.log(-2.0 * math.expm1(-2.0 * rho)))
    terms[:, 0] = log_terms[:, 0] + second
    return float((np.logaddexp(0.0, logsumexp(terms, axis=1) + math.log(2.0)) / (alphas - 1.0)).min())


@cache
def _renyi_terms(rate: float) -> tuple[Array, Array, Array]:
    """Return α = 2 … 100, j = 2 … 100, and ln(q^j C(α, j)) for each pair."""
    alphas = np.arange(2.0, 101.0)
    a, j = alphas[:, None], alphas[None, :]
    choose = gammaln(a + 1.0) - gammaln(j + 1.0) - gammaln(np.maximum(a - j, 0.0) + 1.0)
    return alphas, alphas, np.where(j <= a, choose + j * math.log(rate), -np.inf)


def first_within(value: Callable[[float], float], target: float, grid: Array, slack: float, both: bool) -> float | None:
    """Bisect a decreasing function on a grid as in the papers' scripts, and accept values up to `slack` above a target.

    Args:
        value: decreasing function.
        target: target value of ε or ρ.
        grid: ascending grid.
        slack: accepted excess over the target.
        both: whether to return None if the target is above the first value.
    """
    while grid.size > 1:
        middle = grid[grid.size // 2]
        if value(grid[-1]) > target or (both and value(grid[0]) < target):
            return None
        if target < value(middle) < target + slack:
            return float(middle)
        grid = grid[grid.size // 2 :] if value(middle) > target else grid[: grid.size // 2]
    return float(grid[0]) if grid.size else None


class PairNoise(NamedTuple):
    """Multipliers of own noise (σ) and of pairwise noise (c), relative to the clip."""

    own: float
    pair: float


def _least_own(
    noises: tuple[Array, Array], value: Callable[[float, float], float], target: float, slack: float, both: bool
) -> PairNoise:
    """Return the first σ of a grid for which `first_within` finds a c in another grid."""
    for own in noises[0].tolist():
        pair = first_within(partial(value, own), target, noises[1], slack, both)
        if pair is not None:
            return PairNoise(own, pair)
    raise ValueError(f"target: no noise in these grids has this value (got {target})")


def decor_mnist(claimed: float, graph: Array) -> PairNoise:
    """Compute DECOR's noise for an ε at example level, the first result of its script.

    Args:
        claimed: claimed ε.
        graph: L, (m, m).

    Returns:
        σ and c, relative to the clip of a batch's *sum*.

    Raises:
        ValueError: no noise in the script's grids has this ε.
    """
    rate = BATCH / SHARD

    def claim(own: float, pair: float) -> float:
        return one_step_renyi(1.0 / math.sqrt(exposure(own, pair, graph)), rate)

    grids = BATCH * np.linspace(1e-3, 0.05, 100), BATCH * np.linspace(5e-4, 0.1, 500)
    return _least_own(grids, claim, claimed, 0.05, True)


def decor_user_level(claimed: float, graph: Array, steps: int) -> PairNoise:
    """Compute DECOR's noise for an ε at user level.

    Args:
        claimed: claimed ε at `DELTA`.
        graph: L, (m, m).
        steps: T.

    Returns:
        σ and c, relative to the clip.

    Raises:
        ValueError: no noise in the script's grids has this ε.
    """
    rho = zcdp_rho(claimed) / steps
    local = math.sqrt(2.0 / rho)
    central = local / math.sqrt(len(graph))
    grids = np.linspace(central, local, 50), np.linspace(central / 1000.0, 10.0 * local, 1000)
    return _least_own(grids, lambda own, pair: 2.0 * exposure(own, pair, graph), rho, 1e-4, False)


def pn_f_dp(claimed: float, graph: Array, clip: float) -> PairNoise:
    """Compute the noise in the f-DP row of PN-f-DP's script.

    The script evaluates 1/((n − 1)σ²) + (1 − 1/(n − 1))/(σ² + a c²), with a the second smallest eigenvalue of L, at σ
    and c instead of σ² and c². It has μ = C√(2T(…)) although ρ = 2C²T(…) gives μ = √(2ρ) = 2C√(T(…)).

    Args:
        claimed: claimed ε at `DELTA`.
        graph: L, (n, n).
        clip: C.

    Returns:
        σ and c, relative to the clip.

    Raises:
        ValueError: no noise in the script's grids has this ε.
    """
    decor = decor_user_level(claimed, graph, STEPS)
    central = clip * math.sqrt(2.0 * STEPS / zcdp_rho(claimed) / len(graph))
    pair = clip * decor.pair
    others, second = len(graph) - 1, float(np.linalg.eigvalsh(graph)[1])

    def spread(own: float) -> float:
        return 1.0 / (others * own) + (1.0 - 1.0 / others) / (own + second * pair)

    target = zcdp_epsilon(2.0 * clip**2 * STEPS * spread(central))

    def excess(log_own: float) -> float:
        mu = clip * math.sqrt(2.0 * STEPS * spread(math.exp(log_own)))
        return float(gaussian(mu)) - target

    return PairNoise(math.exp(brentq(excess, math.log(1e-3), math.log(1e3), xtol=1e-10)) / clip, decor.pair)


def gossip_claim(mixing: Array, victim: int, neighbour: int, rounds: int) -> float:
    """Compute μ² per (sensitivity/σ)² of Muffliato's simulation, Σ_{t=1}^T Σ_{w next to v} (Wᵗ)²_uw/‖(Wᵗ)_w‖².

    Args:
        mixing: W, (m, m).
        victim: u, the agent that holds the record.
        neighbour: v, the observer.
        rounds: T.
    """
    in_neighbours, total, power = np.flatnonzero(mixing[neighbour]), 0.0, mixing
    for _ in range(rounds):
        rows = power[in_neighbours[in_neighbours != neighbour]]
        total += float((rows[:, victim] ** 2 / (rows**2).sum(axis=1)).sum())
        power = mixing @ power
    return total


def gossip_exact(mixing: Array, victim: int, neighbour: int, rounds: int) -> float:
    """Compute the exact value of `gossip_claim`.

    It is [B⁺B]_uu, where B maps the noisy values of all agents to the messages that v receives and to its own value.

    Args:
        mixing, victim, neighbour, rounds: see `gossip_claim`.
    """
    in_neighbours, power = np.flatnonzero(mixing[neighbour]), np.eye(len(mixing))
    observed = [power[neighbour]]
    for _ in range(rounds):
        observed += list(power[in_neighbours[in_neighbours != neighbour]])
        power = mixing @ power
    rows = np.linalg.svd(np.array(observed), full_matrices=False)
    basis = rows.Vh[rows.S / rows.S[0] > 1e-12]
    return float((basis[:, victim] ** 2).sum())


# Empirical lower bounds -----------------------------------------------------------------------------------------------


def _events_lower_bound(log_p: Array, log_q: Array) -> float:
    """Return the largest lower bound ln((P(A) − δ)/Q(A)) of several events A, from ln P(A) and ln Q(A)."""
    valid = log_p > -_LOG
    log_p, log_q = log_p[valid], log_q[valid]
    return float((log_p + np.log1p(-np.exp(-_LOG - log_p)) - log_q).max(initial=0.0))


def sum_lower_bound(mu: float, rate: float, rounds: int) -> float:
    """Compute a lower bound on ε from the sum of all releases for a record in each of T batches with probability q.

    The sum is N(±kμ/2, T) with k ~ Binomial(T, q). The event is that it exceeds a threshold.

    Args:
        mu: distance of the means of a release with either record, in standard deviations.
        rate: q.
        rounds: T.

    Returns:
        Lower bound on ε at `DELTA`.
    """
    counts = np.arange(rounds + 1)
    log_weight = gammaln(rounds + 1) - gammaln(counts + 1) - gammaln(rounds - counts + 1)
    log_weight = log_weight + counts * math.log(rate) + (rounds - counts) * math.log1p(-rate)
    likely = log_weight > -60.0
    cuts = np.linspace(0.0, 12.0 + rounds * rate * mu, 400)[:, None] * math.sqrt(rounds)

    def tail(sign: float) -> Array:
        moved = sign * 0.5 * mu * counts[likely]
        return np.asarray(logsumexp(log_weight[likely] + log_ndtr((moved - cuts) / math.sqrt(rounds)), axis=1))

    return _events_lower_bound(tail(1.0), tail(-1.0))


def maximum_lower_bound(mu: float, reads: int, rounds: int) -> float:
    """Compute a lower bound on ε from the largest of T releases for a record in `reads` of them, at secret indices.

    Subtracting the mean removes noise that is equal in all releases. After adding N(0, 1/T) to the mean, the releases
    are independent with variance 1. The event is that none exceeds a threshold.

    Args:
        mu: see `sum_lower_bound`.
        reads: number of releases that read the record.
        rounds: T.

    Returns:
        Lower bound on ε at `DELTA`.
    """
    cuts, lost = np.linspace(-4.0, 6.0, 2001), 0.5 * mu * reads / rounds

    def none_above(sign: float) -> Array:
        there, rest = log_ndtr(cuts - sign * (0.5 * mu - lost)), log_ndtr(cuts + sign * lost)
        return np.asarray(reads * there + (rounds - reads) * rest)

    return _events_lower_bound(none_above(-1.0), none_above(1.0))


def last_batch_lower_bound(mu: float, shard: int, passes: int, rounds: int) -> float:
    """Compute a lower bound on ε from the largest release if the last batch of a pass has one record.

    A record is in the last batch with probability 1/N, and then changes a release by `BATCH` times as much.

    Args:
        mu: see `sum_lower_bound`, for a full batch of `BATCH` records.
        shard: N, number of records of the agent.
        passes: number of passes.
        rounds: T.

    Returns:
        Lower bound on ε at `DELTA`.
    """
    far = 0.5 * BATCH * mu
    cuts = np.linspace(0.5 * far, far, 400)
    log_rate = math.log(-math.expm1(passes * math.log1p(-1.0 / shard)))
    return _events_lower_bound(log_rate + log_ndtr(far - cuts), math.log(rounds) + log_ndtr(0.5 * mu - cuts))


def densities_lower_bound(p: Array, q: Array, step: float) -> float:
    """Compute the ε at which ∫(p − e^ε q)₊ = `DELTA` by quadrature, or 0 if there is none.

    Args:
        p, q: densities on one grid, (n,).
        step: step of the grid.
    """

    def excess(epsilon: float) -> float:
        return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()) * step - DELTA

    return brentq(excess, 0.0, 60.0) if excess(0.0) > 0.0 else 0.0


def one_hop(kept: float, gain: float, threshold: float, distance: float) -> tuple[Array, Array, float]:
    """Compute the densities of f(ζ) + ξ and f(ζ + distance) + ξ on a grid, with ζ and ξ from N(0, 1).

    f(ζ) = kept·ζ + gain·sign(ζ − threshold) models an agent that forwards a message and whose clipped gradient changes
    its sign with its state.

    Returns:
        Both densities (n,), and the step of the grid.
    """
    y, h = np.linspace(-16.0, 17.0, 3301), 0.02
    u = threshold + np.arange(-14.0 + 0.5 * h, 14.0, h)

    def density(mean: float) -> Array:
        forwarded = kept * u + gain * np.sign(u - threshold)
        return np.asarray(norm.pdf(y[:, None] - forwarded) @ (norm.pdf(u - mean) * h))

    return density(0.0), density(distance), float(y[1] - y[0])


# Lines ----------------------------------------------------------------------------------------------------------------


def lines() -> Iterator[Line]:
    """Yield every published ε that can be accounted."""
    for claimed in (1.0, 0.1, 0.01, 0.001):
        yield from _mnist(claimed)
    for claimed in (3.0, 10.0, 20.0, 40.0):
        yield from _libsvm(claimed)
    for claimed in (3.0, 10.0, 20.0, 40.0):
        yield from _corn(claimed)
    for claimed in (1.0, 3.0, 10.0, 40.0):
        yield from _pn_f_dp(claimed)
    yield from _pairs()


def _mnist(claimed: float) -> Iterator[Line]:
    rate, rounds = BATCH / SHARD, BATCHES * PASSES
    for name, kind in GRAPHS.items():
        graph = laplacian(kind)
        noise = decor_mnist(claimed, graph)
        mu, own_mu = certified_mu(*noise, graph, 1), 2.0 / noise.own
        bounds = {}
        if name == "complete":
            bounds["as accounted, Poisson"] = sampled(mu, rate, STEPS + 1, True), sum_lower_bound(mu, rate, STEPS + 1)
            passes = math.sqrt(PASSES) * mu
            bounds["as accounted, passes"] = gaussian(passes), gaussian(PASSES * mu / math.sqrt(rounds))
            if claimed == 1.0:
                last_batch = gaussian(BATCH * passes), last_batch_lower_bound(mu, 3713, PASSES, rounds)
                bounds["as accounted, last batch"] = last_batch
                # Pairwise noise cancels in the sum over agents and rounds. All copies can be read in one round.
                sum_mu = COPIES * PASSES * own_mu / math.sqrt(AGENTS * rounds)
                copies = gaussian(math.sqrt(COPIES * PASSES) * own_mu), gaussian(sum_mu)
                bounds[f"as accounted, {COPIES} copies"] = copies
        bounds["as run, passes"] = gaussian(math.sqrt(PASSES) * own_mu), maximum_lower_bound(own_mu, PASSES, rounds)
        for setting, epsilons in bounds.items():
            yield Line(MNIST, f"{name}, {setting}", RECORD, ALL_MESSAGES, claimed, *epsilons)


def _fresh_and_once(noise: PairNoise, graph: Array, steps: int) -> Iterator[tuple[str, float, float]]:
    """Yield (setting, certified, empirical) of pairwise noise that is fresh in every round, and that is drawn once."""
    empirical = gaussian(2.0 * math.sqrt(steps * exposure(*noise, graph)))
    yield "as accounted", gaussian(certified_mu(*noise, graph, steps)), empirical
    # If the gradients of an agent alternate in all rounds except one, pairwise noise hides nothing.
    empirical = gaussian(2.0 * constant_noise_mu(*noise, graph, steps - 1, steps, alternating=True))
    yield "as run", gaussian(2.0 * math.sqrt(steps) / noise.own), empirical


def _libsvm(claimed: float) -> Iterator[Line]:
    for name in ("complete", "ring"):
        graph = laplacian(GRAPHS[name])
        noise = decor_user_level(claimed, graph, LIBSVM_STEPS)
        for setting, *epsilons in _fresh_and_once(noise, graph, LIBSVM_STEPS + 1):
            yield Line(LIBSVM, f"{name}, {setting}", AGENT, ALL_MESSAGES, claimed, *epsilons)


def _corn(claimed: float) -> Iterator[Line]:
    mu = math.sqrt(2.0 * zcdp_rho(claimed))
    record, agent = gaussian(mu), gaussian(128.0 * mu)
    yield Line(CORN, "a record in every batch", RECORD, ALL_MESSAGES, claimed, record, record)
    for data, shard, rounds in (("a9a", 1628, 5000), ("MNIST", 600, 1000)):
        round_mu, rate = mu / math.sqrt(rounds), 128.0 / shard
        certified, empirical = sampled(round_mu, rate, rounds, poisson=False), sum_lower_bound(round_mu, rate, rounds)
        yield Line(CORN, f"sampled batches of {data}", RECORD, ALL_MESSAGES, claimed, certified, empirical)
    yield Line(CORN, "all records of an agent", AGENT, ALL_MESSAGES, claimed, agent, agent)


def _pn_f_dp(claimed: float) -> Iterator[Line]:
    for name, clip in (("grid", 5.0), ("ring", 1.5)):
        graph = laplacian(GRAPHS[name])
        for setting, *epsilons in _fresh_and_once(pn_f_dp(claimed, graph, clip), graph, STEPS + 1):
            yield Line(PN, f"f-DP, {name}, {setting}", AGENT, ALL_MESSAGES, claimed, *epsilons)


def _pairs() -> Iterator[Line]:
    """Yield claims against one neighbour. With all messages observed, μ is 1, or 2, 10 and 20 for MFDL."""
    exact = gaussian(1.0)
    before, after, step = one_hop(kept=1.0, gain=5.0, threshold=4.9, distance=1.0)
    empirical = densities_lower_bound(after, before, step)
    bounds: list[tuple[str, str, float, float, float]] = []
    bounds.append((PN, "Lemma D.3, one hop", gaussian(0.5**0.5), exact, empirical))
    # Edges have weight 1/3, and the first message of the neighbour sets the threshold of the middle agent to 4.5.
    before, after, step = one_hop(kept=1.0 / 3.0, gain=1.0, threshold=4.5, distance=2.0)
    empirical = densities_lower_bound(after, before, step)
    bounds.append((MFDL, "path of 3, forwarded sign", gaussian(2.0 / math.sqrt(10.0)), gaussian(2.0), empirical))
    for attack in audit_network(runs=1000).attacks:
        if attack.method == "exact":
            claimed, certified, empirical = map(gaussian, (attack.claimed, attack.certified, attack.empirical))
            bounds.append((MFDL, attack.case, claimed, certified, empirical))
    for graph, agents, victim, rounds in (("path", 3, 2, 2), ("ring", 16, 8, 8), ("ring", 16, 8, 40)):
        mixing = np.eye(agents) + build_topology(graph, agents).mixing.toarray()
        claimed = gaussian(math.sqrt(gossip_claim(mixing, victim, 0, rounds)))
        empirical = gaussian(math.sqrt(gossip_exact(mixing, victim, 0, rounds)))
        bounds.append((MUFFLIATO, f"{graph} of {agents}, {rounds} rounds", claimed, exact, empirical))
    # The neighbour knows its own noise. The remaining variance is σ² − (1 − α)²σ² with α = 1/2.
    remaining = gaussian(1.0 / math.sqrt(1.0 - 0.25))
    bounds.append((TOP, "one message, α = 1/2", exact, remaining, remaining))
    for paper, setting, *epsilons in bounds:
        yield Line(paper, setting, RECORD, NEIGHBOUR, *epsilons)
