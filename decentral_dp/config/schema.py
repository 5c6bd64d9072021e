"""Tables of a scenario: keys, types and ranges. Unknown keys raise InputError, and values are not converted silently.

The parameters of a problem's constructor are further keys of [problem], and the fields of an algorithm's dataclass are
further keys of [algorithm] (`table_of`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    create_model,
    field_validator,
)

from decentral_dp.algorithms.entry import Entry as AlgorithmEntry
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import DEFAULT_DELTA
from decentral_dp.data.columns import ColumnRules
from decentral_dp.data.dataset import label_key
from decentral_dp.data.tables import USUAL_CSV, CsvFormat, DeclaredColumns, csv_format
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.tables import (
    Channel,
    Checks,
    Count,
    Decay,
    Finite,
    KindTable,
    Line,
    NonNegative,
    Points,
    Positive,
    Seed,
    Share,
    Table,
    Target,
)
from decentral_dp.models.build import ModelTable
from decentral_dp.privacy.pair_noise import LEAST, MOST
from decentral_dp.privacy.secret import Secret
from decentral_dp.problems.entry import ProblemEntry
from decentral_dp.topology.byzantine import AGGREGATIONS, STRENGTHS
from decentral_dp.topology.compression import KINDS as COMPRESSORS
from decentral_dp.user_code import in_module, module_file


class Partition(KindTable):
    """Partition of the records over the agents."""

    noun = "partition"
    needed = MappingProxyType({"by_class": ["share"], "dirichlet": ["alpha"], "column": ["name"]})
    optional = MappingProxyType({"column": ["agents"]})

    kind: Literal["iid", "by_class", "dirichlet", "column"]
    """The rule: "iid" at random; "by_class" (share) and "dirichlet" (alpha) by labels; "column" (name) by a column of
    the data."""

    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Read by "by_class": share of a class that one agent holds, from 0 to 1. Other agents share the rest equally."""

    # Dirichlet draws overflow far outside this range.
    alpha: Annotated[float, Field(ge=1e-6, le=1e6)] | None = None
    """Read by "dirichlet": concentration, from 1e-6 to 1e6. If it is small, each agent has few classes."""

    name: str | None = None
    """Read by "column": the column of the data file with the agent of each record, a number from 0 or a name."""

    agents: Annotated[list[int | str], Field(min_length=1)] | None = None
    """Read by "column": the names of the agents in that column, in the order of the topology. Records of other agents
    are refused. Default: numbers from 0."""


class Synthetic(Table):
    """Sizes of synthetic data."""

    dimension: Count | None = None
    """Number of features of each record: 200 by default, 123 for synthetic_census as in a9a. Read by the synthetic
    families."""

    records: Count | None = None
    """Number of train and validation records per agent, 200 by default. For environments: trajectories per agent."""

    test_records: Count | None = None
    """Number of test records of all agents, 2000 by default. For environments: trajectories."""

    separation: NonNegative | None = None
    """Distance of the two class means in standard deviations, 2 by default. Read by synthetic_classification."""

    relevant: Count | None = None
    """Number of randomly chosen features in which the class means differ, all by default. Read by
    synthetic_classification."""

    steps: Count | None = None
    """Largest number of steps of a trajectory. Read by environments."""


class ConstructionTable(Table):
    """Selection of train records by their labels, after the test split, by at most one of share, keep and tail."""

    positive: Annotated[list[int | float | str], Field(min_length=1)] | None = None
    """Labels that become class 1. All other labels become class 0."""

    share: Share | None = None
    """Share of positive records among the train records that are kept."""

    keep: Annotated[dict[str, Count], Field(min_length=1)] | None = None
    """Class → number of its last train records that are kept. Other classes keep all."""

    tail: Share | None = None
    """Long tail of classes: the share tail^(k/(K−1)) of the train records of class k is kept, k = 0, …, K − 1."""

    checks: ClassVar[Checks] = {
        "expected one of share, keep and tail, or positive with one of the others": lambda table: (
            (table.share, table.keep, table.tail).count(None) < 2 or not table.model_fields_set
        )
    }


