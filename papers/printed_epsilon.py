"""Published ε of papers on decentralised learning: claimed, certified and empirical, by setting.

    DECOR          Allouah et al. 2024, arXiv:2405.01031             pair noise that cancels
    CorN-DSGD      Rodio et al. 2025, arXiv:2501.14644 (Whisper)     optimised covariance of the noise
    PN-f-DP        Li et al. 2025, arXiv:2510.19934                  f-DP of random walks, and of pair noise
    MFDL           Bellet et al. 2025, arXiv:2510.17480              pairwise ε by matrix factorisation
    Muffliato      Cyffers et al. 2022, arXiv:2206.05091             pairwise ε of gossip averages
    Top-DP         Guo et al. 2020, arXiv:2006.07817                 noise of a neighbour counted as own

Claimed: the formula that the paper, or the code published with it, evaluates. Certified: the smallest ε that the
accountants of this package prove of the same releases. Shown: what a test with known error rates proves from below; no
smaller ε holds. All at δ = 1e-5, for one record or all records of an agent, replaced by others. σ is own noise, c the
noise of a pair, both over the clip. "As accounted": noise as the paper's accountant has it, afresh in every round. "As
run": pair noise drawn once, as the published scripts draw it; what they scale it by plays no part then.

The formulas are written anew from public code. The parts of each paper that were read are in docs/papers/.
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
EVERYBODY, NEIGHBOUR = "everybody", "neighbour"
RECORD, AGENT = "record", "agent"
# Agents of DECOR and PN-f-DP. A step more is run than the accountants count.
AGENTS, STEPS, LIBSVM_STEPS = 16, 1000, 5000
# MNIST: records of a batch, records of an agent as accounted, batches of a pass, and started passes.
BATCH, SHARD, BATCHES, PASSES = 64, 3750, 59, 17
# Copies of a record among the agents, which the script's division of MNIST makes up to.
COPIES = 15
GRAPHS = {"complete": "complete", "ring": "ring", "grid": "torus"}
MNIST, LIBSVM = "DECOR, MNIST", "DECOR, a9a"
CORN, PN, MFDL, MUFFLIATO, TOP = "CorN-DSGD", "PN-f-DP", "MFDL", "Muffliato", "Top-DP"


class Line(NamedTuple):
    """One printed ε.

    Args:
        paper: short name of the paper.
        setting: setting of the releases.
        protects: what is replaced.
        observer: who sees every message, or what one neighbour receives.
        claimed: ε as published.
        certified: smallest ε that this package proves.
        shown: largest ε that a test refutes everything below of.
    """

    paper: str
    setting: str
    protects: str
    observer: str
    claimed: float
    certified: float
    shown: float


# Prices ---------------------------------------------------------------------------------------------------------------


def gaussian(mu: float) -> float:
    """ε of a Gaussian pair at `DELTA`; both an upper and a lower bound.

    Args:
        mu: μ, the distance of the pair in standard deviations.
    """
    return float(gaussian_epsilon(mu, DELTA))


def sampled(mu: float, rate: float, rounds: int, poisson: bool) -> float:
    """Certified ε of Gaussian releases at `DELTA`, on Poisson samples or on batches of fixed size.

    Args:
        mu: μ of two exchanged records, before sampling.
        rate: q, or the share of the records in a batch.
        rounds: T.
        poisson: whether samples are Poisson samples.
    """
    lines = np.array([[mu] * rounds, [rate] * rounds])
    return epsilon_at(Releases(poisson=lines) if poisson else Releases(sampled_gaussian=lines), DELTA)


def laplacian(graph: str, agents: int = AGENTS) -> Array:
    """L of a graph of the package, (m, m).

    Args:
        graph: kind of the graph, which takes no parameter.
        agents: m.
    """
    linked = np.asarray(build_topology(graph, agents).mixing.toarray() > 0.0, dtype=np.float64)
    np.fill_diagonal(linked, 0.0)
    return np.diag(linked.sum(axis=1)) - linked


def certified_mu(own: float, pair: float, graph: Array, reads: int) -> float:
    """μ of the worst agent where pair noise is afresh in each round, from above.

    Args:
        own: σ, over the clip.
        pair: c, over the clip.
        graph: L, (m, m).
        reads: rounds in which a record moves its agent's message, by 2 over the clip.
    """
    edges = pair * np.sqrt(np.maximum(-graph, 0.0))
    return 2.0 * math.sqrt(reads) / float(effective_scale(np.full(len(graph), own), csr_matrix(edges), 0).min())


def exposure(own: float, pair: float, graph: Array) -> float:
    """max_v [(σ²I + c²L)⁻¹]_vv, as in the papers' accountants, and in exact arithmetic.

    Args:
        own: σ.
        pair: c.
        graph: L, (m, m).
    """
    return float(np.linalg.inv(own**2 * np.eye(len(graph)) + pair**2 * graph).diagonal().max())


def constant_noise_mu(own: float, pair: float, graph: Array, reads: int, rounds: int, turning: bool) -> float:
    """μ per unit of sensitivity, in `reads` of `rounds`, where pair noise is drawn once and used in every round.

    The covariance over rounds and agents is σ²I + 11ᵀ ⊗ c²L, so that pair noise hides only the mean over the rounds.

    Args:
        own: σ.
        pair: c.
        graph: L.
        reads: rounds in which the record moves its agent's message.
        rounds: T.
        turning: whether it moves it to and fro, so that the mean over the rounds stays.
    """
    in_mean = 0.0 if turning else reads**2 / rounds
    return math.sqrt((reads - in_mean) / own**2 + in_mean * exposure(own, math.sqrt(rounds) * pair, graph))


# Claims ---------------------------------------------------------------------------------------------------------------


def zcdp_epsilon(rho: float) -> float:
    """ε = ρ + 2√(ρ ln 1/δ) of ρ-zCDP at `DELTA`: DECOR and CorN-DSGD at user level.

    Args:
        rho: ρ.
    """
    return rho + 2.0 * math.sqrt(rho * _LOG)


def zcdp_rho(epsilon: float) -> float:
    """Inverse of `zcdp_epsilon`."""
    return (math.sqrt(_LOG + epsilon) - math.sqrt(_LOG)) ** 2


def one_step_renyi(multiplier: float, rate: float) -> float:
    """DECOR's ε at example level: the smallest Rényi divergence of *one* step on a batch; rounds and δ are not in it.

        min over α of (1/(α − 1)) ln(1 + q² C(α, 2) min{4(e^ρ(2) − 1), 2e^ρ(2)} + 2 Σ_{j=3}^α q^j C(α, j) e^{(j−1)ρ(j)})

    with ρ(α) = 2α/z², z the noise over the clip of a batch's sum.
    """

    alphas, powers, log_terms = _renyi_terms(rate)
    rho = 2.0 / multiplier**2
    terms = log_terms + (powers - 1.0) * powers * rho
    second = 2.0 * rho + min(0.0, math.log(-2.0 * math.expm1(-2.0 * rho)))
    terms[:, 0] = log_terms[:, 0] + second
    return float((np.logaddexp(0.0, logsumexp(terms, axis=1) + math.log(2.0)) / (alphas - 1.0)).min())


@cache
def _renyi_terms(rate: float) -> tuple[Array, Array, Array]:
    """α = 2 … 100, j = 2 … 100, and ln(q^j C(α, j)) of each pair."""
    alphas = np.arange(2.0, 101.0)
    a, j = alphas[:, None], alphas[None, :]
    choose = gammaln(a + 1.0) - gammaln(j + 1.0) - gammaln(np.maximum(a - j, 0.0) + 1.0)
    return alphas, alphas, np.where(j <= a, choose + j * math.log(rate), -np.inf)


def first_within(value: Callable[[float], float], target: float, grid: Array, slack: float, both: bool) -> float | None:
    """Bisect a falling function on a grid as the papers' scripts do: up to `slack` above the target is taken.

    Args:
        value: what falls.
        target: ε or ρ that is wanted.
        grid: ascending.
        slack: amount by which the target may be missed.
        both: whether a target above the first value is refused, too.
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
    """own: σ. pair: c. Both over the clip."""

    own: float
    pair: float


