"""The tables [problem] and [algorithm] of a scenario: common keys, and those that problems and algorithms declare.

[problem] says what is optimised, which records there are, and which agent holds them. The own keys of a problem are the
parameters of what makes it, those of an algorithm the fields of its dataclass. `table_of` adds them to the common keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from decentral_dp.algorithms.entry import Entry as AlgorithmEntry
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.data.columns import ColumnRules
from decentral_dp.data.dataset import label_key
from decentral_dp.data.tables import USUAL_CSV, CsvFormat, DeclaredColumns, csv_format
from decentral_dp.errors import quoted
from decentral_dp.files.tables import (
    Channel,
    Count,
    Decay,
    Finite,
    KindTable,
    NonNegative,
    Points,
    Seed,
    Share,
    Table,
)
from decentral_dp.models.build import ModelTable
from decentral_dp.problems.entry import ProblemEntry
from decentral_dp.user_code import in_module


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

    @model_validator(mode="after")
    def _check_names(self) -> Partition:
        keys = [label_key(name) for name in self.agents or ()]
        for k, name in enumerate(self.agents or ()):
            if keys[k] in keys[:k]:
                raise ValueError(f"agents lists {quoted(name)} twice. Name every agent once")
        return self


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


def _partition_from_outside(name: str) -> str:
    if in_module(name) is None:
        raise PydanticCustomError("outside_name", "the name of a function in a file")
    return name


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

    partition: Literal["iid"] | Partition | Annotated[str, AfterValidator(_partition_from_outside)] | None = None
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
