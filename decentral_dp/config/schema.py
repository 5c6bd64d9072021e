"""The tables of a scenario and what each key may be. Unknown keys are refused, and nothing is converted silently.

The own keys of a problem are the parameters of what makes it, those of an algorithm the fields of its dataclass.
`table_of` adds them to the keys that every problem or algorithm has.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    create_model,
    field_validator,
    model_validator,
)

from decentral_dp.algorithms.entry import Entry as AlgorithmEntry
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.data.columns import ColumnRules
from decentral_dp.data.dataset import label_key
from decentral_dp.data.tables import USUAL_CSV, CsvFormat, DeclaredColumns, csv_format
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.tables import (
    Channel,
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
from decentral_dp.user_code import in_module, module_file


class Partition(KindTable):
    """How records are dealt to agents: iid, by_class (share), dirichlet (alpha), or column (name)."""

    noun = "partition"
    needed = MappingProxyType({"by_class": ["share"], "dirichlet": ["alpha"], "column": ["name"]})
    optional = MappingProxyType({"column": ["agents"]})

    kind: Literal["iid", "by_class", "dirichlet", "column"]
    """The rule: "iid" at random; "by_class" (share), "dirichlet" (alpha), both by labels; "column" (name), as the data
    say."""

    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of by_class: the share of a class that goes to its home agent, from 0 to 1; the rest is dealt evenly."""

    # Beyond its ends it is iid in all but name, and far beyond the draws behind a Dirichlet overflow.
    alpha: Annotated[float, Field(ge=1e-6, le=1e6)] | None = None
    """Of dirichlet: concentration, from 1e-6 to 1e6; a small one gives each agent few classes."""

    name: str | None = None
    """Of column: the column of the data file with the agent of each record, numbered from 0 or by name."""

    agents: Annotated[list[int | str], Field(min_length=1)] | None = None
    """Of column: the names of the agents in that column, in the order of the topology; a record of another agent is
    refused. Left out: numbers from 0."""


class Synthetic(Table):
    """Sizes of records that are made up."""

    dimension: Count | None = None
    """Features of each record; 200 if left out, and a9a's 123 of synthetic_census. Read by the synthetic families."""

    records: Count | None = None
    """Records per agent, train and validation together (200 if left out); of environments trajectories per agent."""

    test_records: Count | None = None
    """Held-out records in all; 2000 if left out. Of environments trajectories."""

    separation: NonNegative | None = None
    """Distance of the two class means, in standard deviations; 2 if left out. Read by synthetic_classification."""

    relevant: Count | None = None
    """Features in which the class means differ, chosen at random; all if left out. Read by synthetic_classification."""

    steps: Count | None = None
    """Steps after which a trajectory is cut off. Read by environments."""


class ConstructionTable(Table):
    """Other records made of the data's own, by their labels, after test records are held out.

    One of share, keep and tail at most.
    """

    positive: Annotated[list[int | float | str], Field(min_length=1)] | None = None
    """Labels that become class 1; the others become class 0."""

    share: Share | None = None
    """So many positive train records are kept that they are this share of all train records."""

    keep: Annotated[dict[str, Count], Field(min_length=1)] | None = None
    """Class → how many of its train records are kept, the last ones; of other classes all."""

    tail: Share | None = None
    """Train records of the k-th of K classes, from 0, are kept to a share tail^(k/(K−1))."""

    @model_validator(mode="after")
    def _check_one(self) -> ConstructionTable:
        if (self.share, self.keep, self.tail).count(None) < 2 or not self.model_fields_set:
            raise ValueError("expected one of share, keep and tail, or positive beside one of the others")
        return self


class StreamTable(KindTable):
    """Which records a round reads."""

    noun = "stream"
    needed = MappingProxyType(
        {"accumulate": ["batch"], "minibatch": ["batch"], "turns": ["batch"], "poisson": ["rate"]}
    )
    optional = MappingProxyType({"accumulate": ["warm_start"]})

    kind: Literal["accumulate", "all", "minibatch", "poisson", "turns"] = "accumulate"
    """ "accumulate": records arrive round by round; "all": every record in every round; "minibatch": a fresh sample
    each round; "poisson": every record by its own secret coin in each round; "turns": the next records of a public
    order, which begins again after the last one."""

    batch: Count | None = None
    """Records per agent and round: new ones of accumulate, drawn ones of minibatch, the next ones of turns."""

    warm_start: Annotated[int, Field(ge=0)] = 0
    """Of accumulate: records that each agent has before the first round."""

    rate: Share | None = None
    """Of poisson: the probability with which a record is drawn."""


