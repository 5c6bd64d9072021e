"""A budget seen from inside the network: what a few curious agents learn of another agent's record.

Of gossip on the lower level alone (`ldp_single_level`, `dp_dsgd`) with Gaussian noise on released states.

- Exact where the whole of what an observer receives is a linear image of that noise: a problem whose per-record
  gradient does not depend on the state (`mean_estimation`), averaged over all records seen so far.
  `auditing.network_gossip` has the formulas, and the bound for float64.
- Bounded for linear models in training (`classification`, `regression`), whose hidden states pass records on:
  `auditing.network_training`. Beside it stands the price of linear gossip, which is no bound for training.

`ASSUMPTIONS` says what all rests on. Elsewhere refused.

What curious agents learn of others in training: the facts of a job that prices against neighbours rest on.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path

from decentral_dp.algorithms.gossip.single_level import DpDsgd, LdpSingleLevel
from decentral_dp.auditing import network_gossip as network
from decentral_dp.auditing.network_training import Coupled, neighbour_mu, step_factor
from decentral_dp.bounded import Array, summation_slack
from decentral_dp.errors import InputError, Refusal, quoted, refuse
from decentral_dp.exchange import senders_of
from decentral_dp.formatting import epsilon_text
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.clipping import RECORD
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.problems.bilevel.means import MeanEstimation
from decentral_dp.problems.training import CrossEntropy, Training
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.topology.graphs import join_names
from decentral_dp.topology.symmetries import colour, stable_colours, symmetry

if TYPE_CHECKING:
    import pandas as pd

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
    factors = []
    for omega, eta, some in zip(mixed, step, sends, strict=True):
        weight = np.diag(omega) if own_point else 1.0
        kept = step_factor(weight, curvature, float(eta), problem.l2, scalar)
        factor = np.abs(omega)
        if own_point:
            np.fill_diagonal(factor, kept)
        else:
            factor = factor * kept
        factors.append(np.where(some[:, None], factor, own))
    clip = job.clip.bounds("y", rounds)
    movement = (step * 2.0 * clip)[:, None] / averaged * summation_slack(averaged, problem.q)
    movement, noise = np.where(sends, movement, 0.0), np.where(sends, noise, 0.0)
    start = float(np.abs(problem.start["y"]).max(initial=0.0)) + abs(algorithm.start.get("y", 0.0))
    most = averaged.max(axis=1).astype(np.float64)
    rounding = _training_rounding(mixed, tuple(factors), step, noise, most, problem, length, float(clip.max()), start)
    return Steps(mixed, visible, tuple(factors), movement, noise, rounding)


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


def _training_rounding(
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


def observer_mu(
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


ASSUMPTIONS = (
    "The observer follows the protocol and remembers everything: the messages that its neighbours send it, and its own "
    "noise, records and messages. It knows the graph, all weights, steps, noise scales and counts, and may know every "
    "record but the one in question.",
    "It sees nothing else: links between other agents are private, their noise is secret and independent, and nobody "
    "publishes the values that agents hold in the end.",
    "One train record of the victim is replaced. Against a coalition that includes its holder it has no protection.",
    "Certified ε holds for the float64 numbers and noise of these messages: it adds what rounding can tell, and is "
    "never above the certified ε for every message. Exact ε is for real numbers and ideal noise.",
)
OF_TRAINING = (
    "Certified ε holds for the float64 numbers and noise of these messages, whatever the records of hidden agents are: "
    "features are clipped to declared bounds, so steps pull hidden states apart by known factors at most. No model, "
    "metric or checkpoint is shown, and the graph and batches depend on no noise. The linear price is what published "
    "calculators state of training. It is sound for one reading of a record or contributions that never turn, and no "
    "bound where gradients depend on hidden states."
)
# Observers of more agents are called by their number.
_MOST_LISTED = 4


@dataclass(frozen=True, eq=False)
class NetworkView:
    """The ε of each agent's records against each observer; NaN for members of the observer.

    Args:
        pairs: μ of every pair, exact in real arithmetic, and for training a bound.
        distance: (o, m) edges between the victim and the nearest member of the observer.
        delta: δ.
        epsilon: (o, m) ε at δ in real arithmetic with ideal noise.
        certified: (o, m) ε at δ for float64 messages.
        epsilon_total, certified_total: (m,) the same against an adversary that observes all messages.
        name: of the graph.
        labels: names of the agents.
        linear: (o, m) μ of linear gossip, for training only.

    Example:
        >>> import decentral_dp
        >>> few = {"topology.agents": 4, "algorithm.rounds": 2}
        >>> decentral_dp.network_view("network_view", set=few).distance[0].tolist()
        [0, 1, 2, 1]
    """

    pairs: network.NetworkBudget
    distance: NDArray[np.int64]
    delta: float
    epsilon: Array
    certified: Array
    epsilon_total: Array
    certified_total: Array
    name: str
    labels: tuple[str, ...]
    linear: Array | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the numbers rest on, in sentences."""
        if self.linear is not None:
            return (*ASSUMPTIONS[:3], OF_TRAINING)
        return ASSUMPTIONS

    @property
    def reference(self) -> Array:
        """(o, m) ε to compare with the certified one: exact in real arithmetic, and in training of linear gossip."""
        if self.linear is None:
            return self.epsilon
        inside = np.isnan(self.linear)
        return np.where(inside, np.nan, gaussian_epsilon(np.where(inside, 0.0, self.linear), self.delta))

    @property
    def observes_single_agents(self) -> bool:
        """Whether the observers are all agents, each on its own."""
        return self.pairs.observers == tuple((i,) for i in range(len(self.labels)))

    def observer(self, row: int) -> str:
        """ "agent 0", "agents 0, 3", "19 agents (0, …, 18)"."""
        named = [self.labels[i] for i in self.pairs.observers[row]]
        if len(named) > _MOST_LISTED:
            return f"{len(named)} agents ({named[0]}, …, {named[-1]})"
        return ("agents " if len(named) > 1 else "agent ") + ", ".join(named)

    def __repr__(self) -> str:
        observers, most = len(self.pairs.observers), epsilon_text(float(np.nanmax(self.certified)))
        every = epsilon_text(float(self.certified_total.max()))
        observers_text = f"{observers} observer{'s' if observers > 1 else ''} of {len(self.labels)} agents"
        spent = f"ε at most {most} (all messages {every}) at δ = {self.delta:g}, certified"
        return f"<NetworkView {self.name!r}: {observers_text}, {spent}>"

    def at_distance(self, epsilon: Array | None = None) -> dict[int, float]:
        """Links between observer and victim → the largest ε of the pairs that far apart.

        Args:
            epsilon: (o, m), `certified` by default, or `reference`.
        """
        taken = self.certified if epsilon is None else epsilon
        known = ~np.isnan(taken)
        distance, prices = self.distance[known], taken[known]
        return {int(links): float(prices[distance == links].max()) for links in np.unique(distance)}

    def to_frame(self) -> pd.DataFrame:
        """One row for each observer and each victim outside it: the columns of `network.parquet`.

        observer is text, such as "0+3", and victim a number; observer_name and victim_name are both text, as the graph
        calls its agents. Of training there are also mu_linear, epsilon_linear, mu_certified and mu_everything.
        """
        import pandas as pd

        row, victim = np.nonzero(~np.isnan(self.certified))
        names = np.array(["+".join(map(str, members)) for members in self.pairs.observers])
        called = np.array(["+".join(self.labels[i] for i in members) for members in self.pairs.observers], dtype=object)
        training = {} if self.linear is None else {
            "mu_linear": self.linear[row, victim],
            "epsilon_linear": self.reference[row, victim],
            "mu_certified": self.pairs.mu[row, victim],
            "mu_everything": self.pairs.total[victim],
        }  # fmt: skip
        return pd.DataFrame(
            {
                "observer": names[row],
                "victim": victim,
                "distance": self.distance[row, victim],
                "mu": self.pairs.mu[row, victim],
                "epsilon": self.epsilon[row, victim],
                "certified": self.certified[row, victim],
                "epsilon_total": self.epsilon_total[victim],
                "certified_total": self.certified_total[victim],
                "delta": self.delta,
                "observer_name": called[row],
                "victim_name": np.array(self.labels, dtype=object)[victim],
                **training,
            }
        )