class SamplingTable(KindTable):
    """Sampling of the records that a round reads."""

    noun = "sampling"
    needed = MappingProxyType(
        {"streaming": ["batch_size"], "fixed_batch": ["batch_size"], "cyclic": ["batch_size"], "poisson": ["rate"]}
    )
    optional = MappingProxyType({"streaming": ["warm_start"]})

    kind: Literal["streaming", "full", "fixed_batch", "poisson", "cyclic"]
    """ "full": every record in every round; "fixed_batch": a fresh sample without replacement in each round; "poisson":
    each record with probability rate in each round, secretly; "cyclic": the next records of a public cyclic order;
    "streaming": records arrive round by round."""

    batch_size: Count | None = None
    """Records per agent and round. Read by fixed_batch, cyclic, and streaming (new records)."""

    warm_start: Annotated[int, Field(ge=0)] = 0
    """Records of each agent before the first round. Read by streaming."""

    rate: Share | None = None
    """Sampling rate. Read by poisson."""


class OwnKeysTable(Table):
    """Table with the keys of its kind in addition to those of every kind.

    Keys of a registered kind are checked by `load_scenario`, those of a custom kind by `resolve`.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str
    """Name of the component."""

    def own_keys(self) -> dict[str, Any]:
        """Return the keys of the kind that are set, with their values."""
        return {key: value for key, value in (self.model_extra or {}).items() if value is not None}


class ProblemTable(OwnKeysTable):
    """Table [problem]: the objective and its records."""

    kind: str
    """The objective: a registered problem, or "module:Name". `list problems` lists them."""

    data: str
    """The records: a bundled data set, the path of a .csv, .npz or .parquet file, "openml:NAME" or "openml:NUMBER", or
    "module:function". With manifest: the path of every agent's file, such as "shards/agent-{agent}.npz"."""

    manifest: str | None = None
    """Path of a public manifest if each agent reads its own file. Refused by algorithms that hold all records in one
    place."""

    separator: str | None = None
    """Separator of the cells of a CSV file, a comma by default. A tab is "\\t"."""

    decimal: str | None = None
    """Decimal mark of a CSV file, a full stop by default."""

    encoding: str | None = None
    """Encoding of a CSV file, such as "latin-1" or "utf-16". Default: UTF-8."""

    label: str | None = None
    """Name of the label column of a .csv or .parquet file."""

    classes: list[int | float | str] | None = None
    """All possible labels, in order; [] if the label is a number. A certified run needs them if the data do not declare
    them."""

    columns: ColumnRules | None = None
    """Public rules that turn columns of words, dates, skewed numbers and missing values into features."""

    partition: Literal["iid"] | Partition | Annotated[str, Field(pattern=r"^[\w.]+:\w+$")] | None = None
    """Partition of the records over the agents: "iid", a table, or "module:function". Default: the agent column of the
    data, otherwise "iid"."""

    parts: Count | None = None
    """Number of parts of the partition if the agents hold only some of them (`members`). Default: the number of
    agents."""

    members: list[int] | None = None
    """Ascending numbers of the parts that the agents hold. The run does not read the train records of other parts.
    Default: all parts."""

    validation: Share | str | None = None
    """Share of each agent's records for the upper level, or the name of the split column of the data file. Default: the
    split column of the data, otherwise 0.5. Read by bilevel problems."""

    test: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of test records, 0.2 by default. Refused if the data have a test set."""

    scale: str | dict[str, list[float] | dict[str, float | bool]] = "none"
    """Scaling of features to [−1, 1] by public ranges: "none"; "public_ranges" for shipped ranges; or feature →
    [low, high]."""

    normalise: Literal["none", "l1", "l2", "box"] = "none"
    """Norm in which every record is scaled to at most 1: "l1", "l2", "box" for each feature, or "none"."""

    sampling: Literal["full"] | SamplingTable = "full"
    """Sampling of records in a round: "full", or a table. Read by gossip algorithms."""

    label_range: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    """Public range [low, high] of numeric labels: they are clipped to it and scaled to [−1, 1]. Scores are in the unit
    of the labels."""

    construction: ConstructionTable | None = None
    """Selection of train records by their labels."""

    weights: Literal["sites", "records"] = "sites"
    """Weights of the agents in the objective: "sites" weights them equally, so that the agent with the fewest records
    has the most noise. "records" weights every record equally: agent i has the weight m·N_i/N, by public counts, and
    the noise of an even partition. At two levels each split has its weights. Use it if the counts differ by more than a
    factor of 1.5. Read by gossip algorithms."""

    model: ModelTable | None = None
    """Model of a problem that trains one. Default: linear."""

    synthetic: Synthetic = Synthetic()
    """Sizes of synthetic data. Read by the synthetic families and environments."""

    seed: Seed | None = None
    """Public seed of partition, split, synthetic data and first weights. Default: the seed of the scenario."""

    checks: ClassVar[Checks] = {
        "members: expected ascending numbers below parts. Fix: sort them, and set parts": lambda table: (
            table.members is not None
            and table.members != [k for k in sorted(set(table.members)) if 0 <= k < (table.parts or 0)]
        ),
        "parts: differs from the number of partition.agents. Fix: name every part": lambda table: (
            table.parts not in (None, len(getattr(table.partition, "agents", None) or range(table.parts or 0)))
        ),
    }

    @field_validator("classes", mode="before")
    @classmethod
    def _classes_as_numbers(cls, classes: Any) -> Any:
        """Convert false and true to 0 and 1, as in a file."""
        if not isinstance(classes, list):
            return classes
        if classes and len({label_key(label) for label in classes}) < max(len(classes), 2):
            raise ValueError(
                f"too few labels (got {classes}, expected at least two distinct labels, or [] for a numeric target)"
            )
        return [int(label) if isinstance(label, bool) else label for label in classes]


def declared_columns(table: ProblemTable) -> DeclaredColumns:
    """Return the declarations about the columns of a table of records."""
    owner = table.partition if isinstance(table.partition, Partition) else None
    split = table.validation if isinstance(table.validation, str) else None
    name, agents = (None, None) if owner is None else (owner.name, owner.agents)
    return DeclaredColumns(
        table.label or "", name, split, table.columns, agents, csv_of(table) or USUAL_CSV, table.classes
    )


def csv_of(table: ProblemTable) -> CsvFormat | None:
    """Return the declared format of a CSV file, or None. Raises InputError."""
    keys = (table.separator, table.decimal, table.encoding)
    return None if keys == (None, None, None) else csv_format(*keys)


class Schedule(Table):
    """Learning rate, or clipping norm, of scale/(t+1)^decay · f(t) in round t."""

    scale: NonNegative
    """Value in round 0, without points. Above 0 for a clipping norm."""

    decay: Decay = 0.0
    """Exponent of the decay over rounds; 0 (the default) is constant."""

    points: Points | None = None
    """Rounds and factors of f, such as [[0, 0.1], [50, 1.0], [500, 0.1]]: linear between two points, constant before
    the first and after the last. Default: f = 1."""


class DomainTable(Table):
    """Domain of x, a box, for algorithms of a trusted coordinator."""

    low: Finite
    """Lower end of every coordinate."""

    high: Finite
    """Upper end of every coordinate."""

    checks: ClassVar[Checks] = {"the box has no interior; set low < high": lambda box: not box.low < box.high}


class AlgorithmTable(OwnKeysTable):
    """Table [algorithm]: the algorithm, its rounds, its start, and the fields of its dataclass.

    `decentral-dp list KIND` describes these fields. Other keys raise InputError.
    """

    kind: str
    """a registered algorithm, or module:Name"""

    rounds: Count
    """number of rounds [rounds]"""

    init: dict[Channel, Finite] = {}
    """variable → constant initial value; 0 by default"""


def _constant(value: Any) -> Any:
    """Return the schedule of a number, and anything else unchanged."""
    return {"scale": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


_TABLE_TYPES = {
    StepSize: Annotated[Schedule, BeforeValidator(_constant, json_schema_input_type=NonNegative | Schedule)],
    Mapping: DomainTable,
}


def own_types(entry: ProblemEntry | AlgorithmEntry) -> dict[str, Any]:
    """Return the types of the keys that a registered problem or algorithm declares."""
    if isinstance(entry, ProblemEntry):
        return {key.name: key.type for key in entry.keys}
    return {option.key: _TABLE_TYPES.get(option.type, option.pydantic_type) for option in entry.keys}


def table_of(entry: ProblemEntry | AlgorithmEntry) -> type[OwnKeysTable]:
    """Return the table of a registered problem or algorithm, with the keys that it declares.

    If a key is missing, `build` raises an error with an example.
    """
    base: type[OwnKeysTable] = ProblemTable if isinstance(entry, ProblemEntry) else AlgorithmTable
    own_fields: dict[str, Any] = {
        k: (kind | None, None) for k, kind in own_types(entry).items() if k not in base.model_fields
    }
    return create_model(base.__name__, __base__=base, **own_fields)


def common_table(table: OwnKeysTable) -> OwnKeysTable:
    """Convert a table of `table_of` to its base class, which can be sent to other processes."""
    base = ProblemTable if isinstance(table, ProblemTable) else AlgorithmTable
    values = {name: getattr(table, name) for name in type(table).model_fields} | (table.model_extra or {})
    table_values = {key: value for key, value in values.items() if key in base.model_fields or value is not None}
    return base.model_construct(table.model_fields_set, **table_values)


# (table, …, key) → absolute path of the file in the value.
Files: TypeAlias = Mapping[tuple[str, ...], Path]


class RunTable(Table):
    """Table [run]: engine and evaluation."""

    engine: Literal["local", "ray"] = "local"
    """ "local": one process; "ray": agents in actors of the Ray cluster at RAY_ADDRESS, or of a new cluster on
    this machine. Both release the same values."""

    place: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Ray resource of the machine for an agent's actor, such as "site-{agent}". Read by ray."""

    agents_per_actor: Count | Literal["auto"] = "auto"
    """Number of agents per actor. "auto": one actor per core of the cluster, or one agent per actor if `place` or
    `problem.manifest` is set. Read by ray."""

    blocks: Count | None = None
    """Number of blocks of agents that are computed together. Default: one, or more if the weights are larger than the
    processor's cache. Released values do not depend on it. Read by local."""

    evaluate_every: Count | None = None
    """Rounds between two evaluations. Default: 10, or more for at most 30 evaluations. The first and the last round are
    always evaluated."""

    measures: Annotated[list[str], Field(min_length=1)] | None = None
    """Metrics that are evaluated, such as ["test_auc", "lower_loss"]. Default: all, those of probabilities only for
    one-level training. `list measures` lists them."""

    average: Count | Annotated[float, Field(gt=0.0, lt=1.0)] = 1
    """Tail average: number of last released values whose mean is evaluated and published, or a share of the rounds,
    such as 0.5. Default: the last value. Read by gossip algorithms."""

    keep_releases: bool = False
    """Whether released values are written to releases.parquet. Read by runs with a folder."""

    agent_scores: bool = False
    """Whether agents send scores of their records, without noise. Read with problem.manifest."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Device of torch: "cpu" or "cuda". Read by custom torch losses and by models of minimax problems. Bilevel problems
    clip on the CPU, and all noise is drawn there."""

    @property
    def agents_per_block(self) -> int | None:
        """Number of agents per actor; None if `blocks` sets the blocks."""
        return self.agents_per_actor if self.engine == "ray" and self.agents_per_actor != "auto" else None