class OwnKeysTable(Table):
    """A table whose kind has keys of its own, beside the fields that every kind has.

    Those of a registered kind are checked when a scenario is loaded, those of a custom one when it is made.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str
    """What is named."""

    def own_keys(self) -> dict[str, Any]:
        """Return the keys of the kind that are given."""
        return {key: value for key, value in (self.model_extra or {}).items() if value is not None}


class ProblemTable(OwnKeysTable):
    """What is optimised, over which records."""

    kind: str
    """What is optimised: a registered problem, or "module:Name". `list problems` lists them."""

    data: str
    """The records: a bundled data set, the path of a .csv, .npz or .parquet file,
    "openml:NAME" or "openml:NUMBER", "module:function", or, beside manifest, where agents have theirs:
    "shards/agent-{agent}.npz"."""

    manifest: str | None = None
    """Path of a public manifest of records that are with their agents, each of whom reads its own file. Refused by
    algorithms that hold all records in one place."""

    separator: str | None = None
    """The character between the cells of a CSV file; a comma if left out. A tab is "\\t"."""

    decimal: str | None = None
    """The decimal mark of a CSV file; a full stop if left out."""

    encoding: str | None = None
    """The encoding of a CSV file, such as "latin-1" or "utf-16"; UTF-8 if left out."""

    label: str | None = None
    """Name of the label column of a .csv or .parquet file."""

    classes: list[int | float | str] | None = None
    """The labels that there may be, in order; [] for numbers to predict. A certified run needs them where the data do
    not declare them."""

    columns: ColumnRules | None = None
    """Public rules by which columns of words, gaps, dates and skewed numbers of a table become features."""

    partition: Literal["iid"] | Partition | Annotated[str, Field(pattern=r"^[\w.]+:\w+$")] | None = None
    """How records are dealt to agents: "iid", a table, or "module:function". Left out: by the data's own agent column,
    else "iid"."""

    validation: Share | str | None = None
    """Share of each agent's records for the upper level, or the name of the column of the data file that says it. Left
    out: the data's own split column, else 0.5. Read by bilevel problems."""

    test: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of all records that is held out; 0.2 if left out. Refused where the data have a test set of their own."""

    scale: str | dict[str, list[float] | dict[str, float | bool]] = "none"
    """How features are scaled: "none"; "public_ranges" to [−1, 1] by shipped ranges; feature → [low, high]."""

    normalise: Literal["none", "l1", "l2", "box"] = "none"
    """Every record is brought to length at most 1 in this norm: "l1", "l2", or "box" for each feature; "none" leaves
    it."""

    stream: Literal["all"] | StreamTable = "all"
    """Which records a round reads: "all", or a table. Read by gossip algorithms."""

    label_range: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    """Public range [low, high] of labels that are numbers: they are scaled to [−1, 1], and cut outside. Scores are in
    the labels' own unit."""

    construction: ConstructionTable | None = None
    """Other records made of the data's own, by their labels, after test records are held out."""

    model: ModelTable | None = None
    """The model that is trained, of problems that have one; linear if left out."""

    synthetic: Synthetic = Synthetic()
    """Sizes of records that are made up. Read by the synthetic families and environments."""

    seed: Seed | None = None
    """Public seed of partition, split, made-up records and first weights; the scenario's if left out."""

    @field_validator("classes", mode="before")
    @classmethod
    def _classes_as_numbers(cls, classes: Any) -> Any:
        """false and true are 0 and 1, as they are read in a file."""
        if not isinstance(classes, list):
            return classes
        if classes and len({label_key(label) for label in classes}) < max(len(classes), 2):
            raise ValueError(f"got {classes}, expected at least two different labels, or [] for numbers")
        return [int(label) if isinstance(label, bool) else label for label in classes]


def declared_columns(table: ProblemTable) -> DeclaredColumns:
    """What a scenario says of the columns of a table of records."""
    owner = table.partition if isinstance(table.partition, Partition) else None
    split = table.validation if isinstance(table.validation, str) else None
    name, agents = (None, None) if owner is None else (owner.name, owner.agents)
    return DeclaredColumns(table.label, name, split, table.columns, agents, csv_of(table) or USUAL_CSV, table.classes)