def _least_own(
    noises: tuple[Array, Array], value: Callable[[float, float], float], target: float, slack: float, both: bool
) -> PairNoise:
    """The first σ of a grid to which a c of another grid fits, by `first_within`."""
    for own in noises[0].tolist():
        pair = first_within(partial(value, own), target, noises[1], slack, both)
        if pair is not None:
            return PairNoise(own, pair)
    raise ValueError(f"no noise of these grids has {target}")


def decor_mnist(printed: float, graph: Array) -> PairNoise:
    """DECOR's noise for an ε at example level: the row that its script runs.

    Args:
        printed: the ε.
        graph: L, (m, m).

    Returns:
        σ and c, over the clip of a batch's *sum*.

    Raises:
        ValueError: no noise of the script's grids has this ε.
    """
    rate = BATCH / SHARD

    def claim(own: float, pair: float) -> float:
        return one_step_renyi(1.0 / math.sqrt(exposure(own, pair, graph)), rate)

    grids = BATCH * np.linspace(1e-3, 0.05, 100), BATCH * np.linspace(5e-4, 0.1, 500)
    return _least_own(grids, claim, printed, 0.05, True)


def decor_user_level(printed: float, graph: Array, steps: int) -> PairNoise:
    """DECOR's noise for an ε at user level.

    Args:
        printed: the ε, at `DELTA`.
        graph: L, (m, m).
        steps: T.

    Returns:
        σ and c, over the clip.

    Raises:
        ValueError: no noise of the script's grids has this ε.
    """
    rho = zcdp_rho(printed) / steps
    alone = math.sqrt(2.0 / rho)
    together = alone / math.sqrt(len(graph))
    grids = np.linspace(together, alone, 50), np.linspace(together / 1000.0, 10.0 * alone, 1000)
    return _least_own(grids, lambda own, pair: 2.0 * exposure(own, pair, graph), rho, 1e-4, False)


