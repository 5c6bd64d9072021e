"""Objects of a gossip scenario, including correlated noise, and the table of refused scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.gossip.adassp import AdaSsp
from decentral_dp.algorithms.gossip.centring import strip_centring
from decentral_dp.algorithms.protocol import ONE_LEVEL, Algorithm, Channel, Claiming, Counts, check_message
from decentral_dp.bounded import Array, Split
from decentral_dp.config.components import Components
from decentral_dp.config.scenario_components import (
    algorithm_of,
    check_terms,
    clip_of,
    deal,
    link_keys,
    problem_of,
    sampling_of,
    with_clip,
)
from decentral_dp.config.schema import CorrelationTable, Partition, PrivacyTable, Scenario, by_channel
from decentral_dp.data import Sampling, Shards
from decentral_dp.data.agent_shards import AgentShards
from decentral_dp.errors import Refusal, refuse
from decentral_dp.exchange import senders_of
from decentral_dp.formatting import agent_names
from decentral_dp.participants import Network, record_weights
from decentral_dp.privacy.clipping import RECORD, Clip, Unit, unit_of
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE, NO_NOISE, Mechanism
from decentral_dp.privacy.pair_noise import PairNoise, best_ratio, best_scales
from decentral_dp.privacy.time_factors import TimeFactor, banded_square_root, factor_of
from decentral_dp.problems.protocol import CHANGE, CLIP_OF_TERM, READS_AS, PlannedTraining, Problem, split_read
from decentral_dp.problems.training import Training
from decentral_dp.simulation.jobs.hyperparameters import (
    no_statistics,
    with_centring,
    with_hyperparameters,
    with_statistics,
)
from decentral_dp.simulation.jobs.job import public_network
from decentral_dp.topology import Topology, build_topology
from decentral_dp.topology.over_time import off_diagonal

# Limits of searches that take seconds: agents and colluders for the best ratio of pairwise noise, and agents for the
# scales of each edge, by the number of colluders.
MOST_FOR_RATIO, _FEW_COLLUDERS, MOST_FOR_SCALES = 256, 3, (256, 40)
# Largest default ratio of pairwise to independent noise: in a dense graph more of it improves models after mixing, but
# releases are published, and pairwise noise would dominate them.
_LARGEST_RATIO = 4.0
OVER_ROUNDS = "privacy.correlation.over_rounds"
_INDEPENDENT = CorrelationTable.model_construct()


def time_factor_of(d: Setup, counts: Counts) -> TimeFactor | None:
    """Return the factor of noise that is correlated over rounds; None if noise is fresh in every round.

    Args:
        d: scenario, checked against the rows that need no record.
        counts: split → numbers of records, (m,).
    """
    rounds, factor = d.s.algorithm.rounds, d.correlation.over_rounds
    if factor is None:
        return None
    # Several records together may be read in any round.
    sizes = sorted({int(n) for some in counts.values() for n in some if n})
    gap = d.sampling.least_gap(np.array(sizes)) if d.unit.records == 1 else 1
    if factor == "banded_square_root":
        factor = gap
    if isinstance(factor, int):
        return banded_square_root(rounds, factor, apart=gap)
    reads = np.vstack([d.sampling.reads(n, rounds) for n in sizes]) if gap > 1 else None
    return factor_of(np.array(factor), reads)


def pair_noise_of(d: Setup) -> PairNoise | None:
    """Return the noise that neighbours share; None if all noise is independent between agents.

    Args:
        d: scenario, checked against the rows that need no record.
    """
    across, ratio, network = d.correlation.between_agents, d.correlation.ratio, d.network
    rounds, colluders = d.s.algorithm.rounds, d.privacy.colluders
    if across is None:
        return None
    if across == "optimised":
        independent, pair = best_scales(*_mixing_weights(network), rounds, colluders)
        # Three digits are identical on all machines.
        round_scale = np.vectorize(lambda scale: float(f"{scale:.3g}"))
        return PairNoise(
            round_scale(pair.toarray() / independent.min()),
            colluders,
            network,
            round_scale(independent / independent.min()),
        )
    if ratio is None:
        mixing, links = _mixing_weights(network)
        if across == "zero_sum":
            links = sp.csr_matrix(1.0 - np.eye(network.n_agents))
        best = best_ratio(mixing, links, rounds, min(colluders, _FEW_COLLUDERS))
        ratio = min(best, _LARGEST_RATIO)
    return PairNoise(ratio, colluders, network, all_pairs=across == "zero_sum")


def _mixing_weights(network: Network) -> tuple[Array, sp.csr_matrix]:
    """Return the mixing weights of all models, with the diagonal, and the edges."""
    weights = off_diagonal(network.mixing)
    links = sp.csr_matrix(weights.astype(bool), dtype=np.float64)
    return weights.toarray() + np.diag(1.0 - weights.sum(axis=1)), links.maximum(links.T)


@dataclass(frozen=True)
class Setup:
    """Gossip scenario before a record is read.

    Args:
        components: components of the scenario.
        declared_topology: graph of the [topology] table.
        topology: graph of the run, which is isolated agents or one server if the algorithm or topology.pooled requires
            it.
        network: public part of that graph.
        sampling: rule for the records that a round reads.
        unit: difference of neighbouring data sets.
        mechanism: mechanism of the charged releases.
    """

    components: Components
    declared_topology: Topology
    topology: Topology
    network: Network
    sampling: Sampling
    unit: Unit
    mechanism: Mechanism

    @property
    def s(self) -> Scenario:
        return self.components.scenario

    @property
    def privacy(self) -> PrivacyTable:
        return self.s.privacy

    @property
    def kind(self) -> str:
        """Name of the algorithm."""
        return self.s.algorithm.kind

    @property
    def is_private(self) -> bool:
        return self.privacy.guarantee != "none"

    @property
    def pools(self) -> bool:
        """Whether one server has the records of all agents."""
        return self.components.algorithm.network == "pooled" or bool(self.s.topology.pooled)

    @property
    def correlation(self) -> CorrelationTable:
        """Correlation of noise between agents or over rounds; empty if noise is independent or absent."""
        return (self.is_private and self.privacy.correlation) or _INDEPENDENT

    @property
    def unit_key(self) -> str:
        """Key of a unit other than one replaced record."""
        return "privacy.neighbours" if self.unit.records == 1 else "privacy.unit"


@dataclass(frozen=True)
class Resolved(Setup):
    """Gossip scenario with every name resolved to an object and every default filled in.

    Args:
        shards: public facts of the records, and the records unless agents keep them.
        elsewhere: place of the records if agents keep them.
        problem: problem, built from public facts of the data.
        algorithm: program of the agents.
        channels: channel → its releases.
        clip: bounds on every record's contribution.
        pairs: noise that neighbours share; None if noise is independent between agents.
        factor: factor of noise that is correlated over rounds; None if noise is fresh in every round.
        not_centred: reason why features are not centred although the scenario asks for it, or "".
        weights: split → factors m·N_i/N of the agents' means, (m,); empty unless problem.weights is "records".
    """

    shards: Shards
    elsewhere: AgentShards | None
    problem: Problem
    algorithm: Algorithm
    channels: Mapping[str, Channel]
    clip: Clip
    pairs: PairNoise | None
    factor: TimeFactor | None
    not_centred: str
    weights: Mapping[Split, Array]

    @property
    def charged(self) -> dict[str, str]:
        """Channel → family, for releases that depend on records."""
        return {name: c.family for name, c in self.channels.items() if _terms_of_records(c, self.problem)}

    @property
    def counts(self) -> Counts:
        return {"train": self.shards.train_counts, "validation": self.shards.validation_counts}

    @property
    def follows_from_releases(self) -> bool:
        """Whether each release, given the releases before it, is a sum of clipped means at public points.

        Custom algorithms are checked against their recorded sums. The sensitivity of unbounded sums is infinite, and a
        release that was not planned is refused.
        """
        return self.algorithm.protocol == "released" and (
            self.algorithm.memoryless or not self.components.algorithm.proved
        )

    @property
    def one_mean(self) -> bool:
        """Whether each release is proved to read one mean of records."""
        return self.components.algorithm.proved and self.algorithm.one_mean


def resolve_gossip(c: Components) -> Resolved:
    """Build every object that a gossip scenario names once, and fill in the defaults of training.

    Args:
        c: components of the scenario.

    Raises:
        InputError: an object cannot be built, the scenario has no proof, or a key would have no effect.
    """
    d = _setup_of(c)
    refuse(d, _BEFORE_RECORDS)
    shards, elsewhere = deal(c, d.declared_topology.n_agents)
    if d.pools:
        note = f"One server, whom all {shards.n_agents} agents trust with their records, has all of them."
        shards = replace(shards.pool(), notes=(*shards.notes, note))
    problem: Problem = c.problem_type.make_local(problem_of(c, shards), c.problem.name, d.kind)
    pairs = pair_noise_of(d)
    noise_average = averaged_noises(d.topology) * (1.0 if pairs is None else pairs.gain_of_average())
    components = c
    counts: Counts = {"train": shards.train_counts, "validation": shards.validation_counts}
    weights = record_weights(counts) if c.scenario.problem.weights == "records" else {}
    by_weight = weights.get("train")
    c, not_centred = with_hyperparameters(c, problem, shards, d.topology, noise_average, d.sampling, by_weight)
    s = c.scenario
    norm = c.mechanism.norm or "l2"
    declared_clip = clip_of(s, norm)
    problem = with_clip(problem, s, declared_clip)
    algorithm = cast(Algorithm, algorithm_of(c))
    if isinstance(problem, PlannedTraining) and problem.p:
        reach = 1.0 if pairs is None else pairs.reach()
        public = (problem, shards, d.topology, noise_average, reach, declared_clip, by_weight)
        algorithm = with_centring(algorithm, s.privacy, s.algorithm.rounds, *public)
    if isinstance(algorithm, AdaSsp) and isinstance(problem, Training):
        algorithm = with_statistics(algorithm, s, problem, shards, noise_average, declared_clip, by_weight)
    p, q = problem.p, problem.q
    matrices = [c.width for c in algorithm.releases(p, q).values() if c.width > max(p, q)]
    check_message(s.algorithm.kind, sum(matrices), p, q)
    if s.privacy.guarantee == "as_published" and isinstance(algorithm, Claiming):
        algorithm = algorithm.for_problem(problem, by_channel(s.privacy.box), shards.l1)
    clip = Clip(norm if d.is_private else "l2")
    if s.privacy.guarantee == "certified":
        clip = declared_clip
        for t in {int(np.argmin(share.series(s.algorithm.rounds))) for _, share in clip.shares}:
            # Refuse bounds that underflow in float64.
            clip.at(t)
    r = Resolved(
        **{**vars(d), "components": c},
        shards=shards,
        elsewhere=elsewhere,
        problem=problem,
        algorithm=algorithm,
        channels=algorithm.releases(problem.p, problem.q),
        clip=clip,
        pairs=pairs,
        factor=time_factor_of(d, counts),
        not_centred=not_centred,
        weights=weights,
    )
    terms = [term for channel in r.channels.values() for term in channel.terms]
    check_terms(components, terms)
    refuse(r, _REFUSALS)
    return r


def _setup_of(c: Components) -> Setup:
    """Build the parts of a gossip scenario that need no record."""
    s, full = c.scenario, c.topology.make()
    topology = full
    if c.algorithm.network == "pooled" or s.topology.pooled:
        topology = build_topology("complete", 1, {})
    elif c.algorithm.network == "isolated":
        topology = build_topology("isolated", full.n_agents, {})
    # Names of the records' agents are names of the graph's agents, unless the graph has names.
    partition = s.problem.partition
    names = agent_names(partition.agents) if isinstance(partition, Partition) else ()
    if (members := s.problem.members) is not None:
        names = agent_names([(names or range(s.problem.parts or 0))[k] for k in members])
    if len(names) == topology.n_agents and not agent_names(topology.labels):
        topology = replace(topology, labels=names)
    return Setup(
        components=c,
        declared_topology=full,
        topology=topology,
        network=public_network(topology, s.public_seed),
        sampling=sampling_of(s),
        unit=unit_of(s.privacy.unit, s.privacy.neighbours),
        mechanism=NO_NOISE if s.privacy.guarantee == "none" else c.mechanism,
    )


def averaged_noises(topology: Topology) -> int:
    """Count the agents whose noise is averaged: all, or 1 if agents have no edges."""
    return topology.n_agents if topology.edges.size else 1


def clipped_families(channels: Mapping[str, Channel], problem: Problem) -> list[str]:
    """List the families whose clip bounds the contribution of a record of this problem."""
    return list(dict.fromkeys(CLIP_OF_TERM[t] for c in channels.values() for t in _terms_of_records(c, problem)))


def _clip_key(r: Resolved, family: str) -> str:
    """Return the key of a family's clip. Training has only one number."""
    is_training = all(term in ONE_LEVEL for channel in r.channels.values() for term in channel.terms)
    return "clip" if is_training and family == "y" and not r.privacy.clips else f"clip.{family}"