def csv_of(table: ProblemTable) -> CsvFormat | None:
    """How a scenario declares that its CSV file is written; None where it declares nothing. Raises InputError."""
    keys = (table.separator, table.decimal, table.encoding)
    return None if keys == (None, None, None) else csv_format(*keys)


class Schedule(Table):
    """A step size, or a clip, of scale/(t+1)^decay · f(t) in round t."""

    scale: NonNegative
    """The value of round 0, without points. That of a clip is above 0."""

    decay: Decay = 0.0
    """Exponent of the decay in rounds; constant by default."""

    points: Points | None = None
    """Rounds and factors of f, such as [[0, 0.1], [50, 1.0], [500, 0.1]]: in a straight line between two of them, and
    constant before the first and after the last. f = 1 if left out."""


class DomainTable(Table):
    """Where x may be, for algorithms of a trusted coordinator: a box."""

    low: Finite
    """Lower end of every coordinate."""

    high: Finite
    """Upper end of every coordinate."""

    @model_validator(mode="after")
    def _check_interior(self) -> DomainTable:
        if not self.low < self.high:
            raise ValueError(f"a box from {self.low:g} to {self.high:g} has no interior; give low < high")
        return self


class AlgorithmTable(OwnKeysTable):
    """Which algorithm, for how many rounds, from which constant start; and the algorithm's own keys.

    Those are the fields of its dataclass (`decentral-dp list KIND` describes them); others are refused.
    """

    kind: str
    """a registered algorithm, or module:Name"""

    rounds: Count
    """how many rounds are run [rounds]"""

    init: dict[Channel, Finite] = {}
    """variable → the constant where it starts; 0 by default"""


_TABLE_TYPES = {StepSize: Schedule, Mapping: DomainTable}


def own_types(entry: ProblemEntry | AlgorithmEntry) -> dict[str, Any]:
    """Return the keys that a registered problem or algorithm declares, with the types that pydantic checks."""
    if isinstance(entry, ProblemEntry):
        return {key.name: key.type for key in entry.keys}
    return {option.key: _TABLE_TYPES.get(option.type, option.pydantic_type) for option in entry.keys}


def table_of(entry: ProblemEntry | AlgorithmEntry) -> type[OwnKeysTable]:
    """Return the table of a registered problem or algorithm, with the keys that it declares.

    All of them may be left out here: what is missing is refused with an example when the scenario is built.
    """
    base: type[OwnKeysTable] = ProblemTable if isinstance(entry, ProblemEntry) else AlgorithmTable
    own: dict[str, Any] = {k: (kind | None, None) for k, kind in own_types(entry).items() if k not in base.model_fields}
    return create_model(base.__name__, __base__=base, **own)


def common_table(checked: OwnKeysTable) -> OwnKeysTable:
    """Return a table of `table_of` in the common class, which other processes know; own keys keep their values."""
    base = ProblemTable if isinstance(checked, ProblemTable) else AlgorithmTable
    values = {name: getattr(checked, name) for name in type(checked).model_fields} | (checked.model_extra or {})
    given = {key: value for key, value in values.items() if key in base.model_fields or value is not None}
    return base.model_construct(checked.model_fields_set, **given)


# (table, …, key) → the absolute path of the file that the value names.
Files: TypeAlias = Mapping[tuple[str, ...], Path]


