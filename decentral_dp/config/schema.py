"""The tables of a scenario and what each key may be. Unknown keys are refused, and nothing is converted silently."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config.algorithm_fields import registered_fields
from decentral_dp.errors import InputError, quoted
from decentral_dp.user_code import in_file, installed

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0)]
# Beyond these a target says nothing, and solving for it would meet the ends of float64.
Target = Annotated[float, Field(ge=1e-9, le=1e5)]
Channel = Literal["x", "y", "z"]


class Table(BaseModel):
    """A table of a scenario: no unknown keys, no silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _closed(schema: dict[str, Any]) -> None:
    """In the JSON Schema an unknown key is wrong but beside a problem from a file, whose options are keys."""
    schema.pop("additionalProperties", None)
    schema["if"] = {"properties": {"kind": {"not": {"pattern": r"\.py:"}}}}
    schema["then"] = {"propertyNames": {"enum": sorted(schema["properties"])}}


class Partition(Table):
    """How records are dealt to agents: iid, by_class (share), dirichlet (alpha), or column (name)."""

    kind: Literal["iid", "by_class", "dirichlet", "column"] = Field(
        description=(
            'The rule: "iid" at random; "by_class" (share), "dirichlet" (alpha), both by labels; "column" '
            "(name), as the data say."
        )
    )
    share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description=(
            "Of by_class: the share of a class that goes to its home agent, from 0 to 1; the rest is dealt evenly."
        ),
    )
    alpha: Positive | None = Field(
        default=None,
        description="Of dirichlet: concentration, from 1e-6 to 1e6; a small one gives each agent few classes.",
    )
    name: str | None = Field(
        default=None,
        description="Of column: the column of the data file with the agent of each record, numbered from 0.",
    )

    @model_validator(mode="after")
    def _needs(self) -> Partition:
        needed = {"by_class": "share", "dirichlet": "alpha", "column": "name"}.get(self.kind)
        for key in ("share", "alpha", "name"):
            if key == needed and getattr(self, key) is None:
                raise ValueError(f'a "{self.kind}" partition needs {key}')
            if key != needed and getattr(self, key) is not None:
                raise ValueError(f'a "{self.kind}" partition takes no {key}')
        return self


class Column(Table):
    """A column of the data file."""

    column: str = Field(description="Name of a column of the data file.")


class StreamTable(Table):
    """Which records a round reads."""

    kind: Literal["accumulate", "all", "minibatch"] = Field(
        default="accumulate",
        description=(
            '"accumulate": records arrive round by round; "all": every record in every round; "minibatch": a '
            "fresh sample each round."
        ),
    )
    batch: Count | None = Field(
        default=None, description="Records per agent and round: new ones of accumulate, drawn ones of minibatch."
    )
    warm_start: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Of accumulate: records that each agent has before the first round."
    )


class Synthetic(Table):
    """Sizes of records that are made up."""

    dimension: Count | None = Field(
        default=None, description="Features of each record; 200 if left out. Read by the synthetic families."
    )
    records: Count | None = Field(
        default=None,
        description=(
            "Records per agent, train and validation together (200 if left out); of environments trajectories"
            " per agent."
        ),
    )
    test_records: Count | None = Field(
        default=None, description="Held-out records in all; 2000 if left out. Of environments trajectories."
    )
    separation: NonNegative | None = Field(
        default=None,
        description=(
            "Distance of the two class means, in standard deviations; 2 if left out. Read by synthetic_classification."
        ),
    )
    steps: Count | None = Field(
        default=None, description="Steps after which a trajectory is cut off. Read by environments."
    )


class ImageFiles(Table):
    """Where the files of a collection of images are: a folder, or each by path or URL."""

    folder: str | None = Field(default=None, description="Folder with the files under their usual names.")
    images: str | None = Field(
        default=None,
        description=("Train images: a path or URL. Read by mnist and fashion_mnist."),
    )
    labels: str | None = Field(
        default=None, description="Train labels: a path or URL. Read by mnist and fashion_mnist."
    )
    test_images: str | None = Field(
        default=None, description="Test images: a path or URL. Read by mnist and fashion_mnist."
    )
    test_labels: str | None = Field(
        default=None, description="Test labels: a path or URL. Read by mnist and fashion_mnist."
    )
    archive: str | None = Field(default=None, description="The binary archive: a path or URL. Read by cifar10.")
    attributes: str | None = Field(default=None, description="Path of celeba's list of attributes.")
    features: str | None = Field(
        default=None, description="Path of a file with features of your own for the photographs of celeba."
    )
    partition: str | None = Field(
        default=None, description="Path of celeba's list of train, validation and test photographs."
    )
    sha256: dict[str, str] = Field(
        default={},
        description=(
            "Key of this table, or file name of a folder → SHA-256 that the file must have; required for a URL."
        ),
    )