@dataclass(frozen=True, eq=False)
class Unpriced:
    """A job in public numbers, before its pairs are priced.

    Args:
        job: planned.
        observers: o sets of agents.
        system: arguments of `network.pairwise`.
        nu, draws: (o,) arguments of `network.certified_epsilon`.
        steps: of training, which `system` is no bound for.
        price_classes: pairs of training with one price.
    """

    job: PlannedJob
    observers: tuple[tuple[int, ...], ...]
    system: Mapping[str, Any]
    nu: Array
    draws: NDArray[np.int64]
    steps: Steps | None = None
    price_classes: NDArray[np.int64] | None = None

    def view(self, progress: Callback | None = None) -> NetworkView:
        """Compute the ε of every pair. progress: called with a `Progress` of "observers"."""
        job, system, reporter = self.job, self.system, Reporter(progress, "observers")
        linear: Array | None = None
        if self.steps is None or self.price_classes is None:
            pairs = network.pairwise(**system, observers=self.observers, progress=reporter)
        else:
            total = network.everything(system["injected"], system["noise"], system["arrivals"])
            mu = observer_mu(self.steps, self.observers, self.price_classes, reporter)
            pairs = network.NetworkBudget(self.observers, mu, np.where(np.isnan(mu), -1, 0), total)
            linear = np.full(mu.shape, np.nan)
            if job.topology.over_time is None:
                linear = network.pairwise(**system, observers=self.observers).mu
        delta, inside = job.scenario.privacy.delta, np.isnan(pairs.mu)
        certified = network.certified_epsilon(pairs.mu, self.nu, self.draws, job.problem.q, delta, job.budget.epsilon)
        # Prices of training count what float64 adds, and the total does not.
        exact = gaussian_epsilon(np.where(inside, 0.0, np.minimum(pairs.mu, pairs.total)), delta)
        hops = np.asarray(shortest_path(system["mixing"] != 0.0, directed=False, unweighted=True))
        return NetworkView(
            pairs,
            np.array([hops[list(members)].min(axis=0) for members in self.observers]).astype(np.int64),
            delta,
            np.where(inside, np.nan, exact),
            certified,
            gaussian_epsilon(pairs.total, delta),
            job.budget.epsilon,
            job.topology.name,
            job.topology.labels,
            linear,
        )