class RunTable(Table):
    """Where it runs and what is evaluated."""

    engine: Literal["local", "ray"] = "local"
    """ "local": one process; "ray": agents in actors of the Ray cluster at RAY_ADDRESS, or of one that is started here.
    Both release the same values."""

    place: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Resource of the machine that an agent's actor is to be on, such as "site-{agent}". Read by ray."""

    agents_per_actor: Count | Literal["auto"] = 1
    """Agents of one actor; "auto": so many that every core of the cluster has one actor, or 1 where `place` is given.
    Read by ray."""

    blocks: Count | None = None
    """Blocks that agents are computed in; if left out one, or as many as keep large weights in the processor's cache.
    What is released does not depend on it. Read by local."""

    evaluate_every: Count = 10
    """Rounds from one evaluation to the next; the first and the last are always evaluated."""

    measures: Annotated[list[str], Field(min_length=1)] | None = None
    """Measures that are taken, such as ["test_auc", "train_loss"]; if left out all, those of probabilities only of
    training at one level. `show measures` lists them."""

    average: Count | Annotated[float, Field(gt=0.0, lt=1.0)] = 1
    """Tail average: the mean of the last so many released values is evaluated and published; 0.5: of the last half of
    the rounds. Only the last value if left out. Read by gossip algorithms."""

    keep_releases: bool = False
    """Whether released values are written, as releases.parquet. Read where a run has a folder."""

    agent_scores: bool = False
    """Whether agents send scores of their own records, which nothing protects; else such scores are left out. Read
    beside problem.manifest."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where torch computes: "cpu" or "cuda". Read by custom torch losses and by models of minimax problems; clips of
    bilevel problems and all noise stay on the processor."""

    @field_validator("measures")
    @classmethod
    def _names_in_files(cls, names: list[str] | None) -> list[str] | None:
        # So the lower loss of training at one level is called.
        return names and ["lower_loss" if name == "train_loss" else name for name in names]

    @property
    def agents_per_block(self) -> int | None:
        """Agents of one actor; None where `blocks` says how they are hosted."""
        return self.agents_per_actor if self.engine == "ray" and self.agents_per_actor != "auto" else None


# What is handed over as Python objects, in words.
OBJECTS = "the records and other objects that a scenario was given"


def _no_objects() -> Secret[dict[str, Any]]:
    return Secret(OBJECTS, {})