class ModelTable(Table):
    """A model of a minimax problem: its weights are x (a critic's: y)."""

    kind: Literal["linear", "mlp", "resnet", "torch"] = Field(
        default="linear",
        description=(
            '"linear", "mlp" (hidden), "resnet" (width, depth) with group normalisation, or "torch" (file, name).'
        ),
    )
    hidden: list[Count] | None = Field(default=None, description="Of mlp: units of each hidden layer, in order.")
    width: Count | None = Field(default=None, description="Of resnet: channels of the first stage; 16 if left out.")
    depth: Count | None = Field(
        default=None, description="Of resnet: blocks of each of its three stages; 1 if left out."
    )
    file: str | None = Field(
        default=None,
        description="Of torch: a Python file with a function of (n_features, outputs) that returns a torch module.",
    )
    name: str | None = Field(default=None, description='Of torch: the name of that function; "build" if left out.')

    @model_validator(mode="after")
    def _needs(self) -> ModelTable:
        taken = {"mlp": ("hidden",), "resnet": ("width", "depth"), "torch": ("file", "name")}.get(self.kind, ())
        for key in ("hidden", "width", "depth", "file", "name"):
            if key not in taken and getattr(self, key) is not None:
                raise ValueError(f'a "{self.kind}" model takes no {key}')
            if key in ("hidden", "file") and key in taken and getattr(self, key) is None:
                raise ValueError(f'a "{self.kind}" model needs {key}')
        return self


class ConstructionTable(Table):
    """Other records made of the data's own, by their labels, after test records are held out.

    One of share, keep and tail at most.
    """

    positive: list[int | float | str] | None = Field(
        default=None, description="Labels that become class 1; the others become class 0."
    )
    share: Share | None = Field(
        default=None,
        description="So many positive train records are kept that they are this share of all train records.",
    )
    keep: dict[str, Count] | None = Field(
        default=None, description="Class → how many of its train records are kept, the last ones; of other classes all."
    )
    tail: Share | None = Field(
        default=None, description="Train records of the k-th of K classes, from 0, are kept to a share tail^(k/(K−1))."
    )


def _partition_from_outside(name: str) -> str:
    if in_file(name) is None and name not in installed("partition"):
        raise PydanticCustomError("outside_name", "the name of a function in a file")
    return name


def _poses_from_outside(kind: Any) -> bool:
    """Whether a problem comes from outside, so that its options are keys which no table lists."""
    if not isinstance(kind, str):
        return False
    return in_file(kind) is not None or any(kind in installed(what) for what in ("problem", "objective"))