def observer_numbers(coalitions: Sequence[Sequence[int | str]], labels: Sequence[str]) -> list[list[int]]:
    """Sets of agents' numbers, of sets of numbers, or of names as text.

    Raises:
        InputError: a name that no agent has.

    Example:
        >>> observer_numbers([["ben", 0], [1]], ["anna", "ben"]), observer_numbers([["1"]], ["0", "1"])
        ([[1, 0], [1]], [[1]])
    """
    number = {label: agent for agent, label in enumerate(labels)}
    out = []
    for members in coalitions:
        if isinstance(members, str):
            raise InputError(f"network: got the coalition {quoted(members)}; wanted a list of agents. Put it in one.")
        for agent in members:
            if isinstance(agent, str) and agent not in number:
                raise InputError(
                    f"network: no agent {quoted(agent)}; this graph has {join_names(list(labels), 'agent')}; name "
                    "some of them."
                )
        out.append([number[agent] if isinstance(agent, str) else agent for agent in members])
    return out


def prepare(planned: PlannedJob, coalitions: Sequence[Sequence[int | str]] | None = None) -> Unpriced:
    """The job's linear system and what float64 adds to it. Raises InputError for whatever `view` would not price."""
    refuse(planned, _REFUSALS)
    job = cast(GossipJob, planned)
    algorithm, problem = cast(LdpSingleLevel | DpDsgd, job.algorithm), cast(MeanEstimation | Training, job.problem)
    sets = None if coalitions is None else observer_numbers(coalitions, job.topology.labels)
    observers = network.observer_sets(sets, job.n_agents)
    if all(len(members) == job.n_agents for members in observers):
        raise InputError("network: every agent is an observer, so no pair is left to price; leave some agents outside.")
    rounds, counts = np.arange(job.rounds), job.counts["train"]
    step = algorithm.y.series(job.rounds)
    averaged = job.stream.averaged_counts(rounds[:, None], counts)
    draws = job.rounds * problem.q * (job.n_agents - np.array([len(members) for members in observers]))
    changes = job.topology.over_time
    mixing = (job.topology.mixing if changes is None else changes.links).toarray()
    # What a step takes off the point that it is taken at: (1 + ridge) y − ridge x of the mean, l2 y in training.
    steps = steps_of(job, algorithm, problem) if isinstance(problem, Training) else None
    pull = step * (problem.l2 if isinstance(problem, Training) else 1.0 + problem.ridge)
    own_point = isinstance(algorithm, LdpSingleLevel)
    moved = (step * 2.0 * job.clip.bounds("y", rounds))[:, None] / averaged
    system = {
        "mixing": mixing,
        "contraction": pull if own_point else 0.0 * step,
        "injected": np.where(sent_messages(job), moved, 0.0),
        "noise": job.noise["y"].scales(rounds + 1, GAUSSIAN),
        "arrivals": np.diff(averaged, axis=0, prepend=0) > 0,
        "share": 1.0 + 0.0 * step if own_point else 1.0 - pull,
    }
    nu = _rounding(job, problem, system, observers) if isinstance(problem, MeanEstimation) else np.zeros(len(observers))
    first = None if steps is None else first_of_equal_pairs(steps, observers)
    size = len(observers), job.n_agents, job.rounds
    seconds = network.duration(*size)
    if first is not None:
        # Of pairs that are not alike, each is a system of its own.
        different = int(np.unique(first[first >= 0]).size)
        seconds += different * job.rounds * (job.n_agents * _PER_AGENT + job.n_agents**3 * _PER_CUBE)
    network.require_time(*size, seconds)
    return Unpriced(job, observers, system, nu, draws, steps, first)