GroupSize = Annotated[int, Field(ge=1, le=10**9)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class CompressionTable(KindTable):
    """What of a message travels, once noise has been added."""

    noun = "compression"
    needed = MappingProxyType({"top_k": ["share"], "random_k": ["share"], "qsgd": ["levels"]})

    kind: Literal["top_k", "random_k", "qsgd", "sign"]
    """What is sent of the difference to what was heard before. "top_k": its largest entries; "random_k": some that
    public coins choose; "qsgd": all, each rounded to one of a few levels; "sign": signs, and one size."""

    share: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of the entries. Read by top_k, random_k."""

    levels: Annotated[int, Field(ge=1, le=2**16)] | None = None
    """Levels above 0. Read by qsgd."""


class TopologyTable(Table):
    """A registered generator with its parameters, or a file; and the rule for the weights."""

    model_config = ConfigDict(extra="allow")

    kind: str | None = None
    """A generator of graphs by name, or "module:function"; its parameters are keys beside it. `list topologies` lists
    them. "pooled": no graph; one server, which all agents trust, holds all records. Read by gossip algorithms."""

    file: str | None = None
    """A named network such as "abilene", or the path of a graph file (.graphml, .gml, .json, .csv, .npy, .npz), instead
    of kind."""

    agents: Count | None = None
    """Number of agents; of a file, or of a function without agents, only checked."""

    weights: str | dict[str, Any] | None = None
    """Rule for the weights of gossip, by name or as a table; "metropolis" if left out, "out_degree" of a directed
    graph. `list weights` lists them."""

    directed: bool | None = None
    """Whether links are arcs, from the first agent of a line or pair to the second, for push_sum; if left out, what the
    graph itself says."""

    seed: Seed | None = None
    """Public seed of random graphs; the scenario's if left out."""

    over_time: Literal["fixed", "matching", "one_peer_exponential", "resample"] | None = None
    """How the network changes by round; fixed if left out. "matching": a random matching of the links in every round;
    "one_peer_exponential": everybody sends to one other, at distances 1, 2, 4, … in turn; "resample": a random graph
    drawn anew in every round. Graphs that follow one another come from a function. Read by gossip algorithms."""

    drop: Probability | None = None
    """Probability that a message is lost, by a public coin of each; 0 if left out. It is charged all the same."""

    offline: Probability | None = None
    """Probability that an agent is away for a round, and sends and hears nothing; 0 if left out."""

    delay: Annotated[int, Field(ge=0)] | None = None
    """Rounds that messages are late; 0 if left out."""

    compression: CompressionTable | None = None
    """What of each message travels, with error feedback; all of it if left out. Read by gossip algorithms."""

    @property
    def pooled(self) -> bool:
        """Whether one server holds the records of all agents."""
        return self.kind == "pooled"

    @model_validator(mode="after")
    def _check_kind_or_file(self) -> TopologyTable:
        if (self.kind is None) == (self.file is None):
            raise ValueError(
                "give either kind (a generator) or file (a graph file or a named network); "
                'to replace one by the other, set the whole table, for example topology = { file = "abilene" }'
            )
        # A function of one's own may give a graph that has its number of agents.
        custom = self.kind is None or in_module(self.kind) is not None
        if self.agents is None and not custom:
            raise ValueError("a generator needs agents")
        return self


class NoiseTable(Table):
    """Noise of standard deviation scale/(t+1)^decay · f(t); agent i = 1..m may decay faster by i·decay_per_agent.

    Lists give one value per agent. Without a scale, the target epsilon calibrates it.
    """

    scale: Positive | list[Positive] | None = None
    """Scale at round 0: a standard deviation (Gaussian) or the scale of a Laplace law; one number or one per agent.
    Left out: the target epsilon sets it."""

    decay: Decay | list[Decay] = 0.0
    """Exponent of the decay in rounds; one number or one per agent."""

    decay_per_agent: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Added to the decay of agent i = 1..m, times i."""

    points: Points | None = None
    """Rounds and factors of f, as those of a step size; what is sent in round t carries the gradients of round t − 1.
    """


def _check_clip(clip: Schedule) -> Schedule:
    if clip.scale == 0.0:
        raise ValueError("got a clip of scale 0, expected a number above 0")
    return clip


# An array of numpy is a list of rows as well.
Rows = Annotated[list[list[Finite]], BeforeValidator(lambda rows: rows.tolist() if hasattr(rows, "tolist") else rows)]


class CorrelationTable(Table):
    """Noise that agents share, and that cancels between them; noise that goes on from that of earlier rounds."""

    across: Literal["pairwise", "optimised", "zero_sum"] | None = None
    """ "pairwise": what an agent adds to its message beside its own noise, its neighbour subtracts, from a seed that
    only the two know. "optimised": the same, with a scale of each agent and each link that errs least in gossip at one
    price. "zero_sum": so do every two agents, neighbours or not."""

    ratio: Annotated[float, Field(ge=LEAST, le=MOST)] | None = None
    """c/σ, the deviation of what a pair shares over that of an agent's own noise; if left out what errs least in gossip
    at one price, 4 at most, on a network that stays. Not read by "optimised"."""

    in_time: Count | Literal["banded_square_root"] | Rows | None = None
    """Factor C⁻¹ of noise correlated over rounds. "banded_square_root": C has the first coefficients of (1 − x)^(−1/2),
    x the shift by a round, as many as rounds from one read of a record to the next; a number sets how many. A custom
    C⁻¹ is a list of numbers for each round, in Python also an array. Noise is fresh in every round if left out. Saves
    reading, and no privacy, where problem.stream.kind = "turns"."""

    @model_validator(mode="after")
    def _check_any(self) -> CorrelationTable:
        if self.across is None and (self.in_time is None or self.ratio is not None):
            raise ValueError('ratio is of across; expected across, such as "pairwise", or in_time')
        return self


class PrivacyTable(Table):
    """The guarantee, and what it costs: a target epsilon, or noise scales of one's own."""

    guarantee: Literal["certified", "as_published", "none"] = "certified"
    """ "certified": priced as run; "as_published": a paper's own protocol and noise, priced as well as can be proven;
    "none": no noise and no clipping."""

    mechanism: Literal["laplace", "gaussian"] | str | dict[str, Any] = "laplace"
    """Noise of gossip algorithms: "laplace", "gaussian", or your own as "module:Name", or as a table with its kind and
    options. Coordinator algorithms have their own."""

    unit: Literal["record", "agent"] | GroupSize = "record"
    """What is protected: "record", one record of an agent; a number k, any k of them together; "agent", everything
    that it holds. Read by gossip algorithms that keep nothing un-noised."""

    neighbours: Literal["replace", "zero_out"] = "replace"
    """What becomes of it in the data set that ε compares with: "replace", other records stand there; "zero_out", it
    contributes nothing, which takes half the noise and protects half as much. Read by gossip algorithms that keep
    nothing un-noised."""

    colluders: Annotated[int, Field(ge=0, le=10**6)] = 0
    """q: ε holds against an adversary that sees every message and all that any q agents know. Read by gossip
    algorithms."""

    correlation: CorrelationTable | None = None
    """Gaussian noise that neighbours share, or that is correlated in time; all of it is an agent's own and fresh if
    left out. Read by gossip algorithms that keep nothing un-noised."""

    epsilon: Target | None = None
    """Target ε of each agent over the whole run, for what privacy.unit names; sets the noise. Left out: the scales of
    x, y and z are given."""

    delta: Annotated[float, Field(ge=0, lt=1)] = 1e-5
    """δ at which the budget is stated and ε is met; 0 for a pure guarantee."""

    clip: dict[Channel, Positive | Annotated[Schedule, AfterValidator(_check_clip)]] = {}
    """Variable → bound on the norm of one record's contribution to its releases: l1 under Laplace, l2 under Gaussian
    noise. Of gossip algorithms a table { scale, decay, points }, as a step size, too: a bound that changes."""

    box: dict[Channel, Finite] = {}
    """Variable → bound on the size of every coordinate (x: an upper bound). What is released is projected onto it, at
    no cost; under "as_published" the points of directions are. Read by gossip algorithms."""

    share: dict[Channel, Positive] = {}
    """Channel → its share of the budget, relative to the others; equal ones if left out. Read by gossip algorithms with
    a target epsilon."""

    cap: Positive | None = None
    """ε at which a run is stopped, before the round that would exceed it. Read by gossip algorithms."""

    x: NoiseTable | None = None
    """Noise of the releases of x."""

    y: NoiseTable | None = None
    """Noise of the releases of y."""

    z: NoiseTable | None = None
    """Noise of the releases of z."""

    @property
    def mechanism_kind(self) -> str:
        """The name, or the place, of the mechanism."""
        return self.mechanism if isinstance(self.mechanism, str) else str(self.mechanism.get("kind"))

    @property
    def mechanism_options(self) -> dict[str, Any]:
        """The options of a custom mechanism."""
        table = {} if isinstance(self.mechanism, str) else self.mechanism
        return {key: value for key, value in table.items() if key != "kind"}

    @field_validator("mechanism")
    @classmethod
    def _check_mechanism(cls, mechanism: str | dict[str, Any]) -> str | dict[str, Any]:
        kind = mechanism if isinstance(mechanism, str) else mechanism.get("kind")
        registered = kind in ("laplace", "gaussian")
        if (registered and len(mechanism) > 1 and kind != mechanism) or not (registered or in_module(str(kind))):
            raise ValueError(
                f'got {quoted(mechanism)}, wanted "laplace" or "gaussian", or a custom one as "module:Name" or as a '
                "table with kind and options"
            )
        return mechanism

    @property
    def domain(self) -> dict[str, tuple[float, float]]:
        """Channel → (low, high) of what is released; without any where boxes are on the arguments of directions."""
        if self.guarantee == "as_published":
            return {}
        return {c: (-math.inf if c == "x" else -bound, bound) for c, bound in by_channel(self.box).items()}

    def noise(self, channel: str) -> NoiseTable | None:
        table: NoiseTable | None = getattr(self, channel)
        return table


class Scenario(Table):
    """One experiment, complete. Without `seed` the noise is secret.

    Example:
        >>> import decentral_dp
        >>> decentral_dp.load("quadratic").topology.kind
        'hypercube'
    """

    # The schema for editors has no use for the example.
    model_config = ConfigDict(
        json_schema_extra={"description": "One experiment, complete. Without `seed` the noise is secret."}
    )

    title: Line = ""
    """One line, for tables and reports."""

    description: str = ""
    """What it shows, and how its public parameters were chosen."""

    seed: Seed | None = None
    """Seed of all noise and of public draws; without one the noise is secret, as it must be on real records."""

    problem: ProblemTable
    """The problem and its records."""

    topology: TopologyTable
    """Who talks to whom."""

    algorithm: AlgorithmTable
    """How it is optimised."""

    privacy: PrivacyTable = PrivacyTable()
    """What is guaranteed, and what it costs."""

    run: RunTable = RunTable()
    """The engine, and which rounds are evaluated."""

    code_folders: list[str] = ["."]
    """Folders whose files are modules of `kind = "module:Name"`, before those of the working directory."""

    objects: dict[str, str] = {}
    """Written into a run folder: components that were Python objects, which another run needs again."""

    # Where relative paths start: the folder of the file it was read from.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    # Component → what was handed over in Python in its place: of an algorithm its entry. And what each of them was, of
    # those that are in no registry.
    _objects: Secret[dict[str, Any]] = PrivateAttr(default_factory=_no_objects)
    _object_names: Mapping[str, str] = PrivateAttr(default_factory=dict)
    # "topology", "algorithm" where they are others than those of the text that it was read from: its title may not fit.
    _replaced_tables: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def public_seed(self) -> int:
        """Partition, split and random graphs are public; without a seed they must not hang on a secret one."""
        return self.seed if self.seed is not None else 0

    @property
    def tail_length(self) -> int:
        """Released values that are averaged for evaluation and publication."""
        average, rounds = self.run.average, self.algorithm.rounds
        # A share of rounds that is whole but for float64's last bit is whole.
        return average if isinstance(average, int) else max(1, math.floor(average * rounds + 1e-9))

    @property
    def records_seed(self) -> int:
        """Public seed of what is drawn of records and first weights."""
        return self.problem.seed if self.problem.seed is not None else self.public_seed

    def resolve(self, path: str) -> Path:
        """A path in the scenario, seen from the scenario's folder, or from here where there is nothing.

        Raises InputError: no path, for it has a NUL character.
        """
        if "\0" in path:
            raise InputError(f"scenario: {quoted(path)} is no path, for it has a NUL character. Take it out.")
        path = os.path.expanduser(path)
        extra = self._folder / path
        full = os.path.abspath(extra if os.path.exists(extra) else path)
        # ".." after a link leads elsewhere than its letters say.
        return Path(os.path.realpath(extra) if os.path.exists(extra) and not os.path.exists(full) else full)

    @property
    def code_paths(self) -> list[Path]:
        """Folders in which modules are looked up."""
        return [*(self._folder / Path(name).expanduser() for name in self.code_folders), Path.cwd()]

    def modules(self) -> dict[tuple[str, ...], str]:
        """(table, …, key) → "module:Name", for every value that names a component so."""
        problem, mechanism = self.problem, self.privacy.mechanism
        named = {
            ("problem", "kind"): problem.kind,
            ("problem", "model"): None if problem.model is None else problem.model.kind,
            ("problem", "data"): problem.data,
            ("problem", "partition"): problem.partition,
            ("topology", "kind"): self.topology.kind,
            ("algorithm", "kind"): self.algorithm.kind,
            ("privacy", "mechanism", *(() if isinstance(mechanism, str) else ("kind",))): self.privacy.mechanism_kind,
        }
        return {place: text for place, text in named.items() if isinstance(text, str) and in_module(text) is not None}

    def files(self) -> Files:
        """(table, …, key) → absolute path, for every value that names a file of data that is there."""
        problem = self.problem
        named: dict[tuple[str, ...], Any] = {
            ("problem", "data"): problem.data if problem.data.lower().endswith((".csv", ".npz", ".parquet")) else None,
            ("problem", "manifest"): problem.manifest,
            ("topology", "file"): self.topology.file,
        }
        places = {place: self.resolve(name) for place, name in named.items() if isinstance(name, str)}
        # Whoever reads it refuses what is no regular file.
        return {place: path for place, path in places.items() if os.path.exists(path) and not path.is_dir()}

    def code_files(self) -> Files:
        """(table, …, key) → absolute path of the Python file, for every "module:Name" that is in a folder here."""
        found = {place: module_file(kind.partition(":")[0], self.code_paths) for place, kind in self.modules().items()}
        return {place: path.absolute() for place, path in found.items() if path is not None}


def set_file(content: dict[str, Any], place: Sequence[str], value: str) -> None:
    """Set the file that is named at (table, …, key), or at a number of a list."""
    *tables, last = place
    inner: Any = content
    for table in tables:
        inner = inner[table]
    inner[int(last) if isinstance(inner, list) else last] = value


def by_channel(table: Mapping[Channel, float | Schedule]) -> dict[str, float]:
    """Name of a channel → its value, of a table whose keys are channels; of a clip that changes its scale."""
    return {str(channel): value.scale if isinstance(value, Schedule) else value for channel, value in table.items()}