class ProblemTable(Table):
    """What is optimised, over which records."""

    # Options of a problem from outside are its own; of the others an unknown key is refused below.
    model_config = ConfigDict(extra="allow", frozen=True, strict=True, json_schema_extra=_closed)

    kind: str = Field(
        description=(
            'What is optimised: a registered problem, one of an installed package, or "file.py:Name". `list '
            "problems` lists them."
        )
    )
    data: str = Field(
        description=(
            "The records: a data set that comes along, the path of a .csv or .npz file, one of an installed "
            'package, or "file.py:function".'
        )
    )
    files: ImageFiles | None = Field(
        default=None,
        description=(
            "Where the files of a collection of images are. Left out: DECENTRAL_DP_DATA is looked in, and "
            "digits stand in; for celeba nothing does."
        ),
    )
    limit: Count | None = Field(
        default=None,
        description="Only the first so many records, and at most as many of the data's own test set; all if left out.",
    )
    label: str | None = Field(
        default=None,
        description="Name of the label column of a .csv file, or the attribute of celeba that is the label.",
    )
    classes: list[int | float | str] | None = Field(
        default=None,
        description=(
            "The labels that there may be, in order; [] for numbers to predict. A certified run needs them "
            "where the data do not declare them."
        ),
    )
    partition: Literal["iid"] | Partition | Annotated[str, AfterValidator(_partition_from_outside)] | None = Field(
        default=None,
        description=(
            'How records are dealt to agents: "iid", a table, or "file.py:function". Left out: by the '
            'data\'s own agent column, else "iid".'
        ),
    )
    validation: Share | Column | None = Field(
        default=None,
        description=(
            "Share of each agent's records for the upper level, or { column = … }. Left out: the data's own "
            "split column, else 0.5. Read by bilevel problems."
        ),
    )
    test: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description=(
            "Share of all records that is held out; 0.2 if left out. Refused where the data have a test set "
            "of their own."
        ),
    )
    scale: str | dict[str, list[float] | dict[str, float | bool]] = Field(
        default="none",
        description=(
            'How features are scaled: "none"; "public_ranges" to [−1, 1] by shipped ranges; a ranges CSV; '
            'feature → [low, high]; "standard", fitted on the records, which no certified run takes.'
        ),
    )
    normalise: Literal["none", "l1", "l2", "box"] = Field(
        default="none",
        description=(
            'Every record is brought to length at most 1 in this norm: "l1", "l2", or "box" for each feature;'
            ' "none" leaves it.'
        ),
    )
    stream: Literal["all"] | StreamTable = Field(
        default="all", description='Which records a round reads: "all", or a table. Read by gossip algorithms.'
    )
    intercept: bool = Field(
        default=False, description="Whether a constant feature 1 is appended. Read by the problems of linear models."
    )
    ridge: Positive | None = Field(
        default=None, description="Strength of a quadratic regulariser, above 0; the default is the problem's own."
    )
    label_bound: Positive | None = Field(
        default=None,
        description=(
            "Labels that are numbers are cut at ± this public bound. Read by coordinator algorithms that need"
            " problem constants."
        ),
    )
    groups: Count | None = Field(
        default=None,
        description=(
            "Groups of train records of each agent that share one weight; 1 if left out. Read by hyper_cleaning."
        ),
    )
    corrupt: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description=(
            "Share of all groups whose labels are replaced at random, from 0 to 1; 0 if left out. Read by "
            "hyper_cleaning."
        ),
    )
    losses: str | None = Field(
        default=None, description="Path of a Python file with upper_loss, lower_loss, p and q. Read by from_losses."
    )
    tasks: Count | list[list[Annotated[int, Field(ge=0)]]] | None = Field(
        default=None,
        description=(
            "Classes of each task, numbered from 0 in the order declared; or how many tasks to draw. Read by "
            "meta_learning."
        ),
    )
    ways: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="Classes of each drawn task. Read by meta_learning."
    )
    width: Count | None = Field(
        default=None,
        description=(
            "Channels of every convolutional block, or hidden units where records are no images. Read by meta_learning."
        ),
    )
    model: ModelTable | None = Field(
        default=None,
        description=(
            "The model whose weights are x (of wgan the critic's: y); linear if left out. Read by minimax problems."
        ),
    )
    construction: ConstructionTable | None = Field(
        default=None,
        description="Other records made of the data's own, by their labels, after test records are held out.",
    )
    positive_share: Share | Literal["released", "empirical"] | None = Field(
        default=None,
        description=(
            'Public share of positive records; "released": a noisy one, at a price; "empirical": counted, '
            "which nothing certifies. Read by auc_maximisation."
        ),
    )
    group_shares: list[Share] | None = Field(
        default=None,
        description="Public shares of the groups, which are the classes; equal ones if left out. Read by group_dro.",
    )
    generator: list[Count] | None = Field(
        default=None, description="Units of each hidden layer of the generator. Read by wgan."
    )
    divergence: str | None = Field(
        default=None, description="The divergence between distributions, by name. Read by dro."
    )
    order: Finite | None = Field(default=None, description="Order of the divergence, where it has one. Read by dro.")
    level: Share | None = Field(default=None, description="Level of CVaR, above 0 and below 1. Read by dro.")
    strength: Positive | None = Field(
        default=None,
        description=(
            "Strength λ of the term that keeps the distribution near that of the records. Read by dro, kl_dro"
            " and group_dro."
        ),
    )
    loss: str | None = Field(
        default=None,
        description="The loss of one record, by name, or a Python file. Read by dro, kl_dro and group_dro.",
    )
    cap: Positive | None = Field(
        default=None, description="Losses are cut at this bound. Read by dro, kl_dro and group_dro."
    )
    radius: Positive | None = Field(
        default=None,
        description=(
            "Of kl_dro: distributions within this KL divergence of the records count. Of wgan: l2 radius of the "
            "critic's weights; 10 if left out."
        ),
    )
    discount: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None, description="Discount of rewards to come, from 0 to below 1. Read by mspbe."
    )
    latent: Count | None = Field(default=None, description="Numbers that the generator is fed. Read by wgan.")
    penalty: NonNegative | None = Field(
        default=None, description="Weight of the gradient penalty of the critic. Read by wgan."
    )
    synthetic: Synthetic = Field(
        default=Synthetic(),
        description="Sizes of records that are made up. Read by the synthetic families and environments.",
    )
    seed: Seed | None = Field(
        default=None,
        description="Public seed of partition, split, made-up records and first weights; the scenario's if left out.",
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, table: Any) -> Any:
        unknown = [key for key in table if key not in cls.model_fields] if isinstance(table, Mapping) else []
        if unknown and not _poses_from_outside(table.get("kind")):
            raise PydanticCustomError("extra_key", "unknown key", {"key": unknown[0]})
        return table