def _rounding(
    job: GossipJob, problem: MeanEstimation, system: Mapping[str, Any], observers: tuple[tuple[int, ...], ...]
) -> Array:
    """ν of every observer."""
    algorithm: Any = job.algorithm
    step, averaged = (
        algorithm.y.series(job.rounds),
        job.stream.averaged_counts(np.arange(job.rounds)[:, None], job.counts["train"]),
    )
    start, x = (abs(algorithm.start.get(channel, 0.0)) for channel in "yx")
    summed = system["injected"] * (summation_slack(averaged, problem.q) - 1.0)
    sent = network.Messages(
        system["mixing"], system["share"], system["contraction"], system["noise"], problem.q, summed, start,
        step * (job.clip.bounds("y", np.arange(job.rounds)) + problem.ridge * x),
    )  # fmt: skip
    return network.rounding(sent, observers)


def _underived(job: Any) -> tuple[str, str] | None:
    """Return the keys of a linear job that no price is derived with, and what they are; None without any."""
    changes, correlated = job.topology.over_time, job.pairs is not None or job.factor is not None
    there = [
        (key, what)
        for key, is_there, what in (
            ("algorithm.heavy_ball", getattr(job.algorithm, "heavy_ball", 0.0), "momentum, which joins two rounds"),
            ("algorithm.centring", job.algorithm.centring_rounds, "features that are read from their mean"),
            ("algorithm.local_steps", getattr(job.algorithm, "local_steps", 0), "local steps"),
            ("topology.delay", changes is not None and changes.delay, "late messages"),
            ("topology.compression", job.scenario.topology.compression is not None, "compressed messages"),
            ("privacy.correlation", correlated, "noise that is correlated"),
            ("privacy.unit", job.unit != RECORD, job.unit.noun),
        )
        if is_there
    ]
    if not there:
        return None
    keys, whats = zip(*there, strict=True)
    return ", ".join(keys), ", of ".join(whats)