# Name of the Python objects of a scenario, for errors.
OBJECTS = "the records and other objects that a scenario was given"


GroupSize = Annotated[int, Field(ge=1, le=10**9)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class CustomKindTable(KindTable):
    """Table whose kind may be custom, "module:Name", with further keys as its options.

    Args:
        registered: names of the registered kinds.
    """

    model_config = ConfigDict(extra="allow")

    registered: ClassVar[Collection[str]]

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        if in_module(self.kind) is not None:
            return
        if self.kind not in self.registered:
            kinds = ", ".join(map(quoted, self.registered))
            yield f'kind: got {quoted(self.kind)}, expected {kinds} or "module:Name"'
        for key in self.model_extra or {}:
            yield f'{key}: does not apply to "{self.kind}" {self.noun}. Fix: remove it'


class CompressionTable(CustomKindTable):
    """Compression of noisy messages. Further keys are options of a custom compressor."""

    noun = "compression"
    registered = COMPRESSORS
    needed = MappingProxyType({"top_k": ["share"], "random_k": ["share"], "qsgd": ["levels"]})

    kind: str
    """Compressor of the difference to the previous message. "top_k": its largest entries; "random_k": entries by public
    random draws; "qsgd": random rounding of each entry to a few levels; "sign": signs and one scale; or a custom one,
    "module:Name"."""

    share: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of the entries that are sent. Read by top_k and random_k."""

    levels: Annotated[int, Field(ge=1, le=2**16)] | None = None
    """Number of levels above 0. Read by qsgd."""


class AggregationTable(CustomKindTable):
    """Robust aggregation of neighbours' messages. Further keys are options of a custom rule."""

    noun = "aggregation"
    registered = AGGREGATIONS
    needed = MappingProxyType({"clipped_gossip": ["radius"]})
    optional = MappingProxyType({"self_centred_clipping": ["trim"], "trimmed_mean": ["trim"]})

    kind: str
    """ "clipped_gossip": differences from the agent's own value, clipped to a radius; "self_centred_clipping": the
    same, clipped to the distance of the farthest neighbour except `trim` of them; "trimmed_mean": without the largest
    and smallest values; "median"; or a custom rule, "module:Name"."""

    radius: Positive | None = None
    """Largest ℓ2 distance of a neighbour's message from the agent's own value. Read by clipped_gossip."""

    trim: Annotated[int, Field(ge=0)] = 1
    """Number of wrong neighbours. Read by self_centred_clipping and trimmed_mean."""


class AttackTable(CustomKindTable):
    """Table [attack]: Byzantine agents, which send wrong messages. Further keys are options of a custom attack."""

    noun = "attack"
    registered = STRENGTHS

    agents: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """Numbers of the attackers, from 0. Metrics are those of the other agents."""

    kind: str
    """ "sign_flip": −s times the attacker's release; "noise": this release plus noise of standard deviation s; "alie":
    the mean of the honest releases minus s standard deviations; "ipm": −s times their mean; or a custom attack,
    "module:Name"."""

    strength: Positive | None = None
    """Strength s of the attack. Default: 1 for sign_flip and noise, 1.5 for alie, 0.5 for ipm."""

    @property
    def options(self) -> dict[str, Any]:
        """Options of a custom attack."""
        return self.model_dump(exclude={"agents", "kind"}, exclude_none=True)


class TopologyTable(Table):
    """Table [topology]: the graph, its mixing weights, and faults of the network."""

    model_config = ConfigDict(extra="allow")

    kind: str | None = None
    """A generator of graphs by name, or "module:function"; its parameters are further keys. `list topologies` lists
    them. "pooled": no graph; one server, which all agents trust, holds all records. Read by gossip algorithms."""

    file: str | None = None
    """A named network such as "abilene", or the path of a graph file (.graphml, .gml, .json, .csv, .npy, .npz), instead
    of kind."""

    agents: Count | None = None
    """Number of agents. For a file, or a function without this parameter, it is only checked."""

    weights: str | dict[str, Any] | None = None
    """Rule for the mixing weights, by name or as a table. Default: "metropolis", and "out_degree" for a directed graph.
    `list weights` lists them."""

    directed: bool | None = None
    """Whether edges are directed, from the first agent of a line or pair to the second, for push_sum. Default: as in
    the graph."""

    seed: Seed | None = None
    """Public seed of random graphs. Default: the seed of the scenario."""

    over_time: Literal["fixed", "matching", "one_peer_exponential", "resample"] | None = None
    """Time-varying network; "fixed" by default. "matching": a random matching of the edges in every round;
    "one_peer_exponential": each agent sends to one other, at distances 1, 2, 4, … in turn; "resample": a new random
    graph in every round. A function gives any other sequence of graphs. Read by gossip algorithms."""

    drop: Probability | None = None
    """Probability that a message is lost, by public random draws; 0 by default. A lost message has its privacy cost."""

    offline: Probability | None = None
    """Probability that an agent is offline in a round, and sends and receives nothing; 0 by default."""

    delay: Annotated[int, Field(ge=0)] | None = None
    """Delay of messages in rounds; 0 by default."""

    compression: CompressionTable | None = None
    """Compression of messages with error feedback; none by default. Read by gossip algorithms."""

    aggregation: AggregationTable | None = None
    """Robust aggregation against Byzantine agents, instead of weighted sums. Read by gossip algorithms."""

    @property
    def pooled(self) -> bool:
        """Whether one server holds the records of all agents."""
        return self.kind == "pooled"

    checks: ClassVar[Checks] = {
        (
            "set either kind (a generator) or file (a graph file or a named network); to replace one by the "
            'other, set the whole table, for example topology = { file = "abilene" }'
        ): lambda table: (table.kind is None) == (table.file is None),
        # A custom function may set the number of agents.
        "a generator needs agents": lambda table: (
            table.agents is None and table.kind is not None and in_module(table.kind) is None
        ),
    }


class NoiseTable(Table):
    """Noise of scale·f(t)/(t+1)^decay in round t; the decay of agent i = 1..m is decay + i·decay_per_agent.

    Lists have one value per agent. A missing scale is calibrated to the target epsilon.
    """

    scale: Positive | list[Positive] | None = None
    """Scale in round 0: the standard deviation of Gaussian noise, or the scale of Laplace noise; one number or one per
    agent. Default: calibrated to the target epsilon."""

    decay: Decay | list[Decay] = 0.0
    """Exponent of the decay over rounds; one number or one per agent."""

    decay_per_agent: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Increase of the decay per agent: i times this is added for agent i = 1..m."""

    points: Points | None = None
    """Rounds and factors of f, as those of a learning rate. The message of round t has the gradients of round t − 1."""


def _check_clip(clip: Schedule) -> Schedule:
    if clip.scale == 0.0:
        raise ValueError("clip scale out of range (got 0, expected a number above 0)")
    return clip


_ClipSchedule = Annotated[Schedule, AfterValidator(_check_clip)]


def _clip_form(value: Any) -> str:
    """Return the form of privacy.clip, so that errors mention only this form."""
    if isinstance(value, Schedule) or (
        isinstance(value, Mapping) and not value.keys().isdisjoint(Schedule.model_fields)
    ):
        return "Schedule"
    return "dict[channel]" if isinstance(value, Mapping) else "float"


# Tags are not keys (`loading._is_key`).
ClipNorms: TypeAlias = Annotated[
    Annotated[Positive, Tag("float")]
    | Annotated[_ClipSchedule, Tag("Schedule")]
    | Annotated[dict[Channel, Positive | _ClipSchedule], Tag("dict[channel]")],
    Discriminator(_clip_form),
]

# A numpy array is accepted as a list of rows.
Rows = Annotated[list[list[Finite]], BeforeValidator(lambda rows: rows.tolist() if hasattr(rows, "tolist") else rows)]


class CorrelationTable(Table):
    """Correlated Gaussian noise: pairwise between agents (DECOR), or over rounds (matrix factorisation)."""

    between_agents: Literal["pairwise", "optimised", "zero_sum"] | None = None
    """ "pairwise": two neighbours add noise of opposite sign, from a seed that only they have. "optimised": the same,
    with the scales per agent and edge that minimise the gossip error at equal ε. "zero_sum": the same for all pairs of
    agents."""

    ratio: Annotated[float, Field(ge=LEAST, le=MOST)] | None = None
    """Ratio c/σ of the standard deviation of a pair's noise to that of an agent's independent noise. Default: the ratio
    that minimises the gossip error at equal ε on a fixed network, at most 4. Not read by "optimised"."""

    over_rounds: Count | Literal["banded_square_root"] | Rows | None = None
    """Factor C⁻¹ of noise correlated over rounds; independent noise by default. "banded_square_root": C has the first
    coefficients of (1 − x)^(−1/2), where x shifts by one round, and one coefficient for each round between two reads of
    a record. A number sets this length. A custom C⁻¹ is a list of rows, one for each round; in Python it may be an
    array."""

    checks: ClassVar[Checks] = {
        'ratio needs between_agents; expected between_agents, such as "pairwise", or over_rounds': lambda table: (
            table.between_agents is None and (table.over_rounds is None or table.ratio is not None)
        )
    }


class PrivacyTable(Table):
    """Table [privacy]: the guarantee, with a target epsilon or with noise scales."""

    guarantee: Literal["certified", "as_published", "none"] = "certified"
    """ "certified": a proved upper bound on ε; "as_published": the protocol and noise of a paper, with the ε that can
    be proved; "none": no noise and no clipping."""

    mechanism: Literal["laplace", "gaussian"] | str | dict[str, Any] = "laplace"
    """Noise mechanism of gossip algorithms: "laplace", "gaussian", or a custom one as "module:Name" or as a table with
    kind and options. Algorithms of a coordinator set theirs."""

    unit: Literal["record", "agent"] | GroupSize = "record"
    """Privacy unit: "record", one record of an agent; a number k, any k of its records; "agent", all its records. Read
    by gossip algorithms without noiseless state."""

    neighbours: Literal["replace", "zero_out"] = "replace"
    """Adjacency of neighbouring data sets: "replace", the unit is replaced by another one; "zero_out", it contributes
    zero, which needs half the noise and is a weaker guarantee. Read by gossip algorithms without noiseless state."""

    adversary: Literal["all_messages", "final_models", "final_average"] = "all_messages"
    """Adversary against which epsilon holds. It observes "all_messages"; or, for dp_dsgd and ldp_single_level with
    linear models, only the "final_models" of all agents, or their "final_average"."""

    colluders: Annotated[int, Field(ge=0, le=10**6)] = 0
    """q: ε holds against an adversary that also colludes with any q agents. With "final_models" or "final_average",
    on a network that changes. Read by gossip algorithms."""

    correlation: CorrelationTable | None = None
    """Gaussian noise that is correlated between agents or over rounds; independent by default. Read by gossip
    algorithms without noiseless state."""

    epsilon: Target | None = None
    """Target ε of each agent over the whole run, for privacy.unit. It calibrates the noise. Default: noise_multiplier,
    or the scales of x, y and z, set the noise."""

    noise_multiplier: Positive | None = None
    """Noise multiplier z: a sum of clipped per-example gradients gets noise of standard deviation z times the clipping
    norm, for every adjacency. ε follows from it. Read by gossip algorithms, instead of epsilon."""

    delta: Annotated[float, Field(ge=0, lt=1)] = DEFAULT_DELTA
    """δ of the guarantee, below 1/N for N records; 1e-5 by default; 0 for pure ε."""

    clip: ClipNorms = {}
    """Clipping norm of one record's gradient: l1 for Laplace noise, l2 for Gaussian noise. For gossip algorithms also a
    schedule { scale, decay, points }, as a learning rate. A table from channels to norms for bilevel, minimax and
    coordinator algorithms, and for training with centring (x and y)."""

    box: dict[Channel, Finite] = {}
    """Variable → bound on the size of every coordinate (x: an upper bound). Released values are projected onto it, as
    post-processing; with "as_published", the arguments of gradients are. Read by gossip algorithms."""

    share: dict[Channel, Positive] = {}
    """Channel → its share of the privacy budget, relative to the others; equal by default. Read by gossip algorithms
    with a target epsilon."""

    x: NoiseTable | None = None
    """Noise of the releases of x."""

    y: NoiseTable | None = None
    """Noise of the releases of y."""

    z: NoiseTable | None = None
    """Noise of the releases of z."""

    @property
    def mechanism_kind(self) -> str:
        """Name of the mechanism, or "module:Name"."""
        return self.mechanism if isinstance(self.mechanism, str) else str(self.mechanism.get("kind"))

    @property
    def mechanism_options(self) -> dict[str, Any]:
        """Options of a custom mechanism."""
        table = {} if isinstance(self.mechanism, str) else self.mechanism
        return {key: value for key, value in table.items() if key != "kind"}

    @field_validator("mechanism")
    @classmethod
    def _check_mechanism(cls, mechanism: str | dict[str, Any]) -> str | dict[str, Any]:
        kind = mechanism if isinstance(mechanism, str) else mechanism.get("kind")
        is_registered = kind in ("laplace", "gaussian")
        if (is_registered and len(mechanism) > 1 and kind != mechanism) or not (is_registered or in_module(str(kind))):
            raise ValueError(
                f'got {quoted(mechanism)}, expected "laplace" or "gaussian", or a custom one as "module:Name" or as a '
                "table with kind and options"
            )
        return mechanism

    @property
    def clips(self) -> dict[Channel, float | Schedule]:
        """Clipping norm of each channel. A single norm applies to the gradient of training, y."""
        return dict(self.clip) if isinstance(self.clip, dict) else {"y": self.clip}

    @property
    def domain(self) -> dict[str, tuple[float, float]]:
        """Range (low, high) of released values by channel; empty if boxes bound the arguments of gradients."""
        if self.guarantee == "as_published":
            return {}
        return {c: (-math.inf if c == "x" else -bound, bound) for c, bound in by_channel(self.box).items()}

    def noise(self, channel: str) -> NoiseTable | None:
        """Return the noise table of a channel."""
        table: NoiseTable | None = getattr(self, channel)
        return table


class Scenario(Table):
    """Complete scenario of one experiment. Without `seed`, the noise is secret.

    Example:
        >>> import decentral_dp
        >>> decentral_dp.load("quadratic").topology.kind
        'hypercube'
    """

    # The schema omits the example of the docstring.
    model_config = ConfigDict(
        json_schema_extra={"description": "One experiment, complete. Without `seed` the noise is secret."}
    )

    title: Line = ""
    """Title in one line."""

    description: str = ""
    """Purpose, and how the public parameters were chosen."""

    seed: Seed | None = None
    """Seed of all noise and of public random draws. Without a seed the noise is secret; real records need this."""

    problem: ProblemTable
    """The objective and its records."""

    topology: TopologyTable
    """The graph of the agents."""

    algorithm: AlgorithmTable
    """The algorithm."""

    privacy: PrivacyTable = PrivacyTable()
    """The guarantee and its budget."""

    run: RunTable = RunTable()
    """Engine and evaluation."""

    attack: AttackTable | None = None
    """Byzantine agents; none by default. Read by gossip algorithms."""

    code_folders: list[str] = ["."]
    """Folders with the modules of `kind = "module:Name"`. They are searched before the working directory."""

    objects: dict[str, str] = {}
    """Components that were Python objects. A run writes them into its folder, and another run needs them again."""

    # Relative paths start in the folder of its file.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    # Component → Python object in its place (of an algorithm its entry), and the names of objects in no registry.
    _objects: Secret[dict[str, Any]] = PrivateAttr(default_factory=lambda: Secret(OBJECTS, dict[str, Any]()))
    _object_names: Mapping[str, str] = PrivateAttr(default_factory=dict)
    # "topology" and "algorithm" if they differ from those of the file, so that its title may not fit.
    _replaced_tables: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def folder(self) -> Path:
        """Folder in which relative paths start."""
        return self._folder

    @property
    def public_seed(self) -> int:
        """Seed of public random draws; it is never secret."""
        return self.seed if self.seed is not None else 0

    @property
    def is_byzantine(self) -> bool:
        """Whether messages are attacked or aggregated robustly."""
        return self.attack is not None or self.topology.aggregation is not None

    @property
    def tail_length(self) -> int:
        """Number of released values in the tail average."""
        average, rounds = self.run.average, self.algorithm.rounds
        # The share of rounds may miss a whole number by rounding.
        return average if isinstance(average, int) else max(1, math.floor(average * rounds + 1e-9))

    @property
    def records_seed(self) -> int:
        """Public seed of partition, split, synthetic data and first weights."""
        return self.problem.seed if self.problem.seed is not None else self.public_seed

    def resolve(self, path: str) -> Path:
        """Return the absolute path from the scenario's folder, or from the working directory if nothing is there.

        Args:
            path: absolute path, or path relative to either folder.

        Raises:
            InputError: the path contains a NUL character.
        """
        if "\0" in path:
            raise InputError(f"scenario: a path contains a NUL character (got {quoted(path)}). Fix: remove it.")
        path = os.path.expanduser(path)
        extra = self._folder / path
        full = os.path.abspath(extra if os.path.exists(extra) else path)
        # After a symbolic link, ".." is the parent of its target.
        return Path(os.path.realpath(extra) if os.path.exists(extra) and not os.path.exists(full) else full)

    @property
    def code_paths(self) -> list[Path]:
        """Folders of modules, in search order."""
        return [*(self._folder / Path(name).expanduser() for name in self.code_folders), Path.cwd()]

    def modules(self) -> dict[tuple[str, ...], str]:
        """Return (table, …, key) → "module:Name" of all custom components."""
        problem, mechanism = self.problem, self.privacy.mechanism
        module_of_key = {
            ("problem", "kind"): problem.kind,
            ("problem", "model"): None if problem.model is None else problem.model.kind,
            ("problem", "data"): problem.data,
            ("problem", "partition"): problem.partition,
            ("topology", "kind"): self.topology.kind,
            ("topology", "compression"): None if self.topology.compression is None else self.topology.compression.kind,
            ("topology", "aggregation"): None if self.topology.aggregation is None else self.topology.aggregation.kind,
            ("attack", "kind"): None if self.attack is None else self.attack.kind,
            ("algorithm", "kind"): self.algorithm.kind,
            ("privacy", "mechanism", *(() if isinstance(mechanism, str) else ("kind",))): self.privacy.mechanism_kind,
        }
        return {
            place: text
            for place, text in module_of_key.items()
            if isinstance(text, str) and in_module(text) is not None
        }

    def files(self) -> Files:
        """Return (table, …, key) → absolute path of all existing data files."""
        problem = self.problem
        file_of_key: dict[tuple[str, ...], Any] = {
            ("problem", "data"): problem.data if problem.data.lower().endswith((".csv", ".npz", ".parquet")) else None,
            ("problem", "manifest"): problem.manifest,
            ("topology", "file"): self.topology.file,
        }
        places = {place: self.resolve(name) for place, name in file_of_key.items() if isinstance(name, str)}
        return {place: path for place, path in places.items() if os.path.exists(path) and not path.is_dir()}

    def code_files(self) -> Files:
        """Return (table, …, key) → absolute path of the Python files of all custom components."""
        paths = {place: module_file(kind.partition(":")[0], self.code_paths) for place, kind in self.modules().items()}
        return {place: path.absolute() for place, path in paths.items() if path is not None}


def set_file(content: dict[str, Any], place: Sequence[str], value: str) -> None:
    """Set the value at (table, …, key) of a scenario's content."""
    *tables, last = place
    inner: Any = content
    for table in tables:
        inner = inner[table]
    inner[int(last) if isinstance(inner, list) else last] = value


def by_channel(table: Mapping[Channel, float | Schedule]) -> dict[str, float]:
    """Return channel → value; for a schedule, its scale."""
    return {str(channel): value.scale if isinstance(value, Schedule) else value for channel, value in table.items()}
