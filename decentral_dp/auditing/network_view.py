"""Network DP: ε of each agent's records against honest-but-curious neighbours.

It supports `ldp_single_level` and `dp_dsgd` with Gaussian noise on released states.

- ε is exact if all received messages are a linear image of that noise. This holds if the per-record gradient does not
  depend on the state (`mean_estimation`) and is averaged over all records so far. `auditing.network_gossip` has the
  formulas and the bound for float64.
- ε is an upper bound for linear models in training (`classification`, `regression`), whose hidden states depend on
  records: `privacy.accounting.hidden_states`, with the numbers of `simulation.jobs.published`. The ε of linear
  gossip is reported for comparison, but is not a bound for training.

An observer receives the messages of its neighbours, and its members have s = ∞. With `privacy.adversary` it also
receives the published models. The message of round t is sent on the graph of round t + 1, and the observer may see a
message that is lost there. All graphs and losses are public before the run, so no agent can choose its neighbours by
received messages.

Pairs that a symmetry of the network maps to each other have the same ε. On a ring or a hypercube with equal noise, ε
depends only on the distance. If the numbers of records differ, μ lies between its values for the victims with most and
fewest records, since it is convex in the movement of a message by the record. If the noise differs and there are many
pairs, every agent is accounted with the smallest noise, which gives a larger bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path

from decentral_dp.algorithms.gossip.centring import Centring, strip_centring
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.gossip.ldp_single_level import LdpSingleLevel
from decentral_dp.auditing import network_gossip as network
from decentral_dp.bounded import Array, summation_slack
from decentral_dp.errors import Refusal, refuse
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.accounting.hidden_states import hidden_mu
from decentral_dp.privacy.clipping import RECORD
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.problems.bilevel.means import MeanEstimation
from decentral_dp.problems.training import Training
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.simulation.jobs.published import (
    NO_DELTA,
    PER_CUBE,
    PER_ROUND,
    Steps,
    View,
    add_members,
    compute_steps,
    is_unbounded,
    published_rounds,
    sent_messages,
)
from decentral_dp.topology.symmetries import find_symmetries

if TYPE_CHECKING:
    import pandas as pd

# Seconds to find the cells of a pair, divided by agents².
_PER_SQUARE = 1.5e-7
# Distance in edges, divided by √rounds, beyond which agents of a large network count as observed.
_SPREAD = 4.0
# Largest number of agents that are not counted as observed at large distances.
_MOST_EXACT = 128


def first_of_equal_pairs(steps: Steps, observers: tuple[tuple[int, ...], ...]) -> NDArray[np.int64]:
    """Return the pairs whose μ determines all others, by symmetries of the public numbers except counts of records.

    Args:
        steps: the job's steps.
        observers: sets of agents.

    Returns:
        Indices row · m + victim of two symmetric pairs, (2, o, m), with the smallest and the largest movement of a
        message by a record; −1 if the victim is an observer.
    """
    m = steps.noise.shape[1]
    # The rounds that read records, not the movements.
    rounded_movement = np.round(steps.movement / np.maximum(steps.movement.max(axis=0), np.finfo(np.float64).tiny), 9)
    matrices = {id(matrix): matrix for matrix in (*steps.mixing, *steps.visible, *steps.factors)}.values()
    row_of = {members: row for row, members in enumerate(observers)}
    numbers = np.arange(len(observers) * m).reshape(-1, m)
    sources, images = [numbers.ravel()], [numbers.ravel()]
    for image in find_symmetries([*rounded_movement, *steps.noise, *steps.rounding], list(matrices)):
        for members, row in row_of.items():
            other = row_of.get(tuple(sorted(image[list(members)].tolist())))
            if other is not None:
                sources.append(numbers[row])
                images.append(other * m + image)
    edges = np.concatenate(sources), np.concatenate(images)
    links = csr_array((np.ones(edges[0].size, dtype=np.int8), edges), shape=(numbers.size, numbers.size))
    classes = connected_components(links, directed=False)[1]
    first = np.unique(classes, return_index=True)[1][classes].reshape(numbers.shape)
    for row, members in enumerate(observers):
        first[row, list(members)] = -1
    # The pairs of each class whose victims' records move a message least and most.
    pairs, movement = first.ravel(), np.tile(steps.movement.max(axis=0), len(first))
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
    view: View | Literal["all_messages"] = "all_messages",
    progress: Callable[[int, int], None] | None = None,
) -> Array:
    """Compute μ of every pair for float64 messages, (o, m), NaN if the victim is an observer.

    Args:
        steps: the job's steps.
        observers: sets of agents.
        first: result of `first_of_equal_pairs`.
        view: models that the observers also receive; "all_messages" (the default) means none.
        progress: callback that receives the number of observers completed and the total.
    """
    m = steps.noise.shape[1]
    mu = np.full((len(observers), m), np.nan)
    radius, published = _radius(steps), published_rounds(steps, view)
    for row, members in enumerate(observers):
        victims = np.flatnonzero((first[:, row] == row * m + np.arange(m)).any(axis=0))
        if victims.size:
            mu[row, victims] = hidden_mu(add_members(published, steps, members), victims, steps.movement, radius=radius)
        if progress is not None:
            progress(row + 1, len(observers))
    certified_mu = np.full(mu.shape, np.nan)
    for row, (low, high) in enumerate(first.transpose(1, 0, 2)):
        least, most = steps.movement[:, low % m], steps.movement[:, high % m]
        span = (most - least).max(axis=0)
        share = np.divide((steps.movement - least).max(axis=0), span, out=np.zeros(m), where=span > 0.0)
        between = (1.0 - share) * least + share * most
        # Rounding of the averages.
        more = np.divide(steps.movement, between, out=np.ones(between.shape), where=between > 0.0).max(axis=0)
        # An infinite μ times a share of 0 is NaN, the mark of members.
        ends = ((1.0 - share, mu.ravel()[low]), (share, mu.ravel()[high]))
        bound = more * sum(np.multiply(part, end, out=np.zeros(m), where=part > 0.0) for part, end in ends)
        exact = (share * (1.0 - share) == 0.0) & (more == 1.0)
        certified_mu[row] = np.where(low < 0, np.nan, np.where(exact, bound, bound * (1.0 + 2.0**-49)))
    return certified_mu


ASSUMPTIONS = (
    "Adversary: one honest-but-curious agent, or colluding ones. It follows the protocol, and remembers its own noise, "
    "records and messages, and all messages that it receives. It may have the graph, weights, learning rates, noise "
    "scales, counts, and all other records.",
    "It observes nothing else: messages between other agents are private, their noise is secret and independent, and "
    "final values are not published.",
    "Adjacency: replace one train record of one agent, the victim. A coalition with the victim has the record.",
    "Certified ε holds for float64 messages and noise. It includes rounding, and is at most the certified ε of all "
    "messages. Exact ε holds for real numbers and ideal noise.",
)
WITH_PUBLISHED = (
    "It also receives {}, and observes nothing else: messages between other agents are private, and their noise is "
    "secret and independent."
)
_PUBLISHED = {"final_models": "the final models of all agents", "final_average": "the average of the final models"}
EQUAL_NOISE = (
    "Agents have different numbers of records, and the exact bounds would take too long. Every agent is accounted with "
    "the smallest noise of any, for larger ε."
)
OF_TRAINING = (
    "Certified ε holds for float64 messages and noise, for all records of hidden agents: features are clipped to "
    "declared bounds, so a step moves hidden states apart by bounded factors. No model, metric or checkpoint is "
    "shared, and the graph and batches do not depend on noise. Published calculators state the ε of linear gossip for "
    "training. It is not a bound if gradients depend on hidden states."
)
# Observers of more agents are named by their number.
_MOST_LISTED = 4


@dataclass(frozen=True, eq=False)
class NetworkView:
    """Privacy cost ε of each agent's records against each adversary; NaN for members of the adversary.

    Args:
        pairs: value of μ for every pair, exact in real arithmetic, or a bound for training.
        distance: number of edges between the victim and the nearest member of the adversary, (o, m).
        delta: δ of the guarantee.
        epsilon: ε at δ in real arithmetic with ideal noise, (o, m).
        certified: ε at δ for float64 messages, (o, m).
        epsilon_total, certified_total: the same ε against an adversary that observes all messages, (m,).
        name: name of the graph.
        labels: names of the agents.
        linear: μ of linear gossip, (o, m), which is set for training only.
        published: models that the adversary also receives (`privacy.adversary`). "all_messages" means none.
        has_equal_noise: whether all agents are accounted with the smallest noise of any agent, which takes less time.

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
    published: View | Literal["all_messages"] = "all_messages"
    has_equal_noise: bool = False

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions on which the numbers depend, in sentences."""
        if self.linear is None:
            return ASSUMPTIONS
        observed, training = ASSUMPTIONS[1], OF_TRAINING
        if self.published != "all_messages":
            observed = WITH_PUBLISHED.format(_PUBLISHED[self.published])
            training = training.replace("No model", "No other model")
        equal = (EQUAL_NOISE,) if self.has_equal_noise else ()
        return (ASSUMPTIONS[0], observed, ASSUMPTIONS[2], training, *equal)

    @property
    def reference(self) -> Array:
        """Exact ε in real arithmetic, (o, m), for comparison. For training it is the ε of linear gossip."""
        if self.linear is None:
            return self.epsilon
        inside = np.isnan(self.linear)
        return np.where(inside, np.nan, gaussian_epsilon(np.where(inside, 0.0, self.linear), self.delta))

    @property
    def observes_single_agents(self) -> bool:
        """Whether each agent is an adversary and there are no coalitions."""
        return self.pairs.observers == tuple((i,) for i in range(len(self.labels)))

    def adversary(self, row: int) -> str:
        """Return the name of an adversary: "agent 0", "agents 0, 3", "19 agents (0, …, 18)"."""
        names = [self.labels[i] for i in self.pairs.observers[row]]
        if len(names) > _MOST_LISTED:
            return f"{len(names)} agents ({names[0]}, …, {names[-1]})"
        return ("agents " if len(names) > 1 else "agent ") + ", ".join(names)

    def __repr__(self) -> str:
        number, most = len(self.pairs.observers), epsilon_text(float(np.nanmax(self.certified)))
        every = epsilon_text(float(self.certified_total.max()))
        word = "adversaries" if number > 1 else "adversary"
        spent = f"ε at most {most} (all messages {every}) at δ = {delta_text(self.delta)}, certified"
        return f"<NetworkView {self.name!r}: {number} {word} of {len(self.labels)} agents, {spent}>"

    def at_distance(self, epsilon: Array | None = None) -> dict[int, float]:
        """Return the largest ε of any pair at each distance, in edges.

        Args:
            epsilon: ε of each pair, (o, m): `certified` (the default) or `reference`.
        """
        values = self.certified if epsilon is None else epsilon
        is_outside = ~np.isnan(values)
        distance, outside = self.distance[is_outside], values[is_outside]
        return {int(links): float(outside[distance == links].max()) for links in np.unique(distance)}

    def to_frame(self) -> pd.DataFrame:
        """Return the table of `network.parquet`, with one row for each adversary and each victim outside it.

        The column adversary is text, such as "0+3", and victim is a number. The columns adversary_name and victim_name
        have names of agents. Training also has mu_linear, epsilon_linear, mu_certified and mu_everything.
        """
        import pandas as pd

        row, victim = np.nonzero(~np.isnan(self.certified))
        names = np.array(["+".join(map(str, members)) for members in self.pairs.observers])
        labels = np.array(["+".join(self.labels[i] for i in members) for members in self.pairs.observers], dtype=object)
        training = {} if self.linear is None else {
            "mu_linear": self.linear[row, victim],
            "epsilon_linear": self.reference[row, victim],
            "mu_certified": self.pairs.mu[row, victim],
            "mu_everything": self.pairs.total[victim],
        }  # fmt: skip
        return pd.DataFrame(
            {
                "adversary": names[row],
                "victim": victim,
                "distance": self.distance[row, victim],
                "mu": self.pairs.mu[row, victim],
                "epsilon": self.epsilon[row, victim],
                "certified": self.certified[row, victim],
                "epsilon_total": self.epsilon_total[victim],
                "certified_total": self.certified_total[victim],
                "delta": self.delta,
                "adversary_name": labels[row],
                "victim_name": np.array(self.labels, dtype=object)[victim],
                **training,
            }
        )


def compute_view(
    job_plan: PlannedJob,
    coalitions: Sequence[Sequence[int | str]] | None = None,
    progress: Callback | None = None,
) -> NetworkView:
    """Compute ε for every pair of an adversary and a victim.

    Args:
        job_plan: planned job.
        coalitions: sets of colluding agents, by number or by name. By default, each agent is an adversary.
        progress: callback that receives a `Progress` for "adversaries".

    Raises:
        InputError: network DP does not support the job, a coalition is invalid, or the computation takes too long.
    """
    refuse(job_plan, _REFUSALS)
    job, reporter = cast(GossipJob, job_plan), Reporter(progress, "adversaries")
    problem = cast(MeanEstimation | Training, job.problem)
    observers, system = network.observer_sets(coalitions, job.topology.labels), _linear_gossip(job)
    nu, linear, has_equal_noise = np.zeros(len(observers)), None, False
    if isinstance(problem, MeanEstimation):
        nu = _bound_rounding(job, problem, system, observers)
        pairs = network.pairwise(**system, observers=observers, progress=reporter)
    else:
        pairs, linear, has_equal_noise = _training_pairs(job, system, observers, reporter)
    delta, inside = job.scenario.privacy.delta, np.isnan(pairs.mu)
    draws = job.rounds * problem.q * (job.n_agents - np.array([len(members) for members in observers]))
    certified = network.certified_epsilon(pairs.mu, nu, draws, problem.q, delta, job.budget.epsilon)
    # The costs of training include float64 rounding, and the total does not.
    exact = gaussian_epsilon(np.where(inside, 0.0, np.minimum(pairs.mu, pairs.total)), delta)
    hops = np.asarray(shortest_path(system["mixing"] != 0.0, directed=False, unweighted=True))
    return NetworkView(
        pairs,
        np.array([hops[list(members)].min(axis=0) for members in observers]).astype(np.int64),
        delta,
        np.where(inside, np.nan, exact),
        certified,
        gaussian_epsilon(pairs.total, delta),
        job.budget.epsilon,
        job.topology.name,
        job.topology.labels,
        linear,
        job.scenario.privacy.adversary,
        has_equal_noise,
    )


def _linear_gossip(job: GossipJob) -> dict[str, Any]:
    """Return the arguments of `network_gossip.pairwise` for the messages of a job, without its observers."""
    algorithm, problem = cast(LdpSingleLevel | DpDsgd, job.algorithm), cast(MeanEstimation | Training, job.problem)
    rounds, changes = np.arange(job.rounds), job.topology.over_time
    step = algorithm.learning_rate.series(job.rounds)
    averaged_counts = job.sampling.averaged_counts(rounds[:, None], job.counts["train"])
    # A step subtracts (1 + ridge) y − ridge x for the mean, and l2 y in training.
    pull = step * (problem.l2 if isinstance(problem, Training) else 1.0 + problem.ridge)
    own_point = isinstance(algorithm, LdpSingleLevel)
    movement = (step * 2.0 * job.clip.bounds("y", rounds))[:, None] / averaged_counts
    return {
        "mixing": (job.topology.mixing if changes is None else changes.links).toarray(),
        "contraction": pull if own_point else 0.0 * step,
        "injected": np.where(sent_messages(job), movement, 0.0),
        "noise": job.noise["y"].scales(rounds + 1, GAUSSIAN),
        "arrivals": np.diff(averaged_counts, axis=0, prepend=0) > 0,
        "share": 1.0 + 0.0 * step if own_point else 1.0 - pull,
    }


def _training_pairs(
    job: GossipJob, system: Mapping[str, Any], observers: tuple[tuple[int, ...], ...], reporter: Reporter
) -> tuple[network.NetworkBudget, Array, bool]:
    """Return μ of training, μ of linear gossip (o, m) for comparison, and whether all agents have equal noise."""
    steps, published, has_equal_noise = compute_steps(job), job.scenario.privacy.adversary, False
    first = first_of_equal_pairs(steps, observers)
    seconds = _seconds_of_pairs(steps, first)
    if seconds > network.MOST_SECONDS:
        has_equal_noise, steps = True, with_equal_noise(steps)
        first = first_of_equal_pairs(steps, observers)
        seconds = _seconds_of_pairs(steps, first)
    size = len(observers), job.n_agents, job.rounds
    network.require_time(*size, seconds)
    total = network.everything(system["injected"], system["noise"], system["arrivals"])
    mu = observer_mu(steps, observers, first, published, reporter)
    linear = np.full(mu.shape, np.nan)
    # Linear gossip does not receive published models.
    is_linear = job.topology.over_time is None and published == "all_messages"
    if is_linear and seconds + network.duration(*size) <= network.MOST_SECONDS:
        linear = network.pairwise(**system, observers=observers).mu
    return network.NetworkBudget(observers, mu, np.where(np.isnan(mu), -1, 0), total), linear, has_equal_noise


def with_equal_noise(steps: Steps) -> Steps:
    """Return steps in which every agent that sends has the smallest noise and the largest rounding, for larger bounds.

    Agents that differ in their numbers of records are then symmetric.
    """
    sends = steps.noise > 0.0
    least = steps.noise.min(axis=1, keepdims=True, where=sends, initial=np.inf)
    most = np.where(sends, steps.rounding, 0.0).max(axis=1, keepdims=True)
    return steps._replace(noise=np.where(sends, least, 0.0), rounding=np.where(sends, most, 0.0))


def _seconds_of_pairs(steps: Steps, first: NDArray[np.int64]) -> float:
    """Return the approximate seconds of all pairs; each different one is one system."""
    (rounds, m), radius = steps.noise.shape, _radius(steps)
    different = int(np.unique(first[first >= 0]).size)
    if radius is None:
        per_round = float(PER_ROUND + m**3 * PER_CUBE)
    else:
        hops: Array = shortest_path(
            (steps.factors != 0.0).any(axis=0), unweighted=True, indices=np.arange(0, m, max(1, m // 16))
        )
        cells = int((hops <= radius + 1).sum(axis=1).max())
        # Half of the rounds have free distances, and the solver stops early.
        per_round = float(PER_ROUND + 0.1 * cells**3 * PER_CUBE)
    return float(different * (rounds * per_round + m**2 * _PER_SQUARE))


def _radius(steps: Steps) -> int | None:
    """Return the distance beyond which agents of a large network count as observed; a random walk spreads less."""
    rounds, m = steps.noise.shape
    return None if m <= _MOST_EXACT else math.ceil(_SPREAD * math.sqrt(rounds))


def _bound_rounding(
    job: GossipJob, problem: MeanEstimation, system: Mapping[str, Any], observers: tuple[tuple[int, ...], ...]
) -> Array:
    """Return ν of every observer."""
    algorithm: Any = job.algorithm
    step, averaged_counts = (
        algorithm.learning_rate.series(job.rounds),
        job.sampling.averaged_counts(np.arange(job.rounds)[:, None], job.counts["train"]),
    )
    start, x = (abs(algorithm.start.get(channel, 0.0)) for channel in "yx")
    sum_error = system["injected"] * (summation_slack(averaged_counts, problem.q) - 1.0)
    messages = network.Messages(
        system["mixing"], system["share"], system["contraction"], system["noise"], problem.q, sum_error, start,
        step * (job.clip.bounds("y", np.arange(job.rounds)) + problem.ridge * x),
    )  # fmt: skip
    return network.rounding(messages, observers)


def _find_unsupported(job: Any) -> tuple[str, str] | None:
    """Return the keys of a job that network DP does not support, and their names; None if all are supported."""
    algorithm = strip_centring(job.algorithm)
    changes, correlated = job.topology.over_time, job.pairs is not None or job.factor is not None
    features = [
        (key, name)
        for key, is_set, name in (
            ("algorithm.momentum", getattr(algorithm, "momentum", 0.0), "momentum"),
            ("algorithm.centring", isinstance(job.algorithm, Centring), "centred features"),
            ("algorithm.local_steps", getattr(algorithm, "local_steps", 0), "local steps"),
            ("topology.delay", changes is not None and changes.delay, "delayed messages"),
            ("topology.compression", job.scenario.topology.compression is not None, "compressed messages"),
            ("topology.aggregation", job.scenario.topology.aggregation is not None, "robust aggregation"),
            ("attack", job.scenario.attack is not None, "Byzantine agents"),
            ("privacy.correlation", correlated, "correlated noise"),
            ("privacy.unit", job.unit != RECORD, job.unit.noun),
            ("problem.weights", job.scenario.problem.weights == "records", "weights of records"),
        )
        if is_set
    ]
    if not features:
        return None
    keys, names = zip(*features, strict=True)
    return ", ".join(keys), ", ".join(names)


_REFUSALS: tuple[Refusal[Any], ...] = (
    Refusal(
        lambda job: (
            not isinstance(job, GossipJob)
            or not isinstance(strip_centring(job.algorithm), LdpSingleLevel | DpDsgd)
            or job.has_server
        ),
        "algorithm.kind",
        "network DP is not derived for {of.scenario.algorithm.kind}",
        'use "ldp_single_level" or "dp_dsgd"',
    ),
    Refusal(
        _find_unsupported,
        "{it[0]}",
        "network DP is not derived for {it[1]}",
        "remove it, or set it to 0 or false",
    ),
    Refusal(
        lambda job: job.topology.over_time is not None and not isinstance(job.problem, Training),
        "topology",
        "exact network DP requires a static network",
        "remove over_time, drop, offline and delay",
    ),
    Refusal(
        lambda job: job.n_agents > 1 and not len(job.topology.edges),
        "topology",
        "the {of.n_agents} agents have no edges",
        "use a connected graph",
    ),
    Refusal(
        lambda job: isinstance(job.problem, Training) and is_unbounded(job),
        "problem.model",
        "not derived for neural networks or features without ranges, whose steps may amplify differences of "
        "hidden states without bound",
        'use model = "linear" and declared ranges (scale = "public_ranges")',
    ),
    Refusal(
        lambda job: not isinstance(job.problem, MeanEstimation | Training),
        "problem.kind",
        "clipped gradients of {of.scenario.problem.kind} depend on the state, so messages are not Gaussian",
        'use "mean_estimation", or a linear model of "classification" or "regression"',
    ),
    Refusal(
        lambda job: job.scenario.privacy.guarantee != "certified",
        "privacy.guarantee",
        'network DP requires clipping and noise (got "{of.scenario.privacy.guarantee}")',
        'use "certified"',
    ),
    Refusal(
        lambda job: job.mechanism != GAUSSIAN,
        "privacy.mechanism",
        "sums of {of.mechanism.name} noise have no closed form",
        'use "gaussian"',
    ),
    NO_DELTA,
    Refusal(
        # Training accounts a secret fixed-size batch as if it had the record in every round. A Poisson batch may be
        # much larger than its divisor, and steps then move states apart.
        lambda job: (
            job.sampling.kind == "poisson"
            or (job.sampling.kind == "fixed_batch" and not isinstance(job.problem, Training))
        ),
        "problem.sampling",
        "not derived for secret minibatches, whose messages are mixtures of Gaussian distributions",
        'use "full" or "streaming"',
    ),
)