def pn_f_dp(printed: float, graph: Array, clip: float) -> PairNoise:
    """Noise of the f-DP row of PN-f-DP's script.

    The formulas 1/((n − 1)σ²) + (1 − 1/(n − 1))/(σ² + a c²), a the second least eigenvalue of L, are given σ and c for
    σ² and c²; μ = C√(2T(…)) is written where ρ = 2C²T(…) gives μ = √(2ρ) = 2C√(T(…)).

    Args:
        printed: the ε, at `DELTA`.
        graph: L, (n, n).
        clip: C, in whose units the formulas are.

    Returns:
        σ and c, over the clip.

    Raises:
        ValueError: no noise of the script's grids has this ε.
    """
    found = decor_user_level(printed, graph, STEPS)
    together = clip * math.sqrt(2.0 * STEPS / zcdp_rho(printed) / len(graph))
    pair = clip * found.pair
    others, second = len(graph) - 1, float(np.linalg.eigvalsh(graph)[1])

    def spread(own: float) -> float:
        return 1.0 / (others * own) + (1.0 - 1.0 / others) / (own + second * pair)

    target = zcdp_epsilon(2.0 * clip**2 * STEPS * spread(together))

    def excess(log_own: float) -> float:
        mu = clip * math.sqrt(2.0 * STEPS * spread(math.exp(log_own)))
        return float(gaussian(mu)) - target

    return PairNoise(math.exp(brentq(excess, math.log(1e-3), math.log(1e3), xtol=1e-10)) / clip, found.pair)