class TopologyTable(BaseModel):
    """A registered generator with its parameters, or a file; and the rule for the weights."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str | None = Field(
        default=None,
        description=(
            'A generator of graphs by name, one of an installed package, or "file.py:function"; its '
            "parameters are keys beside it. `list topologies` lists them."
        ),
    )
    file: str | None = Field(
        default=None,
        description=(
            'A named network such as "abilene", or the path of a .toml, .graphml or edge list; in place of kind.'
        ),
    )
    agents: Count | None = Field(default=None, description="Number of agents; of a file only checked.")
    weights: str | dict[str, Any] | None = Field(
        default=None,
        description=(
            'Rule for the weights of gossip, by name or as a table; "metropolis" if left out. `list weights` '
            "lists them."
        ),
    )
    seed: Seed | None = Field(default=None, description="Public seed of random graphs; the scenario's if left out.")

    @model_validator(mode="after")
    def _one(self) -> TopologyTable:
        if (self.kind is None) == (self.file is None):
            raise ValueError(
                "give either kind (a generator) or file (a GraphML, an edge list or a named network); "
                "to replace one by the other, set the whole table: --set 'topology={file=\"abilene\"}'"
            )
        if self.kind is not None and self.agents is None:
            raise ValueError("a generator needs agents")
        return self


class Step(Table):
    """Step size λ_t = scale/(t+1)^decay."""

    scale: NonNegative = Field(description="λ_0, the first step.")
    decay: NonNegative = Field(default=0.0, description="Exponent of the decay in rounds; 0 keeps the step constant.")


class DomainTable(Table):
    """Where x may be, for algorithms of a trusted coordinator: a box, a ball around 0, or the simplex."""

    kind: Literal["box", "ball", "simplex"] = Field(
        description='"box" (low, high) in every coordinate, "ball" (radius) around 0 in l2, or "simplex".'
    )
    low: Finite | None = Field(default=None, description="Of box: lower end of every coordinate.")
    high: Finite | None = Field(default=None, description="Of box: upper end of every coordinate.")
    radius: Positive | None = Field(default=None, description="Of ball: radius in l2.")

    @model_validator(mode="after")
    def _needs(self) -> DomainTable:
        needed = {"box": ("low", "high"), "ball": ("radius",)}.get(self.kind, ())
        for key in ("low", "high", "radius"):
            if key in needed and getattr(self, key) is None:
                raise ValueError(f'a "{self.kind}" needs {key}')
            if key not in needed and getattr(self, key) is not None:
                raise ValueError(f'a "{self.kind}" takes no {key}')
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"a box from {self.low:g} to {self.high:g} has no interior; give low < high")
        return self


class AlgorithmTable(Table):
    """Which algorithm, for how many rounds, from which constant start; and the algorithm's own keys.

    Those are the fields of its dataclass (`decentral-dp show KIND` describes them); others are refused.
    """

    kind: Annotated[
        str,
        Field(description="a registered algorithm, one of an installed package by entry point, or file.py:Name"),
    ]
    rounds: Annotated[Count, Field(description="how many rounds are run [rounds]")]
    init: Annotated[
        dict[Channel, Finite], Field(description="variable → the constant where it starts; 0 by default")
    ] = {}
    protocol: Annotated[
        Literal["released", "private"],
        Field(
            description='"released": everything is computed at the own released values; "private", of ldp_dsbo: its '
            "state is kept without noise"
        ),
    ] = "released"
    sampler: Annotated[
        str | None,
        Field(description='of minimax algorithms that sample: how; "poisson", or it is refused'),
    ] = None

    def own_keys(self) -> dict[str, Any]:
        """What is given of the algorithm's own keys."""
        values = {k: getattr(self, k) for k in type(self).model_fields} | (self.model_extra or {})
        return {k: v for k, v in values.items() if k not in AlgorithmTable.model_fields and v is not None}


