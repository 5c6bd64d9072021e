"""Scenario files: the schema, how a file (or a name) becomes a `Scenario`, and how mistakes are worded.

A scenario is TOML with the tables problem, topology, algorithm, privacy and run. Unknown keys are refused with the
nearest valid name, wrong values with their name, value and constraint. `overrides` are `--set table.key=value`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from decentral_dp.errors import InputError

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
    """Size of the synthetic families: features, records per agent, held-out records, distance of the class means."""

    dimension: Count | None = None
    records: Count | None = None
    test_records: Count | None = None
    separation: NonNegative | None = None


class ProblemTable(Table):
    """What is optimised, over which records."""

    kind: str
    data: str
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
    losses: str | None = None
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
            raise ValueError("give either kind (a generator) or file (a GraphML, an edge list or a named network)")
        if self.kind is not None and self.agents is None:
            raise ValueError("a generator needs agents")
        return self


class Step(Table):
    """Step size λ_t = scale/(t+1)^decay."""

    scale: NonNegative
    decay: NonNegative = 0.0


class AlgorithmTable(Table):
    """Which algorithm, for how many rounds, with which step sizes and constant start."""

    kind: str
    rounds: Count
    x: Step
    y: Step
    z: Step
    init: dict[Channel, Finite] = {}
    protocol: Literal["released", "private"] = "released"


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


class Scenario(Table):
    """One experiment, complete. Without `seed` the noise is secret."""

    title: str = ""
    description: str = ""
    seed: Seed | None = None
    problem: ProblemTable
    topology: TopologyTable
    algorithm: AlgorithmTable
    privacy: PrivacyTable = PrivacyTable()
    run: RunTable = RunTable()
    versions: dict[str, str] = {}

    # Where relative paths start: the folder of the file it was read from.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def folder(self) -> Path:
        return self._folder

    def resolve(self, path: str) -> Path:
        """A path in the scenario, seen from the scenario's folder, or from here where there is nothing."""
        if "\0" in path:
            raise InputError(f"scenario: {_short(path)} is no path, for it has a NUL character. Take it out.")
        path = os.path.expanduser(path)
        beside = self._folder / path
        return Path(os.path.abspath(beside if _is_there(beside) else path))

    def files(self) -> dict[tuple[str, str], Path]:
        """(table, key) → absolute path, for every value that names a file that is there."""
        problem = self.problem
        named = {
            ("problem", "data"): problem.data if problem.data.lower().endswith((".csv", ".npz")) else None,
            ("problem", "scale"): problem.scale if str(problem.scale).lower().endswith(".csv") else None,
            ("problem", "losses"): problem.losses,
            ("topology", "file"): self.topology.file,
        }
        found = {place: self.resolve(name) for place, name in named.items() if isinstance(name, str)}
        return {place: path for place, path in found.items() if _is_file(path)}


def by_channel(table: Mapping[Channel, float]) -> dict[str, float]:
    return {str(channel): value for channel, value in table.items()}


