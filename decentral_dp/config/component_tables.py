"""The tables [problem] and [algorithm] of a scenario: common keys, and those that problems and algorithms declare.

[problem] says what is optimised, which records there are, and which agent holds them. Keys of a problem's own are the
parameters of what makes it, those of an algorithm the fields of its dataclass: types and bounds for pydantic, and
descriptions for the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.options import Option
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.data.columns import ColumnRules
from decentral_dp.data.dataset import label_key
from decentral_dp.data.tables import USUAL_CSV, CsvFormat, DeclaredColumns, csv_format
from decentral_dp.errors import quoted
from decentral_dp.files.tables import (
    Channel,
    Count,
    Decay,
    DeclaredKey,
    Finite,
    KindTable,
    NonNegative,
    Points,
    Positive,
    Seed,
    Share,
    Table,
    case_of,
    merged_fields,
)
from decentral_dp.formatting import join_words
from decentral_dp.models.build import ModelTable
from decentral_dp.problems import PROBLEMS
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


class Column(Table):
    """A column of the data file."""

    column: str
    """Name of a column of the data file."""


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


def _close_schema(schema: dict[str, Any]) -> None:
    """In the JSON Schema a registered problem has its own keys alone; what another takes is not known."""
    schema.pop("additionalProperties", None)
    schema["allOf"] = [
        case_of(
            kind, CommonProblemTable.model_fields, e.options, [k for k in e.required_keys if k not in e.construction_of]
        )
        for kind, e in PROBLEMS.items()
    ]


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


def _is_from_outside(kind: Any) -> bool:
    """Whether a problem is none of the registered ones, so that its options are keys which no table lists.

    A name that nobody has is refused as such where the problem is built, and not for the keys beside it.
    """
    return isinstance(kind, str) and kind not in PROBLEMS


class CommonProblemTable(Table):
    """What is optimised, over which records."""

    # Options of a problem from outside are its own; of the others an unknown key is refused below.
    model_config = ConfigDict(extra="allow", frozen=True, strict=True, json_schema_extra=_close_schema)

    kind: str
    """What is optimised: a registered problem, or "module:Name". `list problems` lists them."""

    data: str
    """The records: a bundled data set, the path of a .csv, .npz or .parquet file,
    "openml:NAME" or "openml:NUMBER", "module:function", or, beside manifest, where agents have theirs:
    "shards/agent-{agent}.npz"."""

    manifest: str | None = None
    """Path of a public manifest of records that are with their agents, each of whom reads its own file. Refused by
    algorithms that hold all records in one place."""

    limit: Count | None = None
    """Only the first so many records, and at most as many of the data's own test set; all if left out."""

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

    validation: Share | Column | None = None
    """Share of each agent's records for the upper level, or { column = … }. Left out: the data's own split column, else
    0.5. Read by bilevel problems."""

    test: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of all records that is held out; 0.2 if left out. Refused where the data have a test set of their own."""

    scale: str | dict[str, list[float] | dict[str, float | bool]] = "none"
    """How features are scaled: "none"; "public_ranges" to [−1, 1] by shipped ranges; a ranges CSV; feature → [low,
    high]."""

    normalise: Literal["none", "l1", "l2", "box"] = "none"
    """Every record is brought to length at most 1 in this norm: "l1", "l2", or "box" for each feature; "none" leaves
    it."""

    stream: Literal["all"] | StreamTable = "all"
    """Which records a round reads: "all", or a table. Read by gossip algorithms."""

    label_bound: Positive | None = None
    """Labels that are numbers are cut at ± this public bound. Read by coordinator algorithms that need problem
    constants."""

    label_range: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    """Public range [low, high] of labels that are numbers: they are scaled to [−1, 1], and cut outside. Scores are in
    the labels' own unit."""

    construction: ConstructionTable | None = None
    """Other records made of the data's own, by their labels, after test records are held out."""

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

    @model_validator(mode="wrap")
    @classmethod
    def _own_options(cls, table: Any, validated: ModelWrapValidatorHandler[CommonProblemTable]) -> CommonProblemTable:
        """A problem from outside may have a key of the name of one of ours, of another type."""
        if not isinstance(table, Mapping) or not _is_from_outside(table.get("kind")):
            return validated(table)
        # A run folder's scenario has every default filled in, and those say nothing.
        own = {
            key: value
            for key, value in table.items()
            if key in cls.model_fields and key not in SHARED_KEYS and value != cls.model_fields[key].default
        }
        made = validated({key: value for key, value in table.items() if key not in own})
        extra = made.model_extra
        if extra is not None:
            extra.update(own)
        return made

    @model_validator(mode="before")
    @classmethod
    def _check_known_keys(cls, table: Any) -> Any:
        unknown = [key for key in table if key not in cls.model_fields] if isinstance(table, Mapping) else []
        if unknown and not _is_from_outside(table.get("kind")):
            raise PydanticCustomError("extra_key", "unknown key", {"key": unknown[0]})
        return table