def _terms_of_records(channel: Channel, problem: Problem) -> list[str]:
    return [t for t in channel.terms if READS_AS.get(t, t) in problem.reads_records]


def _kinds_with(fact: str) -> str:
    """Name the algorithms of this package that set a fact to a value other than its default, for a refusal."""
    default = getattr(Algorithm, fact)
    return ", ".join(
        f'"{kind}"' for kind, e in ALGORITHMS.items() if getattr(e.algorithm, fact, default) is not default
    )


def _first(keys: Mapping[str, Any]) -> str:
    """Return the first key whose value is true, or "" if there is none."""
    return next((key for key, value in keys.items() if value), "")


def unweighted_reason(d: Setup) -> str:
    """Return the reason why records cannot be weighted equally (problem.weights), or ""."""
    c, algorithm = d.components, d.components.algorithm.algorithm
    has_server = getattr(algorithm, "has_server", None) is True
    inverts_alone = getattr(algorithm, "inverts_alone", False)
    is_registered = c.problem_entry is not None and c.problem_entry.solves == "bilevel"
    reasons = {
        "it is derived for registered problems of one or two levels": not is_registered,
        f"{d.kind} inverts the Hessian of each agent, whose loss has a weight and whose regulariser has none": (
            inverts_alone
        ),
        "one server has all records, which count equally already": d.pools,
        "agents without edges average nothing": not d.topology.edges.size and not has_server,
        "local steps are clipped as one vector of an agent": c.keys.get("local_steps"),
        "the counts of a stream change": d.sampling.kind == "streaming",
        "attack and topology.aggregation treat agents equally": d.s.is_byzantine,
        "privacy.adversary states ε for agents that count equally": d.privacy.adversary != "all_messages",
        'guarantee = "as_published" runs the protocol of a paper': d.privacy.guarantee == "as_published",
        "run.agent_scores are means over agents": d.s.run.agent_scores,
    }
    return _first(reasons)