def _is_unbounded(job: Any) -> bool:
    """Whether a job in training has no bound on how far a step pulls two hidden states apart."""
    length = job.problem.length if isinstance(job.problem, Training) else 0.0
    return length is None or not math.isfinite(length)


_REFUSALS: tuple[Refusal[Any], ...] = (
    Refusal(
        lambda job: (
            not isinstance(job, GossipJob) or not isinstance(job.algorithm, LdpSingleLevel | DpDsgd) or job.central
        ),
        "algorithm.kind",
        "what one agent learns from its neighbours' messages is not derived for {of.scenario.algorithm.kind}",
        'use "ldp_single_level" or "dp_dsgd"',
    ),
    Refusal(
        _underived,
        "{it[0]}",
        "what an observer inside learns of {it[1]} is not derived",
        "leave it out, or set 0 or false",
    ),
    Refusal(
        lambda job: job.topology.over_time is not None and not isinstance(job.problem, Training),
        "topology",
        "pairs of agents are priced exactly on a network that stays",
        "leave out over_time, drop, offline, delay",
    ),
    Refusal(
        lambda job: job.n_agents > 1 and not len(job.topology.edges),
        "topology",
        "the {of.n_agents} agents have no links, so no agent hears of another",
        "take a connected graph",
    ),
    Refusal(
        _is_unbounded,
        "problem.model",
        "how far a step pulls two hidden states apart has no bound for a network, or for features without ranges",
        'use model = "linear" and declared ranges (scale = "public_ranges")',
    ),
    Refusal(
        lambda job: not isinstance(job.problem, MeanEstimation | Training),
        "problem.kind",
        "gradients of {of.scenario.problem.kind} depend on the state, and so does what is clipped off them, so "
        "messages are not Gaussian and cannot be priced exactly",
        'use "mean_estimation", or a linear model of "classification" or "regression", of which a bound is certified',
    ),
    Refusal(
        lambda job: job.scenario.privacy.guarantee != "certified",
        "privacy.guarantee",
        '"{of.scenario.privacy.guarantee}" leaves records unclipped or without noise, so pairs cannot be priced',
        'use "certified"',
    ),
    Refusal(
        lambda job: job.mechanism != GAUSSIAN,
        "privacy.mechanism",
        "sums of {of.mechanism.name} noise have no closed form, so what mixed messages hide cannot be priced exactly",
        'use "gaussian"',
    ),
    Refusal(
        lambda job: job.scenario.privacy.delta == 0.0,
        "privacy.delta",
        "Gaussian noise has no finite ε at δ = 0",
        "use a delta above 0, such as 1e-5",
    ),
    Refusal(
        # In training a secret fixed-size batch is priced as if it held the record in every round. A Poisson batch may
        # be many times as large as what it is divided by, and steps then pull states apart.
        lambda job: (
            job.stream.kind == "poisson" or (job.stream.kind == "minibatch" and not isinstance(job.problem, Training))
        ),
        "problem.stream",
        "a secret minibatch makes messages mixtures of Gaussian laws, which cannot be priced exactly",
        'use "all", or records that accumulate',
    ),
)