class OutsideAlgorithmTable(AlgorithmTable):
    """An algorithm from a file or an installed package. Its own keys are checked when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


# Type of an algorithm's field → the table that gives it.
ALGORITHM_TABLES: dict[Any, type[Table]] = {StepSize: Step, Mapping: DomainTable}
if TYPE_CHECKING:

    class RegisteredAlgorithmTable(AlgorithmTable):
        """With the keys of all registered algorithms, as their fields declare them."""

else:
    RegisteredAlgorithmTable = create_model(
        "RegisteredAlgorithmTable", __base__=AlgorithmTable, **registered_fields(ALGORITHM_TABLES)
    )


def _which_table(value: Any) -> str:
    """Which of the two tables a value is meant to be."""
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    outside = isinstance(value, OutsideAlgorithmTable) or (isinstance(kind, str) and is_from_outside(kind))
    return "OutsideAlgorithmTable" if outside else "RegisteredAlgorithmTable"


def is_from_outside(kind: str) -> bool:
    """Whether an algorithm's kind is that of a file or of an installed package."""
    return kind not in ALGORITHMS and (
        in_file(kind) is not None or kind.lower().endswith(".py") or kind in installed("algorithm")
    )


class _AlgorithmSchema:
    """The JSON Schema of both tables as one: all properties; by kind those that are needed and may be given."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core_schema)
        found: dict[str, Any] = handler.resolve_ref_schema(schema["oneOf"][0])
        common, own = list(AlgorithmTable.model_fields), found["properties"]
        known = {"properties": {"kind": {"enum": list(ALGORITHMS)}}, "required": ["kind"]}
        merged = {k: v for k, v in found.items() if k != "additionalProperties"}
        merged["title"], merged["allOf"] = "AlgorithmTable", [_case(entry, common) for entry in ALGORITHMS.values()]
        # A name that is not registered may be an installed package's, whose keys are its own.
        merged["if"], merged["then"] = known, {"propertyNames": {"enum": list(own)}}
        merged["properties"]["kind"]["examples"] = list(ALGORITHMS)
        return merged


def _case(entry: Entry, common: list[str]) -> dict[str, Any]:
    """What a table of this kind needs and may have."""
    keys = [*common, *(o.key for o in entry.keys)]
    return {
        "if": {"properties": {"kind": {"const": entry.kind}}, "required": ["kind"]},
        "then": {"required": list(entry.options), "propertyNames": {"enum": keys}},
    }


class Noise(Table):
    """Noise of standard deviation scale/(t+1)^decay; agent i = 1..m may decay faster by i·decay_per_agent.

    Lists give one value per agent. Without a scale, the target epsilon calibrates it.
    """

    scale: Positive | list[Positive] | None = Field(
        default=None,
        description=(
            "Scale at round 0: a standard deviation (Gaussian) or the scale of a Laplace law; one number or "
            "one per agent. Left out: the target epsilon sets it."
        ),
    )
    decay: NonNegative | list[NonNegative] = Field(
        default=0.0, description="Exponent of the decay in rounds; one number or one per agent."
    )
    decay_per_agent: Finite = Field(default=0.0, description="Added to the decay of agent i = 1..m, times i.")


class MechanismTable(Table):
    """A mechanism with options of its own, which are the fields of its class."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(description='"file.py:Name", or the name of an installed mechanism.')