def _readers(by_text: Mapping[str, Sequence[str]]) -> str:
    """Each description with the problems that it is true of."""
    if len(by_text) == 1:
        return "".join(f"{text} Read by {join_words(kinds)}." for text, kinds in by_text.items())
    return " ".join(f"Of {join_words(kinds)}: {text[0].lower()}{text[1:]}" for text, kinds in by_text.items())


if TYPE_CHECKING:

    class ProblemTable(CommonProblemTable):
        """What is optimised, over which records; with the keys of all registered problems, as they declare them."""

        loss: str | None
        model: ModelTable | None
        positive_share: float | str | None

else:
    ProblemTable = create_model(
        "ProblemTable",
        __base__=CommonProblemTable,
        __doc__=CommonProblemTable.__doc__,
        **merged_fields(((kind, key) for kind, entry in PROBLEMS.items() for key in entry.keys), _readers),
    )

# Keys that no field of a problem from outside can be called like.
SHARED_KEYS = (*CommonProblemTable.model_fields, "model")
# Keys that registered problems declare.
DECLARED_KEYS = tuple(key for key in ProblemTable.model_fields if key not in CommonProblemTable.model_fields)


def declared_columns(table: CommonProblemTable) -> DeclaredColumns:
    """What a scenario says of the columns of a table of records."""
    owner = table.partition if isinstance(table.partition, Partition) else None
    split = table.validation.column if isinstance(table.validation, Column) else None
    name, agents = (None, None) if owner is None else (owner.name, owner.agents)
    return DeclaredColumns(table.label, name, split, table.columns, agents, csv_of(table) or USUAL_CSV, table.classes)


def csv_of(table: CommonProblemTable) -> CsvFormat | None:
    """How a scenario declares that its CSV file is written; None where it declares nothing. Raises InputError."""
    keys = (table.separator, table.decimal, table.encoding)
    return None if keys == (None, None, None) else csv_format(*keys)


class Step(Table):
    """Step size λ_t = scale/(t+1)^decay · f(t)."""

    scale: NonNegative
    """λ_0, the first step."""

    decay: Decay = 0.0
    """Exponent of the decay in rounds; 0 keeps the step constant."""

    points: Points | None = None
    """Rounds and factors of f, such as [[0, 0.1], [50, 1.0], [500, 0.1]]: in a straight line between two of them, and
    constant before the first and after the last. f = 1 if left out."""


class DomainTable(Table):
    """Where x may be, for algorithms of a trusted coordinator: a box."""

    kind: Literal["box"] = "box"
    """ "box": low and high of every coordinate."""

    low: Finite
    """Lower end of every coordinate."""

    high: Finite
    """Upper end of every coordinate."""

    @model_validator(mode="after")
    def _check_interior(self) -> DomainTable:
        if not self.low < self.high:
            raise ValueError(f"a box from {self.low:g} to {self.high:g} has no interior; give low < high")
        return self