def scenario_folder() -> Path:
    """Where the shipped scenarios are: in the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "scenarios"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "scenarios"


def scenario_names() -> list[str]:
    return sorted(p.stem for p in scenario_folder().glob("*.toml"))


def find(name_or_file: str) -> Path:
    """The scenario file of that path or shipped name."""
    path = Path(name_or_file)
    if _is_file(path):
        return path
    if name_or_file in scenario_names():
        return scenario_folder() / f"{name_or_file}.toml"
    if path.suffix == ".toml" or _is_there(path):
        raise InputError(
            f"scenario: {_short(name_or_file)} is no file. Give the path of a .toml file, or one of "
            f"{_listed(scenario_names())}."
        )
    raise InputError(f"scenario: no scenario {_short(name_or_file)}{_nearest(name_or_file, scenario_names())}.")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # A name too long for the file system, for one.
        return False


def _is_file(path: Path) -> bool:
    return _is_there(path) and path.is_file()


def load(scenario: str | Path | Mapping[str, Any] | Scenario, overrides: Sequence[str] = ()) -> Scenario:
    """Read and validate a scenario: a path, a shipped name, or a dict of the same shape.

    overrides: "table.key=value" with a TOML value; a bare word counts as a string.
    Raises InputError with one sentence for whatever is wrong.
    """
    if isinstance(scenario, Scenario):
        folder, content = scenario.folder, scenario.model_dump(exclude_unset=True)
    elif isinstance(scenario, Mapping):
        folder, content = Path.cwd(), dict(scenario)
    else:
        path = find(str(scenario))
        folder, content = path.resolve().parent, _read(path)
    for override in overrides:
        content = _set(content, override)
    try:
        loaded = Scenario.model_validate(content)
    except ValidationError as error:
        raise InputError(_explain(error)) from None
    loaded._folder = folder
    return loaded


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"scenario: {path} is not valid TOML ({error}). Mend the file.") from None
    except UnicodeDecodeError:
        raise InputError(f"scenario: {path} is not text in UTF-8. Give a TOML file.") from None
    except OSError as error:
        raise InputError(f"scenario: {path} cannot be read ({error.strerror}). Give a TOML file.") from None


def _set(content: dict[str, Any], override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    keys = _dotted(key)
    if not equals or not all(keys):
        raise InputError(f"--set: got {_short(override)}, wanted table.key=value, for example algorithm.rounds=500.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text.strip()
    out = dict(content)
    table = out
    for name in keys[:-1]:
        inner = table.get(name, {})
        if not isinstance(inner, Mapping):
            raise InputError(
                f"--set: {_path(keys)} has {name} for a table, but it is a value; leave out what follows it."
            )
        table[name] = dict(inner)
        table = table[name]
    table[keys[-1]] = value
    return out


def _dotted(key: str) -> list[str]:
    """The parts of a TOML key: a."b.c" has two."""
    try:
        table = tomllib.loads(f"{key} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        return key.strip().split(".")
    parts = []
    while isinstance(table, dict):
        if len(table) != 1:  # A comment, or several lines: no key.
            return key.strip().split(".")
        name, table = next(iter(table.items()))
        parts.append(name)
    return parts


def _explain(error: ValidationError) -> str:
    """The most telling of pydantic's complaints, as one sentence."""
    complaints = error.errors(include_url=False)
    # An alternative of a union that was not meant complains too; the deepest complaint is about the one that was.
    first = max(complaints, key=lambda e: (e["type"] == "extra_forbidden", len(e["loc"]), e["type"] == "value_error"))
    names = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        path = _path([n for n in names[:-1] if _is_key(n)] + names[-1:])
        return f"{path}: unknown key{_nearest(names[-1], _valid_keys(names))}."
    path = _path([n for n in names if _is_key(n)])
    if first["type"] == "missing":
        return f"{path}: missing. Add it to the scenario."
    if first["type"] == "value_error":
        return f"{path}: {str(first['msg']).removeprefix('Value error, ')}."
    same = [e for e in complaints if _path([str(n) for n in e["loc"] if _is_key(str(n))]) == path]
    wanted = list(dict.fromkeys(_wanted(e) for e in same))
    return f"{path}: got {_short(first['input'])}, wanted {', or '.join(wanted)}."


_WANTED = {
    "model_type": "a table in braces",
    "dict_type": "a table in braces",
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "literal_error": "{expected}",
}


def _wanted(complaint: Any) -> str:
    if complaint["type"] in _WANTED:
        return _WANTED[complaint["type"]].format(**complaint.get("ctx", {})).replace("'", '"')
    return str(complaint["msg"]).removeprefix("Input should be ")


def _short(value: Any) -> str:
    """A value as it would stand in a scenario, cut off where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]} …"


def _path(names: Sequence[str]) -> str:
    """a.b."c d": parts that are no bare TOML keys are quoted."""
    return ".".join(n if re.fullmatch(r"[\w-]+", n) else _short(n) for n in names)


def _is_key(name: str) -> bool:
    """Whether a part of pydantic's location is a key or an index, not the name of a union's alternative."""
    return "[" not in name and name not in _ALTERNATIVES and not name.startswith("constrained-")


def _valid_keys(names: Sequence[str]) -> list[str]:
    """The keys of the table that the last name of a location was looked for in."""
    candidates: list[type[BaseModel]] = [Scenario]
    for name in names[:-1]:
        chosen = [t for t in candidates if t.__name__ == name]
        inner = [t for c in candidates if name in c.model_fields for t in _tables(c.model_fields[name].annotation)]
        candidates = chosen or inner or candidates
    return sorted({key for c in candidates for key in c.model_fields})


def _tables(annotation: Any) -> list[type[BaseModel]]:
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return [t for a in get_args(annotation) for t in _tables(a)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


_ALTERNATIVES = {"str", "int", "float", "bool"} | {
    name for name, value in list(globals().items()) if isinstance(value, type) and issubclass(value, Table)
}


def _nearest(name: str, valid: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if close:
        return f'; did you mean "{close[0]}"'
    return f". Valid: {_listed(valid)}" if valid else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)