def gossip_claim(mixing: Array, victim: int, neighbour: int, rounds: int) -> float:
    """μ² per (sensitivity/σ)² of Muffliato's simulation: Σ_{t=1}^T Σ_{w next to v} (Wᵗ)²_uw/‖(Wᵗ)_w‖².

    Args:
        mixing: W, (m, m).
        victim: u, whose record it is.
        neighbour: v, who looks.
        rounds: T.
    """
    near, total, power = np.flatnonzero(mixing[neighbour]), 0.0, mixing
    for _ in range(rounds):
        rows = power[near[near != neighbour]]
        total += float((rows[:, victim] ** 2 / (rows**2).sum(axis=1)).sum())
        power = mixing @ power
    return total


def gossip_shown(mixing: Array, victim: int, neighbour: int, rounds: int) -> float:
    """The same exactly, [B⁺B]_uu: B maps the noisy values of all agents to what v receives before round T and has.

    Args:
        mixing, victim, neighbour, rounds: see `gossip_claim`.
    """
    near, power = np.flatnonzero(mixing[neighbour]), np.eye(len(mixing))
    seen = [power[neighbour]]
    for _ in range(rounds):
        seen += list(power[near[near != neighbour]])
        power = mixing @ power
    rows = np.linalg.svd(np.array(seen), full_matrices=False)
    kept = rows.Vh[rows.S / rows.S[0] > 1e-12]
    return float((kept[:, victim] ** 2).sum())


# Empirical lower bounds -----------------------------------------------------------------------------------------------


def _events_show(log_more: Array, log_less: Array) -> float:
    """ε ≥ ln((P(A) − δ)/Q(A)), the best of several events A, from logarithms."""
    likely = log_more > -_LOG
    more, less = log_more[likely], log_less[likely]
    return float((more + np.log1p(-np.exp(-_LOG - more)) - less).max(initial=0.0))


def sum_shows(mu: float, rate: float, rounds: int) -> float:
    """Empirical ε of the sum of all releases for a record that is in each of T batches with probability q.

    It is N(±kμ/2, T), k ~ Binomial(T, q); the event is that it exceeds a bound.

    Args:
        mu: how far two records move a release that has them, in standard deviations.
        rate: q.
        rounds: T.

    Returns:
        ε at `DELTA`, from below.
    """
    counts = np.arange(rounds + 1)
    log_weight = gammaln(rounds + 1) - gammaln(counts + 1) - gammaln(rounds - counts + 1)
    log_weight = log_weight + counts * math.log(rate) + (rounds - counts) * math.log1p(-rate)
    likely = log_weight > -60.0
    cuts = np.linspace(0.0, 12.0 + rounds * rate * mu, 400)[:, None] * math.sqrt(rounds)

    def tail(sign: float) -> Array:
        moved = sign * 0.5 * mu * counts[likely]
        return np.asarray(logsumexp(log_weight[likely] + log_ndtr((moved - cuts) / math.sqrt(rounds)), axis=1))

    return _events_show(tail(1.0), tail(-1.0))


def largest_shows(mu: float, reads: int, rounds: int) -> float:
    """Empirical ε of the largest of T releases for a record in `reads` of them, in secret places; constants cancel.

    Noise that is the same in every release leaves with their mean. With that, and one fresh N(0, 1/T) for the noise of
    the mean, they are independent with variance 1. The event is that none exceeds a bound.

    Args:
        mu: see `sum_shows`.
        reads: releases that the record moves.
        rounds: T.

    Returns:
        ε at `DELTA`, from below.
    """
    cuts, lost = np.linspace(-4.0, 6.0, 2001), 0.5 * mu * reads / rounds

    def none_above(sign: float) -> Array:
        there, rest = log_ndtr(cuts - sign * (0.5 * mu - lost)), log_ndtr(cuts + sign * lost)
        return np.asarray(reads * there + (rounds - reads) * rest)

    return _events_show(none_above(-1.0), none_above(1.0))


def alone_shows(mu: float, shard: int, passes: int, rounds: int) -> float:
    """Empirical ε of the largest of T releases for the only record of a pass's last batch, with probability 1/N.

    Args:
        mu: how far two records move a release of a full batch of `BATCH`. Alone, they move it `BATCH` times as far.
        shard: N, records of the agent.
        passes: over all records.
        rounds: T.

    Returns:
        ε at `DELTA`, from below.
    """
    far = 0.5 * BATCH * mu
    cuts = np.linspace(0.5 * far, far, 400)
    log_often = math.log(-math.expm1(passes * math.log1p(-1.0 / shard)))
    return _events_show(log_often + log_ndtr(far - cuts), math.log(rounds) + log_ndtr(0.5 * mu - cuts))