class PrivacyTable(Table):
    """The guarantee, and what it costs: a target epsilon, or noise scales of one's own."""

    guarantee: Literal["certified", "as_printed", "none"] = Field(
        default="certified",
        description=(
            '"certified": priced as run; "as_printed": the paper\'s own protocol and noise, priced as well'
            ' as can be proven; "none": no noise and no clipping.'
        ),
    )
    mechanism: Literal["laplace", "gaussian"] | str | MechanismTable = Field(
        default="laplace",
        description=(
            'Noise of gossip algorithms: "laplace", "gaussian", or one of your own, by "file.py:Name", by the name of '
            "an installed one, or as a table with its kind and options. Coordinator algorithms have their own."
        ),
    )
    epsilon: Target | None = Field(
        default=None,
        description=(
            "Target ε of each agent over the whole run, for one of its records; sets the noise. Left out: the"
            " scales of x, y and z are given."
        ),
    )
    delta: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=1e-5, description="δ at which the budget is stated and ε is met; 0 for a pure guarantee."
    )
    constants: dict[str, float] | None = Field(
        default=None,
        description=(
            "Name → constant of a problem without analytic ones, on your word. Read by coordinator algorithms"
            " that need problem constants."
        ),
    )
    clip: dict[Channel, Positive] = Field(
        default={},
        description=(
            "Variable → bound on the norm of one record's contribution to its releases: l1 under Laplace, l2 "
            "under Gaussian noise."
        ),
    )
    box: dict[Channel, Finite] = Field(
        default={},
        description=(
            'Variable → bound on every coordinate (x: an upper bound); declared for "as_printed", refused elsewhere.'
        ),
    )
    share: dict[Channel, Positive] = Field(
        default={},
        description=(
            "Channel → its share of the budget, relative to the others; equal ones if left out. Read by "
            "gossip algorithms with a target epsilon."
        ),
    )
    cap: Positive | None = Field(
        default=None,
        description="ε at which a run is stopped, before the round that would exceed it. Read by gossip algorithms.",
    )
    x: Noise | None = Field(default=None, description="Noise of the releases of x.")
    y: Noise | None = Field(default=None, description="Noise of the releases of y.")
    z: Noise | None = Field(default=None, description="Noise of the releases of z.")

    @property
    def mechanism_kind(self) -> str:
        """The name, or the place, of the mechanism."""
        return self.mechanism if isinstance(self.mechanism, str) else self.mechanism.kind

    @field_validator("mechanism")
    @classmethod
    def _known(cls, mechanism: str | MechanismTable) -> str | MechanismTable:
        kind = mechanism if isinstance(mechanism, str) else mechanism.kind
        if kind in ("laplace", "gaussian"):
            if not isinstance(mechanism, str) and mechanism.model_extra:
                raise ValueError(f"{kind} noise takes no options, got {', '.join(mechanism.model_extra)}")
        elif in_file(kind) is None and kind not in installed("mechanism"):
            raise ValueError(
                f'got {quoted(kind)}, wanted "laplace" or "gaussian", or a mechanism of your own as "file.py:Name"'
            )
        return mechanism

    def noise(self, channel: str) -> Noise | None:
        found: Noise | None = getattr(self, channel)
        return found