# Rows that need no record. A row may rely on those before it.
_BEFORE_RECORDS: tuple[Refusal[Setup], ...] = (
    # Privacy: papers as published.
    Refusal(
        lambda d: d.privacy.guarantee == "as_published" and d.privacy.mechanism_kind != LAPLACE.name,
        "privacy.mechanism",
        'the paper\'s protocol uses Laplace noise, and "as_published" accepts no other',
        'use "laplace", or guarantee = "certified"',
    ),
    Refusal(
        lambda d: (
            d.privacy.guarantee == "as_published"
            and _first(
                {
                    "privacy.epsilon": d.privacy.epsilon is not None,
                    "privacy.clip": d.privacy.clip,
                    d.unit_key: d.unit != RECORD,
                    "privacy.correlation": d.privacy.correlation,
                    "algorithm.protocol": d.components.keys.get("protocol") == "private",
                    "topology.over_time, drop, offline, delay": d.declared_topology.over_time,
                    "topology.compression": d.s.topology.compression,
                }
            )
        ),
        "{it}",
        'guarantee = "as_published" runs the protocol and the noise of the paper, for one replaced record and a '
        "constant network",
        'remove it, or use guarantee = "certified"',
    ),
    Refusal(
        lambda d: d.s.problem.weights == "records" and unweighted_reason(d),
        "problem.weights",
        '{it} (got "records")',
        "remove it",
    ),
    # Privacy: threat model and unit.
    Refusal(
        lambda d: d.privacy.colluders >= d.declared_topology.n_agents,
        "privacy.colluders",
        "too many colluders, so ε protects no agent (got {of.privacy.colluders} colluders of "
        "{of.declared_topology.n_agents} agents)",
        "set fewer colluders than agents",
    ),
    Refusal(
        lambda d: d.is_private and d.unit.zeroed and not d.components.algorithm.proved,
        "privacy.neighbours",
        '"zero_out" is derived for algorithms of this package, not for {of.kind}',
        'use "replace"',
    ),
    Refusal(
        lambda d: d.is_private and d.unit.zeroed and d.unit.records is not None and d.sampling.kind == "fixed_batch",
        "privacy.neighbours",
        '"zero_out" is not supported for batches of fixed size, where a record that is not drawn is replaced by '
        "another one",
        'use "replace", or another problem.sampling',
    ),
    # Privacy: samples.
    Refusal(
        lambda d: d.sampling.kind == "poisson" and d.is_private and (d.mechanism != GAUSSIAN or d.unit.records is None),
        "problem.sampling",
        "Poisson samples are accounted under Gaussian noise only, for records and groups of records, not for an agent",
        'set privacy.mechanism = "gaussian" and remove privacy.unit, or use "full"',
    ),
    Refusal(
        lambda d: d.sampling.kind == "cyclic" and d.is_private and d.correlation.over_rounds is None,
        "problem.sampling",
        "cyclic batches require noise correlated over rounds, where one band is independent noise",
        'set privacy.correlation, for example to {{ over_rounds = 1 }}, or use "full"',
    ),
    # Privacy: correlated noise (docs/proofs/40).
    Refusal(
        lambda d: d.correlation is not _INDEPENDENT and d.mechanism != GAUSSIAN,
        "privacy.correlation",
        "sums of correlated noise are accounted under Gaussian noise only",
        'remove it, or use mechanism = "gaussian"',
    ),
    Refusal(
        lambda d: d.correlation.over_rounds is not None and d.sampling.kind not in ("full", "cyclic"),
        "privacy.correlation.over_rounds",
        "not supported with secret samples, which correlated noise would reveal in later rounds (got "
        "problem.sampling {of.sampling.kind})",
        'remove it, or use problem.sampling.kind = "cyclic"',
    ),
    Refusal(
        lambda d: (
            not isinstance(factor := d.correlation.over_rounds, int | str | None)
            and {d.s.algorithm.rounds} != {len(factor), *map(len, factor)}
            and f"{len(factor)} lines"
        ),
        OVER_ROUNDS,
        "the factor has the wrong shape (got {it}, expected {of.s.algorithm.rounds} lines of as many numbers)",
        "use one line and one column for each round",
    ),
    Refusal(
        lambda d: d.correlation.between_agents and d.correlation.over_rounds is not None and d.network.over_time,
        "privacy.correlation",
        "pairwise noise on a changing network cannot be correlated over rounds, since its scale changes with the edges",
        "remove it, or use a constant network",
    ),
    Refusal(
        lambda d: d.correlation.between_agents and d.s.problem.manifest is not None,
        "privacy.correlation",
        "not supported with problem.manifest, since neighbours do not share the secret noise keys of agents",
        "remove it, or use one scenario with all records",
    ),
    Refusal(
        # The first agent without a neighbour to share noise with.
        lambda d: (
            d.correlation.between_agents
            and (d.correlation.between_agents != "zero_sum" or d.network.n_agents == 1)
            and next((f"agent {k}" for k in np.setdiff1d(np.arange(d.network.n_agents), d.network.links())), "")
        ),
        "privacy.correlation",
        "{it} has no neighbour to share noise with, so its independent noise would set the scale for all agents",
        "remove it, or add an edge",
    ),
    Refusal(
        lambda d: (
            d.correlation.between_agents
            and _first(
                {
                    name: table.decay_per_agent or isinstance(table.scale, list) or isinstance(table.decay, list)
                    for name in ("x", "y", "z")
                    if (table := d.privacy.noise(name)) is not None
                }
            )
        ),
        "privacy.{it}",
        "not supported with correlated noise if it differs between agents",
        "set one scale and one decay for all",
    ),
    Refusal(
        lambda d: (
            d.correlation.between_agents == "optimised"
            and (
                d.correlation.ratio
                or (d.network.over_time is not None and d.network.over_time.kind != "fixed")
                or d.privacy.colluders >= len(MOST_FOR_SCALES)
                or d.network.n_agents > MOST_FOR_SCALES[d.privacy.colluders]
            )
        ),
        "privacy.correlation",
        f'"optimised" requires a constant network of at most {MOST_FOR_SCALES[0]} agents, or '
        f"{MOST_FOR_SCALES[1]} against one colluder, and no ratio",
        'remove ratio, or use between_agents = "pairwise"',
    ),
    Refusal(
        lambda d: (
            d.correlation.between_agents in ("pairwise", "zero_sum")
            and d.correlation.ratio is None
            and (d.network.over_time is not None or d.network.n_agents > MOST_FOR_RATIO)
        ),
        "privacy.correlation.ratio",
        f"missing, and required on changing networks and with more than {MOST_FOR_RATIO} agents",
        "set it, for example ratio = 2.0",
    ),
    # Networks.
    Refusal(
        lambda d: d.topology.over_time is None and d.declared_topology.over_time,
        "topology",
        "no effect on {of.kind}, whose network has no edges",
        "remove over_time, drop, offline and delay",
    ),
    Refusal(
        lambda d: getattr(d.components.algorithm.algorithm, "passes_token", False) and d.topology.over_time,
        "topology",
        "lost or delayed messages are not supported by {of.kind}, since they would end the walk of a token",
        "remove over_time, drop, offline and delay, or use dp_dsgd",
    ),
    Refusal(
        lambda d: (
            d.pools
            and _first(
                {"problem.manifest": d.s.problem.manifest is not None, "privacy.unit": d.privacy.unit == "agent"}
            )
        ),
        "{it}",
        "one server holds the records of all agents (topology.pooled or {of.kind}), so the privacy unit "
        "would be all records",
        'remove it, or use agents that hold their records, such as those of "alone" or "federated"',
    ),
    # Problems of annexes without a coordinator.
    Refusal(
        lambda d: d.components.problem_type.make_evaluator and d.s.run.agent_scores,
        "run.agent_scores",
        "the scores of {of.components.problem.name} are not sums over agents",
        "remove it",
    ),
    Refusal(
        lambda d: d.components.problem_entry and d.s.problem.own_keys().get("positive_share") == "released",
        "problem.positive_share",
        "no participant of {of.kind} can release it for all agents",
        "set a public number",
    ),
    Refusal(
        lambda d: (
            d.privacy.guarantee == "certified"
            and d.components.mechanism.norm not in (None, *d.components.problem_type.norms)
        ),
        "privacy.mechanism",
        "{of.mechanism.description} requires gradients clipped in {of.mechanism.norm}, but "
        "{of.components.problem_type.name} problems clip in l2 only",
        'use mechanism = "gaussian"',
    ),
    # Channels.
    Refusal(
        lambda d: _first({name: not low < high for name, (low, high) in d.privacy.domain.items()}),
        "privacy.box.{it}",
        "the domain of the release is empty (expected a bound above 0 on every coordinate)",
        "set a larger bound",
    ),
)