def densities_show(p: Array, q: Array, step: float) -> float:
    """The largest ε at which ∫(p − e^ε q)₊ is still `DELTA`, by quadrature; 0 where there is none.

    Args:
        p, q: (n,) densities on one grid.
        step: step of the grid.
    """

    def above(epsilon: float) -> float:
        return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()) * step - DELTA

    return brentq(above, 0.0, 60.0) if above(0.0) > 0.0 else 0.0


def one_hop(kept: float, gain: float, turn: float, apart: float) -> tuple[Array, Array, float]:
    """Densities of f(ζ) + ξ and of f(ζ + apart) + ξ, f(ζ) = kept·ζ + gain·sign(ζ − turn), on a grid, and its step.

    ζ and ξ are N(0, 1): what an agent passes on of what it was sent, its clipped gradient turning where its state does.
    """
    y, h = np.linspace(-16.0, 17.0, 3301), 0.02
    u = turn + np.arange(-14.0 + 0.5 * h, 14.0, h)

    def density(moved: float) -> Array:
        passed = kept * u + gain * np.sign(u - turn)
        return np.asarray(norm.pdf(y[:, None] - passed) @ (norm.pdf(u - moved) * h))

    return density(0.0), density(apart), float(y[1] - y[0])


# Lines ----------------------------------------------------------------------------------------------------------------


def lines() -> Iterator[Line]:
    """Every published ε that could be accounted."""
    for printed in (1.0, 0.1, 0.01, 0.001):
        yield from _mnist(printed)
    for printed in (3.0, 10.0, 20.0, 40.0):
        yield from _libsvm(printed)
    for printed in (3.0, 10.0, 20.0, 40.0):
        yield from _corn(printed)
    for printed in (1.0, 3.0, 10.0, 40.0):
        yield from _pn_f_dp(printed)
    yield from _pairs()


def _mnist(printed: float) -> Iterator[Line]:
    rate, rounds = BATCH / SHARD, BATCHES * PASSES
    for name, kind in GRAPHS.items():
        graph = laplacian(kind)
        noise = decor_mnist(printed, graph)
        mu, alone = certified_mu(*noise, graph, 1), 2.0 / noise.own
        prices = {}
        if name == "complete":
            prices["as accounted, Poisson"] = sampled(mu, rate, STEPS + 1, True), sum_shows(mu, rate, STEPS + 1)
            passes = math.sqrt(PASSES) * mu
            prices["as accounted, passes"] = gaussian(passes), gaussian(PASSES * mu / math.sqrt(rounds))
            if printed == 1.0:
                short = gaussian(BATCH * passes), alone_shows(mu, 3713, PASSES, rounds)
                prices["as accounted, last batch of one"] = short
                # The sum over agents and rounds, from which pair noise is gone; at most all read it in one round.
                shown = COPIES * PASSES * alone / math.sqrt(AGENTS * rounds)
                copies = gaussian(math.sqrt(COPIES * PASSES) * alone), gaussian(shown)
                prices[f"as accounted, a record of {COPIES} agents"] = copies
        prices["as run, passes"] = gaussian(math.sqrt(PASSES) * alone), largest_shows(alone, PASSES, rounds)
        for setting, price in prices.items():
            yield Line(MNIST, f"{name}, {setting}", RECORD, EVERYBODY, printed, *price)


def _fresh_and_once(noise: PairNoise, graph: Array, steps: int) -> Iterator[tuple[str, float, float]]:
    """(setting, certified, shown) of pair noise afresh in every round, and of pair noise drawn once."""
    shown = gaussian(2.0 * math.sqrt(steps * exposure(*noise, graph)))
    yield "as accounted", gaussian(certified_mu(*noise, graph, steps)), shown
    # For an agent whose gradients turn in every round except one, no pair noise remains.
    shown = gaussian(2.0 * constant_noise_mu(*noise, graph, steps - 1, steps, turning=True))
    yield "as run", gaussian(2.0 * math.sqrt(steps) / noise.own), shown