class RunTable(Table):
    """Where it runs and what is evaluated."""

    engine: Literal["local", "ray"] = Field(
        default="local",
        description='"local": one process; "ray": agents in actors of a Ray cluster. Both release the same values.',
    )
    address: str | None = Field(
        default=None, description='A Ray cluster, "auto" or "host:port"; one is started here if left out. Read by ray.'
    )
    agents_per_actor: Count = Field(default=1, description="Agents of one actor. Read by ray.")
    blocks: Count = Field(default=1, description="Blocks that agents are computed in. Read by local.")
    evaluate_every: Count = Field(
        default=10, description="Rounds from one evaluation to the next; the first and the last are always evaluated."
    )
    average: Count = Field(
        default=1,
        description=(
            "The mean of the last so many released values is evaluated and published. Read by gossip algorithms."
        ),
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description='Where models of minimax problems compute: "cpu" or "cuda".'
    )


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

    title: str = Field(default="", description="One line, for tables and reports.")
    description: str = Field(default="", description="What it shows, and how its public parameters were chosen.")
    seed: Seed | None = Field(
        default=None,
        description=(
            "Seed of all noise and of public draws; without one the noise is secret, as it must be on real records."
        ),
    )
    problem: ProblemTable = Field(description="The problem and its records.")
    topology: TopologyTable = Field(description="Who talks to whom.")
    algorithm: Annotated[
        Annotated[RegisteredAlgorithmTable, Tag("RegisteredAlgorithmTable")]
        | Annotated[OutsideAlgorithmTable, Tag("OutsideAlgorithmTable")],
        Discriminator(_which_table),
        _AlgorithmSchema(),
    ] = Field(description="How it is optimised.")
    privacy: PrivacyTable = Field(default=PrivacyTable(), description="What is guaranteed, and what it costs.")
    run: RunTable = Field(default=RunTable(), description="The engine, and which rounds are evaluated.")
    versions: dict[str, str] = Field(
        default={}, description="Versions of the software that wrote a run folder; not read."
    )

    # Where relative paths start: the folder of the file it was read from.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    # Component → what was handed over as a Python object, or found in a file; and the names of the former.
    _components: dict[str, Any] = PrivateAttr(default_factory=dict)
    _given: frozenset[str] = PrivateAttr(default=frozenset())
    # The kind and the entry of an algorithm from outside, once it is found: its file is run once.
    _outside: tuple[str, Any] | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path:
        return self._folder

    def resolve(self, path: str) -> Path:
        """A path in the scenario, seen from the scenario's folder, or from here where there is nothing."""
        if "\0" in path:
            raise InputError(f"scenario: {quoted(path)} is no path, for it has a NUL character. Take it out.")
        path = os.path.expanduser(path)
        extra = self._folder / path
        return Path(os.path.abspath(extra if is_there(extra) else path))

    def image_files(self) -> dict[str, Any] | None:
        """The table problem.files, its paths absolute and its URLs as they are."""
        # Only here: every command imports this module, and few need the data.
        from decentral_dp.data.fetch import is_url

        if self.problem.files is None:
            return None
        table = self.problem.files.model_dump(exclude_none=True)
        places = {key: place for key, place in table.items() if key != "sha256"}
        return table | {key: place if is_url(place) else str(self.resolve(place)) for key, place in places.items()}

    @staticmethod
    def _file_of(kind: str) -> str | None:
        """The file of "file.py:Name"."""
        place = in_file(kind)
        return place.file if place is not None else None

    def files(self) -> dict[tuple[str, ...], Path]:
        """(table, …, key) → absolute path, for every value that names a file that is there."""
        problem = self.problem
        named: dict[tuple[str, ...], Any] = {
            ("problem", "model", "file"): problem.model.file if problem.model is not None else None,
            ("problem", "data"): problem.data if problem.data.lower().endswith((".csv", ".npz")) else None,
            ("problem", "scale"): problem.scale if str(problem.scale).lower().endswith(".csv") else None,
            ("problem", "losses"): problem.losses,
            ("problem", "loss"): problem.loss if str(problem.loss).lower().endswith(".py") else None,
            ("topology", "file"): self.topology.file,
            ("algorithm", "kind"): self._file_of(self.algorithm.kind),
        }
        mechanism = in_file(self.privacy.mechanism_kind)
        if mechanism is not None:
            table = () if isinstance(self.privacy.mechanism, str) else ("kind",)
            named["privacy", "mechanism", *table] = mechanism.file
        for place, written in (
            (("problem", "kind"), problem.kind),
            (("problem", "data"), problem.data),
            (("problem", "partition"), problem.partition),
            (("topology", "kind"), self.topology.kind),
        ):
            if isinstance(written, str) and (inside := in_file(written)) is not None:
                named[place] = inside.file
        found = {place: self.resolve(name) for place, name in named.items() if isinstance(name, str)}
        return {place: path for place, path in found.items() if is_file(path)}


def put(content: dict[str, Any], place: Sequence[str], value: str) -> None:
    """Set the file that is named at (table, …, key); of "file.py:Name" the file alone."""
    *tables, key = place
    for table in tables:
        content = content[table]
    named = in_file(str(content[key]))
    content[key] = value if named is None else f"{value}:{named.name}"


def by_channel(table: Mapping[Channel, float]) -> dict[str, float]:
    return {str(channel): value for channel, value in table.items()}


def is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # A name too long for the file system, for one.
        return False


def is_file(path: Path) -> bool:
    return is_there(path) and path.is_file()