def _noise_tables(r: Resolved) -> dict[str, Any]:
    """Return family → noise table of the families whose channels are charged."""
    return {} if r.mechanism == NO_NOISE else {f: r.privacy.noise(f) for f in dict.fromkeys(r.charged.values())}


# Rows that need the problem or the algorithm.
_REFUSALS: tuple[Refusal[Resolved], ...] = (
    Refusal(
        lambda r: (
            any(CHANGE in _terms_of_records(channel, r.problem) for channel in r.channels.values())
            and not hasattr(r.problem, "change")
            and r.components.problem.name
        ),
        "problem.kind",
        "{it} does not provide ∇_x l at two points of one record, which {of.kind} requires",
        "use another problem, for example hyper_cleaning",
    ),
    Refusal(
        lambda r: (
            r.is_private and r.unit.records is not None and getattr(strip_centring(r.algorithm), "local_steps", None)
        ),
        "algorithm.local_steps",
        "not supported for single records, since one record may change the sum of noiseless local steps without bound",
        'set privacy.unit = "agent", or remove it',
    ),
    Refusal(
        lambda r: (
            isinstance(r.algorithm, AdaSsp) and no_statistics(r.s, r.problem, r.mechanism, r.topology, r.sampling)
        ),
        "algorithm.kind",
        "{of.kind} is not supported here: {it}",
        'use "dp_dsgd"',
    ),
    # Networks.
    Refusal(
        lambda r: r.algorithm.has_server and link_keys(r.s, r.topology),
        "{it}",
        "no effect on {of.kind}, whose agents send messages to a server only",
        "remove it",
    ),
    Refusal(
        lambda r: (r.algorithm.conserves_mass or isinstance(r.algorithm, AdaSsp)) and r.privacy.domain,
        "privacy.box",
        "{of.kind} sends numerators or statistics, which a box for the model does not bound",
        "remove the box",
    ),
    Refusal(
        lambda r: not r.algorithm.has_server and r.topology.directed and not r.algorithm.conserves_mass,
        "topology",
        "{of.kind} requires an undirected graph (got the directed {of.topology.name})",
        'use algorithm.kind = "push_sum", or an undirected graph',
    ),
    Refusal(
        lambda r: (
            r.s.topology.compression is not None
            and (r.algorithm.conserves_mass or r.topology.over_time or senders_of(r.algorithm, r.network) is not None)
        ),
        "topology.compression",
        "not supported with push_sum, or if agents may miss a message",
        "remove it, or remove over_time, drop, offline and delay and use an algorithm such as dp_dsgd",
    ),
    Refusal(
        lambda r: (
            r.s.is_byzantine
            and _first(
                {
                    "topology.compression": r.s.topology.compression,
                    "topology.delay": r.s.topology.delay,
                    'run.engine = "ray"': r.s.run.engine == "ray",
                    "run.blocks": r.s.run.blocks not in (None, 1),
                    "problem.manifest": r.s.problem.manifest,
                    "privacy.adversary": r.privacy.adversary != "all_messages",
                }
            )
        ),
        "{it}",
        "not supported with attack or topology.aggregation, which require complete messages of all agents",
        "remove it, or remove attack and topology.aggregation",
    ),
    Refusal(
        lambda r: r.s.is_byzantine and (r.algorithm.has_server or r.algorithm.conserves_mass),
        "topology.aggregation",
        "not supported by {of.kind}, which forms no weighted sum of neighbours' values on an undirected graph",
        "use a gossip algorithm such as dp_dsgd",
    ),
    Refusal(
        lambda r: r.s.attack is not None and max(r.s.attack.agents) >= r.topology.n_agents,
        "attack.agents",
        "unknown agent (got {of.s.attack.agents}, expected 0 to {of.topology.n_agents} − 1)",
        "use valid agent numbers",
    ),
    Refusal(
        lambda r: r.s.attack is not None and len(set(r.s.attack.agents)) >= r.topology.n_agents,
        "attack.agents",
        "no agent is honest",
        "remove some of them",
    ),
    Refusal(
        lambda r: (
            r.algorithm.has_local_rounds
            and _first({key: getattr(r.s.topology, key) for key in ("compression", "delay")})
        ),
        "topology.{it}",
        "not supported by {of.kind}, which sends no messages in some rounds",
        "remove it",
    ),
    # Problems.
    # Privacy: unit (docs/proofs/36).
    Refusal(
        lambda r: r.is_private and r.unit != RECORD and not r.follows_from_releases and _kinds_with("memoryless"),
        "{of.unit_key}",
        "not derived for {of.kind}, only for custom algorithms and those without noiseless state ({it})",
        "remove it, or use one of these",
    ),
    Refusal(
        lambda r: r.is_private and r.unit != RECORD and r.components.problem_entry is None,
        "{of.unit_key}",
        "a custom problem is accounted for one replaced record only",
        "remove it",
    ),
    Refusal(
        lambda r: (
            r.is_private
            and r.unit.records != 1
            and len(
                {
                    split_read(t, r.problem.reads_records)
                    for c in r.channels.values()
                    for t in _terms_of_records(c, r.problem)
                }
            )
            > 1
        ),
        "privacy.unit",
        "not derived for {of.kind}, whose releases read train and validation records",
        'use unit = "record", or a problem of one level',
    ),
    # Privacy: samples.
    Refusal(
        lambda r: (
            r.sampling.kind == "poisson"
            and (not r.one_mean or r.algorithm.protocol != "released")
            and _kinds_with("one_mean")
        ),
        "problem.sampling",
        "Poisson samples are not accounted for {of.kind}, only for {it}",
        'use one of these, or "fixed_batch"',
    ),
    # Privacy: correlated noise (docs/proofs/40).
    Refusal(
        lambda r: r.correlation is not _INDEPENDENT and not r.follows_from_releases and _kinds_with("memoryless"),
        "privacy.correlation",
        "not supported by {of.kind} with {of.algorithm.protocol} states, whose queries may depend on more "
        "than releases",
        "remove it, or use released states of one of {it}, or a custom algorithm",
    ),
    Refusal(
        # An absence is public before the round.
        lambda r: (
            r.correlation.between_agents and senders_of(r.algorithm, r.network._replace(over_time=None)) is not None
        ),
        "privacy.correlation",
        "not supported by {of.kind}, where an agent may send nothing and the noise of its neighbours would not cancel",
        "remove it, or use dp_dsgd",
    ),
    Refusal(
        lambda r: (
            r.correlation.over_rounds is not None
            and (
                not r.components.algorithm.proved
                or r.algorithm.releases_per_round != 1
                or (r.sampling.kind == "cyclic" and not r.one_mean)
                or senders_of(r.algorithm, r.network) is not None
            )
        ),
        "privacy.correlation.over_rounds",
        "not supported by {of.kind} on this network, since every agent must make one release of one batch in "
        "every round",
        "remove it, or use dp_dsgd without local steps on a network where all agents send",
    ),
    # Privacy: clips and noise.
    Refusal(
        lambda r: _first({channel: channel not in r.channels for channel in r.privacy.domain}),
        "privacy.box.{it}",
        "{of.kind} makes no such release",
        "remove it",
    ),
    Refusal(
        lambda r: (
            r.privacy.guarantee == "certified"
            and _first({_clip_key(r, f): f not in r.privacy.clips for f in clipped_families(r.channels, r.problem)})
        ),
        "privacy.{it}",
        "missing, and required to bound the contribution of every record",
        "set it, for example {it} = 1.0",
    ),
    Refusal(
        lambda r: r.privacy.epsilon is not None and r.privacy.noise_multiplier is not None,
        "privacy.noise_multiplier",
        "cannot be combined with epsilon, since each determines the other (got {of.privacy.noise_multiplier} "
        "and epsilon = {of.privacy.epsilon})",
        "remove one of the two: privacy.epsilon=null removes epsilon",
    ),
    Refusal(
        lambda r: _first(
            {
                family: [r.privacy.epsilon, r.privacy.noise_multiplier, getattr(table, "scale", None)].count(None) != 2
                for family, table in _noise_tables(r).items()
            }
        ),
        "privacy.{it}.scale",
        "noise must be set in exactly one way for each channel that reads records (got epsilon = "
        "{of.privacy.epsilon}, noise_multiplier = {of.privacy.noise_multiplier})",
        "set exactly one of privacy.epsilon, privacy.noise_multiplier, and a noise scale for every such channel",
    ),
    Refusal(
        lambda r: next(
            (
                (f"{family}.{key}", len(values))
                for family, table in _noise_tables(r).items()
                for key in ("scale", "decay")
                if isinstance(values := getattr(table, key, None), list) and len(values) != r.topology.n_agents
            ),
            None,
        ),
        "privacy.{it[0]}",
        "wrong number of values (got {it[1]}, expected one for each of {of.topology.n_agents} agents)",
        "set one value for each agent, or one for all",
    ),
    Refusal(
        lambda r: r.is_private and r.privacy.epsilon is not None and r.privacy.delta == 0.0 and not r.mechanism.pure,
        "privacy.delta",
        "{of.mechanism.description} gives no pure guarantee",
        'use a delta above 0, for example 1e-5, or mechanism = "laplace"',
    ),
)