def _libsvm(printed: float) -> Iterator[Line]:
    for name in ("complete", "ring"):
        graph = laplacian(GRAPHS[name])
        noise = decor_user_level(printed, graph, LIBSVM_STEPS)
        for setting, *price in _fresh_and_once(noise, graph, LIBSVM_STEPS + 1):
            yield Line(LIBSVM, f"{name}, {setting}", AGENT, EVERYBODY, printed, *price)


def _corn(printed: float) -> Iterator[Line]:
    mu = math.sqrt(2.0 * zcdp_rho(printed))
    exact, whole = gaussian(mu), gaussian(128.0 * mu)
    yield Line(CORN, "a record in every batch", RECORD, EVERYBODY, printed, exact, exact)
    for data, shard, rounds in (("a9a", 1628, 5000), ("MNIST", 600, 1000)):
        one, rate = mu / math.sqrt(rounds), 128.0 / shard
        certified, shown = sampled(one, rate, rounds, poisson=False), sum_shows(one, rate, rounds)
        yield Line(CORN, f"batches of {data} as drawn", RECORD, EVERYBODY, printed, certified, shown)
    yield Line(CORN, "if an agent were meant", AGENT, EVERYBODY, printed, whole, whole)


def _pn_f_dp(printed: float) -> Iterator[Line]:
    for name, clip in (("grid", 5.0), ("ring", 1.5)):
        graph = laplacian(GRAPHS[name])
        for setting, *price in _fresh_and_once(pn_f_dp(printed, graph, clip), graph, STEPS + 1):
            yield Line(PN, f"f-DP, {name}, {setting}", AGENT, EVERYBODY, printed, *price)


def _pairs() -> Iterator[Line]:
    """Claims against one neighbour; against an adversary that sees all messages μ is 1, or 2, 10 and 20 for MFDL."""
    exact = gaussian(1.0)
    before, after, step = one_hop(kept=1.0, gain=5.0, turn=4.9, apart=1.0)
    shown = densities_show(after, before, step)
    prices: list[tuple[str, str, float, float, float]] = []
    prices.append((PN, "Lemma D.3, one hop", gaussian(0.5**0.5), exact, shown))
    # Links of weight 1/3, and a neighbour that begins by sending what makes the agent between turn at 4.5.
    before, after, step = one_hop(kept=1.0 / 3.0, gain=1.0, turn=4.5, apart=2.0)
    shown = densities_show(after, before, step)
    prices.append((MFDL, "path of 3, a sign passed on", gaussian(2.0 / math.sqrt(10.0)), gaussian(2.0), shown))
    for attack in audit_network(runs=1000).attacks:
        if attack.method == "exact":
            claimed, certified, shown = map(gaussian, (attack.claimed, attack.certified, attack.shown))
            prices.append((MFDL, attack.case, claimed, certified, shown))
    for graph, agents, victim, rounds in (("path", 3, 2, 2), ("ring", 16, 8, 8), ("ring", 16, 8, 40)):
        mixing = np.eye(agents) + build_topology(graph, agents).mixing.toarray()
        claimed, shown = (gaussian(math.sqrt(of(mixing, victim, 0, rounds))) for of in (gossip_claim, gossip_shown))
        prices.append((MUFFLIATO, f"{graph} of {agents}, {rounds} rounds", claimed, exact, shown))
    # The neighbour knows its own noise: of σ² it leaves σ² − (1 − α)²σ², α = 1/2.
    known = gaussian(1.0 / math.sqrt(1.0 - 0.25))
    prices.append((TOP, "one message, α = 1/2", exact, known, known))
    for paper, setting, *numbers in prices:
        yield Line(paper, setting, RECORD, NEIGHBOUR, *numbers)
