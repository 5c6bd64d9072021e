"""What curious agents learn of others in training: the facts of a job that prices against neighbours rest on.

Certified where how far a step pulls two hidden states apart is known: a linear model of features that the code clips to
declared bounds, with per-record clipping, by `ldp_single_level` or `dp_dsgd`. With ω = I + W, η a step, L the largest
curvature of a record's loss and m the ridge, and h = `step_factor`,

    dp_dsgd            R_ij = h(1) |ω_ij|
    ldp_single_level   R_ij = |ω_ij| for j ≠ i,     R_ii = h(ω_ii)
    D_t = η_t · 2C/N_t

A secret minibatch is priced as if the record were read in every round: no amplification. Where the network changes, ω
and R are those of what arrives in a round. The message that a round leads to travels on the graph of the next one, and
one that is lost there may be overheard: the observer sees it. An agent that is offline in the next round does not send:
the message is deleted, and the agent holds the one that it sent last, so R_i = e_i and s_i = D_i = 0. All graphs and
losses are known before anything is sent (public coins, or a function that is asked beforehand): nobody can choose whom
to hear by what it heard.

Pairs that a symmetry of the network takes to each other have one price: on a ring or a hypercube of equal noise, one
for each distance. Where their numbers of records differ it lies between those of the victims with most and fewest: it
is convex in how far the record moves a message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.gossip.single_level import DpDsgd, LdpSingleLevel
from decentral_dp.bounded import Array, summation_slack
from decentral_dp.exchange import senders_of
from decentral_dp.privacy.accounting import network
from decentral_dp.privacy.accounting.neighbour_price import Coupled, neighbour_mu, step_factor
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.problems.training.losses import CrossEntropy
from decentral_dp.problems.training.problem import Training
from decentral_dp.simulation.jobs.job import GossipJob
from decentral_dp.topology.symmetries import colour, stable_colours, symmetry

# Seconds of a pair and round: about ten banded systems of two times as many diagonals as agents.
_PER_AGENT, _PER_CUBE = 3e-5, 1e-8
# What one operation of float64 may be off by, times how much is left for what the bounds of a step leave out.
_ROUNDING = 64.0 * 2.0**-53
# Agents, and observers of one kind without a symmetry between them, up to which symmetries are searched.
_MOST_SEARCHED, _MOST_COMPARED = 128, 8
# Of links in all rounds, up to which they are.
_MOST_NUMBERS = 10_000_000


@dataclass(frozen=True, eq=False)
class Steps:
    """T rounds of training in public numbers.

    Args:
        mixing: ω = I + W of every round, (m, m) mixing weights each.
        visible: whether agent i may hear the message that round t leads to from agent j, or is j; (m, m) each.
        factors: R of every round, (m, m) each: Lipschitz factors of a step in l2.
        movement: D, (T, m) by how much in l2 the victim's replaced record moves its own noiseless message.
        noise: s, (T, m) standard deviations of the noise; 0 where the message is not sent.
        rounding: (T, m), what float64 adds to the l2 distance of two noiseless messages; +inf where messages may leave
            their grid.

    References:
        docs/proofs/37 and 38.
    """

    mixing: tuple[Array, ...]
    visible: tuple[NDArray[np.bool_], ...]
    factors: tuple[Array, ...]
    movement: Array
    noise: Array
    rounding: Array


def steps_of(job: GossipJob, algorithm: LdpSingleLevel | DpDsgd, problem: Training) -> Steps:
    """Collect the public numbers of a job.

    Args:
        job: planned.
        algorithm: its algorithm.
        problem: its problem, a linear model of features of bounded norm.

    Raises:
        ValueError: features without a bound.
    """
    length = problem.length
    if length is None or not math.isfinite(length):
        raise ValueError("factors are known of bounded features alone")
    rounds = np.arange(job.rounds)
    step = algorithm.y.series(job.rounds)
    averaged = job.stream.averaged_counts(rounds[:, None], job.counts["train"])
    noise = job.noise["y"].scales(rounds + 1, GAUSSIAN)
    own_point = isinstance(algorithm, LdpSingleLevel)
    mixed, visible = _weights(job)
    curvature, scalar = problem.loss.curvature * length**2, not isinstance(problem.loss, CrossEntropy)
    own = np.eye(job.n_agents)
    sends = sent_messages(job)
    factors = tuple(
        np.where(some[:, None], _factors(omega, curvature, float(eta), problem.l2, scalar, own_point), own)
        for omega, eta, some in zip(mixed, step, sends, strict=True)
    )
    clip = job.clip.bounds("y", rounds)
    movement = (step * 2.0 * clip)[:, None] / averaged * summation_slack(averaged, problem.q)
    movement, noise = np.where(sends, movement, 0.0), np.where(sends, noise, 0.0)
    start = float(np.abs(problem.start["y"]).max(initial=0.0)) + abs(algorithm.start.get("y", 0.0))
    most = averaged.max(axis=1).astype(np.float64)
    rounding = _rounding(mixed, factors, step, noise, most, problem, length, float(clip.max()), start)
    return Steps(mixed, visible, factors, movement, noise, rounding)


def sent_messages(job: GossipJob) -> NDArray[np.bool_]:
    """Return (T, m) whether an agent sends the message of a round, which leaves in the next one."""
    senders = senders_of(job.algorithm, job.public_network)
    if senders is None:
        return np.ones((job.rounds, job.n_agents), dtype=np.bool_)
    return np.stack([senders.mask_of_round(t + 1) for t in range(job.rounds)])


def _weights(job: GossipJob) -> tuple[tuple[Array, ...], tuple[NDArray[np.bool_], ...]]:
    """ω of every round, and who may hear the message that it leads to."""
    changes, own = job.topology.over_time, np.eye(job.n_agents)
    if changes is None:
        mixed = own + job.topology.mixing.toarray()
        return (mixed,) * job.rounds, ((mixed != 0.0) | (own > 0.0),) * job.rounds
    heard = [changes.heard_weights(t).toarray() for t in range(job.rounds)]
    sent = [changes.sent_weights(t + 1).toarray() for t in range(job.rounds)]
    return (
        tuple(w + np.diag(1.0 - w.sum(axis=1)) for w in heard),
        tuple((w != 0.0) | (own > 0.0) for w in sent),
    )


def _factors(mixed: Array, curvature: float, step: float, ridge: float, scalar: bool, own_point: bool) -> Array:
    if not own_point:
        return np.abs(mixed) * step_factor(1.0, curvature, step, ridge, scalar)
    out = np.abs(mixed)
    np.fill_diagonal(out, step_factor(np.diag(mixed), curvature, step, ridge, scalar))
    return out


def _rounding(
    mixed: tuple[Array, ...], factors: tuple[Array, ...], step: Array, noise: Array, averaged: Array, problem: Training,
    length: float, clip: float, start: float,
) -> Array:  # fmt: skip
    """(T, m): noiseless messages of neighbours, twice what each strays from real arithmetic, and the grid of what came.

    Messages are multiples of a grid g and come out of noise on it: two that were d apart before it are d + √q g apart.
    """
    q, c = problem.q, float(problem.model.outputs)
    # An agent that does not send holds a message that is rounded.
    sends = noise > 0.0
    cells = GAUSSIAN.grid(np.where(sends, noise, 1.0), q)
    own = 1.5 if GAUSSIAN.rounds_at_random(q) else 1.0
    root, out, largest, came = np.sqrt(q), np.zeros(noise.shape), start, np.zeros(noise.shape[1])
    for t, eta in enumerate(step):
        # Largest |output| of a record, and sup of ‖its gradient‖ before it is clipped.
        output = length * root * largest
        gradient = (output + 2.0) * length * np.sqrt(c)
        terms = averaged[t] + q + 8.0 * c + 32.0
        strayed = root * largest * (1.0 + eta * (problem.l2 + problem.loss.curvature * length**2)) + eta * (
            gradient * (1.0 + length) + clip
        )
        computed = _ROUNDING * terms * strayed
        out[t] = np.where(sends[t], factors[t] @ (root * came) + 2.0 * (root * own * cells[t] + computed), 0.0)
        grown = np.abs(mixed[t]).sum(axis=1).max() * largest * (1.0 + eta * problem.l2) + eta * clip
        held = 0.0 if sends[t].all() else largest
        largest = max(held, float((grown + computed + network.LARGEST_VARIATE * noise[t] + 2.0 * cells[t]).max()))
        came = np.where(sends[t], cells[t], came)
        if not largest < 2.0**52 * cells[t].min(where=sends[t], initial=np.inf):
            out[t:] = np.where(sends[t:], np.inf, 0.0)
            break
    # To 30 binary digits, upwards: equal agents have equal bounds, whatever the order of their sums.
    mantissa, exponent = np.frexp(out)
    return np.asarray(np.ldexp(np.ceil(mantissa * 2.0**30), exponent - 30))


def first_of_equal_pairs(steps: Steps, observers: tuple[tuple[int, ...], ...]) -> NDArray[np.int64]:
    """Find which pairs' prices give those of others, by symmetries of all that is public but numbers of records.

    Args:
        steps: of the job.
        observers: sets of agents.

    Returns:
        (2, o, m) row · m + victim of two pairs that a symmetry takes it to: of these the records of one move a message
        least, those of the other most; −1 where the victim is an observer.
    """
    rounds, m = steps.noise.shape
    own = np.arange(len(observers) * m).reshape(-1, m)
    marks = np.zeros(own.shape, dtype=np.int64)
    for row, members in enumerate(observers):
        marks[row, list(members)] = 1
    if m > _MOST_SEARCHED or m * m * rounds > _MOST_NUMBERS:
        return np.where(marks, -1, np.stack([own, own]))
    # When records are read, not how far they move a message.
    read = np.round(steps.movement / np.maximum(steps.movement.max(axis=0), np.finfo(np.float64).tiny), 9)
    graph = colour(
        [*read, *steps.noise, *steps.rounding],
        [*steps.mixing, *(visible.astype(np.float64) for visible in steps.visible), *steps.factors],
    )
    everywhere = stable_colours(graph, np.zeros(m, dtype=np.int64))
    first, first_of = np.full(own.shape, -1), dict[tuple[int, ...], list[int]]()
    for row, mark in enumerate(marks):
        like = first_of.setdefault(tuple(np.sort(everywhere[mark == 1])), [])
        for other in like[:_MOST_COMPARED]:
            image = symmetry(graph, mark, marks[other])
            if image is not None:
                first[row] = first[other, image]
                break
        else:
            like.append(row)
            colours = stable_colours(graph, mark)
            for victim in np.flatnonzero(mark == 0):
                first[row, victim] = own[row, victim]
                for other in np.flatnonzero((first[row] == own[row]) & (colours == colours[victim]))[:_MOST_COMPARED]:
                    marked = np.stack([mark, mark])
                    marked[[0, 1], [victim, other]] = 2
                    if other != victim and symmetry(graph, *marked) is not None:
                        first[row, victim] = own[row, other]
                        break
    pairs, movement = first.ravel(), np.tile(steps.movement.max(axis=0), len(observers))
    order = np.lexsort((movement, pairs))
    _, least, group, sizes = np.unique(pairs[order], return_index=True, return_inverse=True, return_counts=True)
    ends = np.empty((2, pairs.size), dtype=np.int64)
    ends[:, order] = order[np.stack([least, least + sizes - 1])][:, group]
    ends[1] = np.where(movement[ends[0]] == movement[ends[1]], *ends)
    return np.where(first < 0, -1, ends.reshape(2, *first.shape))


def price(
    steps: Steps,
    observers: tuple[tuple[int, ...], ...],
    first: NDArray[np.int64],
    progress: Callable[[int, int], None] | None = None,
) -> Array:
    """Compute μ of every pair, (o, m), NaN where the victim is an observer; it holds for float64 messages.

    Args:
        steps: of the job.
        observers: sets of agents.
        first: of `first_of_equal_pairs`.
        progress: called with how many observers are done, and of how many.
    """
    m = steps.noise.shape[1]
    mu = np.full((len(observers), m), np.nan)
    for row, members in enumerate(observers):
        victims = np.flatnonzero((first[:, row] == row * m + np.arange(m)).any(axis=0))
        heard = np.stack([visible[list(members)].any(axis=0) for visible in steps.visible])
        noise = steps.noise.copy()
        noise[:, list(members)] = np.inf
        coupled = Coupled(steps.factors, noise, heard, steps.rounding)
        if victims.size:
            mu[row, victims] = neighbour_mu(coupled, victims, steps.movement)
        if progress is not None:
            progress(row + 1, len(observers))
    certified = np.full(mu.shape, np.nan)
    for row, (low, high) in enumerate(first.transpose(1, 0, 2)):
        least, most = steps.movement[:, low % m], steps.movement[:, high % m]
        span = (most - least).max(axis=0)
        share = np.divide((steps.movement - least).max(axis=0), span, out=np.zeros(m), where=span > 0.0)
        between = (1.0 - share) * least + share * most
        # Records are read at the same times up to rounding.
        more = np.divide(steps.movement, between, out=np.ones(between.shape), where=between > 0.0).max(axis=0)
        bound = more * ((1.0 - share) * mu.ravel()[low] + share * mu.ravel()[high])
        exact = (share * (1.0 - share) == 0.0) & (more == 1.0)
        certified[row] = np.where(low < 0, np.nan, np.where(exact, bound, bound * (1.0 + 2.0**-49)))
    return certified


def duration(pairs: int, agents: int, rounds: int) -> float:
    """Estimate the seconds that `price` takes on one core for so many pairs that are not alike."""
    return pairs * rounds * (agents * _PER_AGENT + agents**3 * _PER_CUBE)
