"""The tables of a scenario and what each key may be. Unknown keys are refused, and nothing is converted silently."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    create_model,
    model_validator,
)

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


class Partition(Table):
    """How records are dealt to agents: iid, by_class (share), dirichlet (alpha), or column (name)."""

    kind: Literal["iid", "by_class", "dirichlet", "column"]
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    alpha: Positive | None = None
    name: str | None = None

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

    column: str


class StreamTable(Table):
    """accumulate: `batch` new records a round after the first `warm_start`; minibatch: a fresh sample each round."""

    kind: Literal["accumulate", "all", "minibatch"] = "accumulate"
    batch: Count | None = None
    warm_start: Annotated[int, Field(ge=0)] = 0


class Synthetic(Table):
    """Size of the synthetic families: features, records per agent, held-out records, distance of the class means.

    Environments have records, which are trajectories, and steps, after which each is cut off.
    """

    dimension: Count | None = None
    records: Count | None = None
    test_records: Count | None = None
    separation: NonNegative | None = None
    steps: Count | None = None


class ImageFiles(Table):
    """Where the files of a collection of images are: a folder, or each by path or URL; sha256 by key or file name.

    attributes, features and partition are celeba's: its lists, and features of your own.
    """

    folder: str | None = None
    images: str | None = None
    labels: str | None = None
    test_images: str | None = None
    test_labels: str | None = None
    archive: str | None = None
    attributes: str | None = None
    features: str | None = None
    partition: str | None = None
    sha256: dict[str, str] = {}


class ModelTable(Table):
    """A model of a minimax problem: its weights are x (a critic's: y).

    linear; mlp (hidden: units of each layer); resnet (width: channels of the first stage, depth: blocks of each of its
    three stages), with group normalisation; torch (file and name: a function of (n_features, outputs) that returns a
    torch module).
    """

    kind: Literal["linear", "mlp", "resnet", "torch"] = "linear"
    hidden: list[Count] | None = None
    width: Count | None = None
    depth: Count | None = None
    file: str | None = None
    name: str | None = None

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
    """Other records made of the data's own, by their labels; which test records there are is settled before.

    positive: these classes are 1, the others 0. share: of the positive train records so many are kept that they are
    this share of all. keep: class → how many of its train records are kept, the last ones; of others all. tail: train
    records of the k-th of K classes, from 0, are kept to a share tail^(k/(K−1)). One of share, keep and tail at most.
    """

    positive: list[int | float | str] | None = None
    share: Share | None = None
    keep: dict[str, Count] | None = None
    tail: Share | None = None


class ProblemTable(Table):
    """What is optimised, over which records."""

    kind: str
    data: str
    # Left out: mnist, fashion_mnist and cifar10 are looked for in DECENTRAL_DP_DATA, and digits stand in; so is
    # celeba, without a stand-in.
    files: ImageFiles | None = None
    # The first so many records, and at most as many of a test set of the data's own.
    limit: Count | None = None
    label: str | None = None
    classes: list[int | float | str] | None = None
    # Left out: by the data's own agent and split columns where it has them, else iid and one half.
    partition: Literal["iid"] | Partition | None = None
    validation: Share | Column | None = None
    test: Annotated[float, Field(ge=0, lt=1)] | None = None
    # "none", "public_ranges", "standard", a ranges CSV, or a table feature -> [low, high].
    scale: str | dict[str, list[float] | dict[str, float | bool]] = "none"
    normalise: Literal["none", "l1", "l2", "box"] = "none"
    stream: Literal["all"] | StreamTable = "all"
    intercept: bool = False
    ridge: Positive | None = None
    # Labels that are numbers are cut at ± this bound, for algorithms that need one.
    label_bound: Positive | None = None
    # Groups of train records of each agent, and the share of all groups whose labels are replaced.
    groups: Count | None = None
    corrupt: Annotated[float, Field(ge=0, le=1)] | None = None
    losses: str | None = None
    # Classes of each task, numbered from 0 in the order declared; or how many tasks to draw, of so many ways each.
    tasks: Count | list[list[Annotated[int, Field(ge=0)]]] | None = None
    ways: Annotated[int, Field(ge=2)] | None = None
    # Channels of every convolutional block, or hidden units where records are no images.
    width: Count | None = None
    # Of minimax problems: the model; other records made of the data's own; the public share of positive records,
    # or "released": a noisy one, at a price; or "empirical": counted from the records, which nothing certifies.
    model: ModelTable | None = None
    construction: ConstructionTable | None = None
    positive_share: Share | Literal["released", "empirical"] | None = None
    # Public shares of the groups of group DRO, which are the classes; equal ones if left out.
    group_shares: list[Share] | None = None
    # Of WGANs: the generator's hidden units, layer by layer.
    generator: list[Count] | None = None
    # Of distributionally robust problems: the divergence with its order or level, its strength λ, the loss, its cap,
    # and the radius of a ball of distributions.
    divergence: str | None = None
    order: Finite | None = None
    level: Share | None = None
    strength: Positive | None = None
    loss: str | None = None
    cap: Positive | None = None
    radius: Positive | None = None
    # The discount of temporal differences, numbers that a generator is fed, and its penalty.
    discount: Annotated[float, Field(ge=0, lt=1)] | None = None
    latent: Count | None = None
    penalty: NonNegative | None = None
    synthetic: Synthetic = Synthetic()
    seed: Seed | None = None


class TopologyTable(BaseModel):
    """A registered generator with its parameters, or a file; and the rule for the weights."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str | None = None
    file: str | None = None
    agents: Count | None = None
    weights: str | dict[str, Any] | None = None
    seed: Seed | None = None

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

    scale: NonNegative
    decay: NonNegative = 0.0


class DomainTable(Table):
    """Where x may be, for algorithms of a trusted coordinator: a box, a ball around 0, or the simplex."""

    kind: Literal["box", "ball", "simplex"]
    low: Finite | None = None
    high: Finite | None = None
    radius: Positive | None = None

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

    scale: Positive | list[Positive] | None = None
    decay: NonNegative | list[NonNegative] = 0.0
    decay_per_agent: Finite = 0.0


class PrivacyTable(Table):
    """The guarantee, and what it costs: a target epsilon, or noise scales of one's own."""

    guarantee: Literal["certified", "as_printed", "none"] = "certified"
    mechanism: Literal["laplace", "gaussian"] = "laplace"
    epsilon: Target | None = None
    delta: Annotated[float, Field(ge=0, lt=1)] = 1e-5
    # Of a problem without analytic ones, for a trusted coordinator: by name, and on the user's word.
    constants: dict[str, float] | None = None
    clip: dict[Channel, Positive] = {}
    box: dict[Channel, Finite] = {}
    share: dict[Channel, Positive] = {}
    cap: Positive | None = None
    x: Noise | None = None
    y: Noise | None = None
    z: Noise | None = None

    def noise(self, channel: str) -> Noise | None:
        found: Noise | None = getattr(self, channel)
        return found


class RunTable(Table):
    """Where it runs and what is looked at. average: evaluate the mean of the last so many released values."""

    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    agents_per_actor: Count = 1
    blocks: Count = 1
    evaluate_every: Count = 10
    average: Count = 1
    # Where models of minimax problems compute.
    device: Literal["cpu", "cuda"] = "cpu"


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

    title: str = ""
    description: str = ""
    seed: Seed | None = None
    problem: ProblemTable
    topology: TopologyTable
    algorithm: Annotated[
        Annotated[RegisteredAlgorithmTable, Tag("RegisteredAlgorithmTable")]
        | Annotated[OutsideAlgorithmTable, Tag("OutsideAlgorithmTable")],
        Discriminator(_which_table),
        _AlgorithmSchema(),
    ]
    privacy: PrivacyTable = PrivacyTable()
    run: RunTable = RunTable()
    versions: dict[str, str] = {}

    # Where relative paths start: the folder of the file it was read from.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
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