class AlgorithmTable(Table):
    """Which algorithm, for how many rounds, from which constant start; and the algorithm's own keys.

    Those are the fields of its dataclass (`decentral-dp list KIND` describes them); others are refused.
    """

    kind: str
    """a registered algorithm, or module:Name"""

    rounds: Count
    """how many rounds are run [rounds]"""

    init: dict[Channel, Finite] = {}
    """variable → the constant where it starts; 0 by default"""

    protocol: Literal["released", "private"] = "released"
    """ "released": everything is computed at the own released values; "private", of ldp_dsbo: its state is kept without
    noise"""

    def own_keys(self) -> dict[str, Any]:
        """What is given of the algorithm's own keys."""
        values = {k: getattr(self, k) for k in type(self).model_fields} | (self.model_extra or {})
        return {k: v for k, v in values.items() if k not in AlgorithmTable.model_fields and v is not None}


class OutsideAlgorithmTable(AlgorithmTable):
    """A custom algorithm. Its own keys are checked when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


def own_fields(options: Iterable[tuple[str, Option]]) -> dict[str, tuple[Any, Any]]:
    """The keys of algorithms, by kind, all of them optional: what is missing is refused with an example."""
    tables = {StepSize: Step, Mapping: DomainTable}
    keys = [(kind, DeclaredKey(o.key, tables.get(o.type, o.pydantic_type), _phrase(o), False)) for kind, o in options]
    # Of a switch that is left out, too, the algorithm has the default.
    return {
        key: (kind | None, Field(default=None, description=field.description)) if kind is bool else (kind, field)
        for key, (kind, field) in merged_fields(keys, _phrases).items()
    }


def _phrase(option: Option) -> str:
    """The description with the unit and the default."""
    text = option.description or option.key
    text += f" [{option.unit}]" if option.unit else ""
    return text if option.default is None else f"{text} (default {option.default})"


def _phrases(by_phrase: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{', '.join(kinds)}: {phrase}" for phrase, kinds in by_phrase.items())


if TYPE_CHECKING:

    class RegisteredAlgorithmTable(AlgorithmTable):
        """With the keys of all registered algorithms, as their fields declare them."""

else:
    RegisteredAlgorithmTable = create_model(
        "RegisteredAlgorithmTable",
        __base__=AlgorithmTable,
        **own_fields((entry.kind, option) for entry in ALGORITHMS.values() for option in entry.keys),
    )


def which_table(value: Any) -> str:
    """Which of the two tables a value is meant to be.

    A name that nobody has is refused as such where the algorithm is built, and not for the keys beside it.
    """
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    outside = isinstance(value, OutsideAlgorithmTable) or (isinstance(kind, str) and kind not in ALGORITHMS)
    return "OutsideAlgorithmTable" if outside else "RegisteredAlgorithmTable"


def _required_keys(entry: Entry) -> Sequence[str]:
    """Keys that a scenario cannot do without; the step of y alone is planned where a model is trained."""
    return () if tuple(entry.options) == ("y",) else entry.options


class AlgorithmSchema:
    """The JSON Schema of both tables as one: all properties; by kind those that are needed and may be given."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core_schema)
        resolved: dict[str, Any] = handler.resolve_ref_schema(schema["oneOf"][0])
        common, own = list(AlgorithmTable.model_fields), resolved["properties"]
        known = {"properties": {"kind": {"enum": list(ALGORITHMS)}}, "required": ["kind"]}
        merged = {k: v for k, v in resolved.items() if k != "additionalProperties"}
        merged["title"], merged["allOf"] = (
            "AlgorithmTable",
            [
                case_of(kind, common, [o.key for o in entry.keys], _required_keys(entry))
                for kind, entry in ALGORITHMS.items()
            ],
        )
        # A custom algorithm has its own keys.
        merged["if"], merged["then"] = known, {"propertyNames": {"enum": list(own)}}
        merged["properties"]["kind"]["examples"] = list(ALGORITHMS)
        return merged
