"""Tables of a study file, and its cells: the scenarios of all combinations of axes and seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import tomli_w
from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError

from decentral_dp.config.loading import (
    ABSENT,
    assign,
    explain,
    find,
    key_parts,
    keys_named,
    parse_change,
    python_value,
    read_toml,
)
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, converting, quoted
from decentral_dp.files.durable import portable_path
from decentral_dp.files.package import versions
from decentral_dp.files.tables import Count, Finite, Line, Positive, Seed, Table

Label: TypeAlias = "str | int | float | bool"
Where = dict[str, Any]
FigureName = Annotated[
    str, Field(pattern=r"^[\w-]+$", description="Name of the figure's file: letters, digits, _ and -.")
]


class Variant(Table):
    """Named changes of the scenario."""

    name: str
    """Its name in tables, plots and claims."""

    scenario: str | None = None
    """Another base scenario, by name or path; by default the scenario of the study."""

    unset: list[str] = []
    """Keys to remove from the scenario, such as "privacy" or "algorithm.z"."""

    set: dict[str, Any] = {}
    """Key of the scenario → value, in every cell of this variant."""


class Plot(Table):
    """Figure of a study."""

    name: FigureName
    title: Line = ""
    """Title of the figure."""

    x: str = "round"
    """Horizontal axis: an axis of the grid, "round", or a measure; a measure such as "bits" is followed over the rounds
    that the study keeps."""

    y: str | list[str]
    """Measure on the vertical axis, or several."""

    lines: str | None = None
    """Axis with one line per value."""

    panels: str | None = None
    """Axis with one panel per value."""

    log: Literal["", "x", "y", "xy"] | None = None
    """Logarithmic axes: "x", "y", "xy", or "" for none; by default those of measures such as "optimality_gap"."""

    where: Where = {}
    """Axis → value, or values, to draw; by default all."""

    y_label: str = ""
    """Label of the vertical axis; by default the measure."""

    @property
    def measures(self) -> list[str]:
        return [self.y] if isinstance(self.y, str) else self.y


class SeriesStyle(Table):
    """Name and colour of a value in figures."""

    label: str | None = None
    """Name in figures; by default the value."""

    colour: str | None = None
    """Colour of its line, as matplotlib names it; by default from a palette for colour-vision deficiencies."""


Band: TypeAlias = Literal["t", "sd", "quantiles"]


class FigureStyle(Table):
    """Style of all figures."""

    width: Annotated[float, Field(gt=1, le=100)] | None = None
    """Width of a figure in inches, such as 3.3 or 7; by default, panels and legend determine it."""

    columns: Count | None = None
    """Panels side by side; 1 stacks them. By default up to three, as the width allows."""

    band: Band = "t"
    """Band or bar over seeds: "t" (mean, Student's 95 % interval), "sd" (mean ± standard deviation) or "quantiles"
    (median, quartiles). Gains keep "t"."""

    labels: dict[
        str,
        Annotated[SeriesStyle, BeforeValidator(lambda value: {"label": value} if isinstance(value, str) else value)],
    ] = {}
    """Value of an axis, axis or measure → name in figures, or { label, colour }. Lines and panels have the order of
    this table, then that of the study."""

    matplotlib: dict[str, Any] = {}
    """Settings of matplotlib: of fonts, text, axes, ticks, legends, lines and grids, such as font.size or
    text.usetex."""


class Side(Table):
    """Mean of a measure over the seeds of the cells with these values."""

    measure: str
    """Measure to average over seeds."""

    where: Where = {}
    """Axis → value of the cells."""

    best: str | None = None
    """Axis whose value with the highest mean is taken, as non-private tuning would."""

    round: Annotated[int, Field(ge=0)] | None = None
    """Round of the measure; by default the last."""


class Claim(Table):
    """Comparison of two means."""

    statement: str
    """The claim in words."""

    left: Side
    """Left side of the comparison."""

    compare: Annotated[Literal["less", "greater", "within"], Field(alias="is")]
    """ "less": left < factor · right; "greater": left > factor · right; "within": right/factor ≤ left ≤ factor · right.
    """

    right: Side | Finite
    """Right side of the comparison: another mean, or a number."""

    factor: Positive = 1.0
    """Factor of the comparison, above 0."""


class Pair(Table):
    """Two variants that are compared seed by seed."""

    name: str
    """Name of the comparison."""

    of: str
    """Variant with the gain."""

    over: str
    """Variant with which it is compared."""


class Gain(Table):
    """Paired differences between variants, level by level."""

    name: FigureName
    title: Line = ""
    """Title of the figure."""

    measure: str
    """Measure of the differences."""

    where: dict[str, Label] = {}
    """Axis → value of the cells; by default all."""

    x: str
    """Axis of the grid on the horizontal axis. It must be numeric if there is a y."""

    y: str | None = None
    """Numeric axis of the grid on the vertical axis; by default the gain itself, as lines."""

    pairs: Annotated[list[Pair], Field(min_length=1)]
    """Comparisons, with one panel or line each."""

    @property
    def axes(self) -> list[str]:
        return [axis for axis in (self.x, self.y) if axis is not None]


class Study(Table):
    """A study; see `decentral_dp.studies`."""

    title: Line = ""
    """Title of tables and figures."""

    description: str = ""
    """Question and set-up."""

    scenario: str
    """The base scenario: a shipped name, or a path from the study's folder."""

    kind: Literal["run", "plan"] = "run"
    """ "run": every cell is run; "plan": only its ε is computed."""

    seeds: Count | list[Seed] = 1
    """Number of seeds (1, 2, …), or their list."""

    rounds: Literal["last", "all"] | list[Count] = "last"
    """Rounds with values, for plots with x = "round" and claims at a round. "last": only the end; "all": every
    evaluated round of a run, and 1, 2, 5, 10, … of a plan; or a list, of which runs keep the evaluated rounds."""

    measure: list[str] = []
    """Measures of the tables, of `list measures`; those of plots and claims are measured, too."""

    unset: list[str] = []
    """Keys to remove from every scenario."""

    set: dict[str, Any] = {}
    """Key of the scenario → value, in every cell."""

    grid: dict[str, Any] = {}
    """Axes: key of the scenario → list of values, in all combinations."""

    variants: list[Variant] = []
    """Named changes, as one more axis."""

    where: list[Where] = []
    """Parts of the grid to run, each as axis → value, or values; by default the whole grid."""

    plots: list[Plot] = []
    """Figures to draw."""

    style: FigureStyle = FigureStyle()
    """Width, panels, bands, names and fonts of all figures."""

    gains: list[Gain] = []
    """Paired differences between variants."""

    claims: list[Claim] = []
    """Claims to check."""

    versions: dict[str, str] = {}
    """Versions of the software that wrote the folder; not read."""

    # Start of relative paths: the folder of the study file.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def folder(self) -> Path:
        return self._folder

    def covers(self, labels: Mapping[str, Label]) -> bool:
        """Return whether a combination belongs to a part of the grid that is run."""
        return not self.where or any(
            all(labels[axis] in (wanted if isinstance(wanted, list) else [wanted]) for axis, wanted in part.items())
            for part in self.where
        )

    @property
    def seed_list(self) -> list[int]:
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else self.seeds


def load_study(study: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Study:
    """Read and validate a study.

    Args:
        study: path, shipped name, or dict of the same shape.
        overrides: changes "key=value" to keys of the study ("seeds=2"), or to keys of the scenario in every cell.

    Raises:
        InputError: the file cannot be read, or a value is invalid.

    Example:
        >>> study = load_study({"scenario": "quadratic", "seeds": 1}, ["seeds=3", "algorithm.rounds=7"])
        >>> study.seed_list, study.set
        ([1, 2, 3], {'algorithm': {'rounds': 7}})
    """
    if isinstance(study, Mapping):
        folder, content = Path.cwd(), python_value(dict(study))
    else:
        path = find(str(study), "study")
        folder, content = path.resolve().parent, read_toml(path, "study")
    for override in overrides:
        keys, value = parse_change(override)
        is_key = keys[0] in Study.model_fields
        content = assign(content, keys if is_key else ["set", *keys], value)
    with converting(ValidationError, lambda error: explain(error, Study)):
        loaded = Study.model_validate(content)
    with converting(TypeError, lambda error: f"study: {error}. Fix: use numbers, text, lists and tables."):
        # The folder keeps it as a TOML file.
        tomli_w.dumps(loaded.model_dump(exclude_none=True, by_alias=True))
    loaded._folder = folder
    return loaded


def to_toml(study: Study, out: Path | None = None) -> str:
    """Return the study as TOML with all defaults and the versions.

    Args:
        study: loaded study.
        out: folder to which paths of scenario files are relative; by default the folder of the study.
    """
    content = study.model_dump(exclude_none=True, by_alias=True)
    content["versions"] = versions()
    for table in (content, *content["variants"]):
        candidate = study.folder / Path(table.get("scenario", "")).expanduser()
        if candidate.is_file():
            full, home = candidate.resolve(), study.folder.resolve()
            if out is not None:
                table["scenario"] = portable_path(full, out.resolve())
            elif full.is_relative_to(home):
                table["scenario"] = full.relative_to(home).as_posix()
    return tomli_w.dumps(content)


VARIANT = "variant"
# Columns of tables, which no axis may have.
RESERVED = (
    *("cell", "seed", "round", "last", "name", "value", "n", "cells", "failed", "mean", "low", "high", "interval"),
    *("status", "reason", "seconds"),
)
MOST_CELLS = 100_000
# Tables that a new kind or file replaces.
_TABLES_OF_KINDS = ("topology", "partition", "sampling", "weights")


class Axis(NamedTuple):
    """Axis of the grid.

    Args:
        name: key of the scenario, or "variant".
        labels: labels of the values, all different.
        values: values of the axis in the study.
    """

    name: str
    labels: tuple[Label, ...]
    values: tuple[Any, ...]

    @property
    def is_numeric(self) -> bool:
        """Whether all labels are numbers."""
        return are_numbers(self.labels)


class Cell(NamedTuple):
    """Cell of a study.

    Args:
        labels: axis → label.
        seed: seed of the run.
        content: content of its scenario, before validation.
        folder: folder to which relative paths refer.
    """

    labels: Mapping[str, Label]
    seed: int
    content: dict[str, Any]
    folder: Path


def axes(study: Study) -> list[Axis]:
    """List the axes: variants first, then the keys of the grid.

    Raises:
        InputError: an axis has no values, or a reserved or repeated name.

    Example:
        >>> from decentral_dp.studies.schema import load_study
        >>> study = load_study({"scenario": "quadratic", "grid": {"algorithm.rounds": [1, 2]}, "seeds": 2})
        >>> [(axis.name, axis.labels) for axis in axes(study)], len(cells(study))
        ([('algorithm.rounds', (1, 2))], 4)
    """
    all_axes = []
    if study.variants:
        names = tuple(v.name for v in study.variants)
        all_axes.append(Axis(VARIANT, names, names))
    settled = {path for table in (study.set, *(v.set for v in study.variants)) for path, _ in leaves(table)}
    for path, values in leaves(study.grid):
        name = ".".join(path)
        lost = [other for other in settled if other[: len(path)] == path]
        problem = ""
        if not isinstance(values, list) or not values:
            problem = f"got {quoted(values)}, expected a list of values"
        elif name in RESERVED:
            problem = 'cannot be varied here (seeds: "seeds")'
        elif path[0] not in Scenario.model_fields:
            problem = f"unknown key (expected {keys_named(path[-1]) or 'table.key'})"
        elif lost:
            problem = f"it would replace {'.'.join(lost[0])} of set, a variant or the grid"
        if problem:
            raise InputError(f"grid.{name}: {problem}. Fix: correct the grid, or use set.")
        settled.add(path)
        all_axes.append(Axis(name, label_all(values), tuple(values)))
    for axis in all_axes:
        if len(set(axis.labels)) < len(axis.labels):
            twice = next(label for k, label in enumerate(axis.labels) if label in axis.labels[:k])
            raise InputError(f"{axis.name}: {quoted(twice)} occurs twice. Fix: use distinct names.")
    return all_axes


def cells(study: Study) -> list[Cell]:
    """List all combinations, each with all seeds.

    Raises:
        InputError: seeds repeat, or there are no cells or more than MOST_CELLS cells.
    """
    varied = axes(study)
    seeds = study.seed_list
    count = math.prod([len(seeds), *(len(axis.values) for axis in varied)])
    problem = ""
    if not seeds or len(set(seeds)) < len(seeds):
        problem = (
            f"seeds: invalid (got {quoted(seeds)}, expected a number of seeds, or a list of distinct seeds). Fix: "
            "use for example seeds = 5."
        )
    elif count > MOST_CELLS:
        problem = f"grid: too many cells (got {count}, expected at most {MOST_CELLS}). Fix: vary fewer keys at a time."
    if problem:
        raise InputError(problem)
    bases = {v.name: _base(study, v) for v in study.variants} or {"": _base(study, None)}
    covered = []
    for chosen in itertools.product(*(zip(a.labels, a.values, strict=True) for a in varied)):
        labels = {axis.name: label for axis, (label, _) in zip(varied, chosen, strict=True)}
        content, folder = bases[str(labels.get(VARIANT, ""))]
        for axis, (_, value) in zip(varied, chosen, strict=True):
            if axis.name != VARIANT:
                content = assign(content, key_parts(axis.name), value)
        if study.covers(labels):
            covered += [Cell(labels, seed, {**content, "seed": seed}, folder) for seed in seeds]
    if not covered:
        raise InputError(
            "where: no combination of the grid matches. Fix: correct it, or remove it to run the whole grid."
        )
    return covered


def _base(study: Study, variant: Variant | None) -> tuple[dict[str, Any], Path]:
    """Return the content and folder of a scenario, changed by the study and then by the variant."""
    name = variant.scenario if variant is not None and variant.scenario is not None else study.scenario
    candidate = study.folder / Path(name).expanduser()
    path = candidate if candidate.is_file() else find(name)
    content = read_toml(path)
    for part in (study, variant):
        if part is not None:
            for key in part.unset:
                content = assign(content, key_parts(key), ABSENT)
            content = merge(content, part.set)
    return content, path.resolve().parent


def merge(old: Mapping[str, Any], new: Mapping[str, Any], top: bool = True) -> dict[str, Any]:
    """Merge `new` into `old`, table by table; a key "a.b" at the top is nested.

    Args:
        old: content of a scenario, which is not changed.
        new: key → value. A table with its own kind or file replaces the old table.
        top: whether keys with dots are nested; default True.

    Example:
        >>> merge({"algorithm": {"rounds": 5}}, {"algorithm.protocol": "released"})
        {'algorithm': {'rounds': 5, 'protocol': 'released'}}
    """
    out = dict(old)
    for dotted, value in new.items():
        key, *rest = key_parts(dotted) if top else [dotted]
        for name in reversed(rest):
            value = {name: value}
        before = out.get(key)
        anew = key in _TABLES_OF_KINDS and isinstance(value, Mapping) and ("kind" in value or "file" in value)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and not anew:
            value = merge(before, value, top=False)
        out[key] = value
    return out


def leaves(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """List all values as (parts of the key, value); a key "a.b" at the top is nested.

    Example:
        >>> list(leaves({"a": {"b": 1}, "c.d": 2}))
        [(('a', 'b'), 1), (('c', 'd'), 2)]
    """
    for written, value in table.items():
        path = (*above, written) if above else tuple(key_parts(written))
        if isinstance(value, Mapping):
            yield from leaves(value, path)
        else:
            yield path, value


def are_numbers(values: Sequence[Any]) -> bool:
    """Return whether all values are numbers and none is a boolean."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def label_all(values: Sequence[Any]) -> tuple[Label, ...]:
    """Return labels of values: scalars unchanged, tables by their kind or file and the keys that differ.

    Example:
        >>> label_all([{"kind": "ring", "agents": 10}, {"kind": "ring", "agents": 20}])
        ('ring agents 10', 'ring agents 20')
        >>> label_all([0.1, 1])
        (0.1, 1)
    """
    if are_numbers(values):
        return tuple(values)
    named = [(_name(v), v) for v in values]
    return tuple(_label(name, v, [o for n, o in named if n == name]) for name, v in named)


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("kind") or value.get("file") or "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _label(name: str, value: Any, others: Sequence[Any]) -> str:
    if not isinstance(value, Mapping):
        return name
    tables = [a for a in others if isinstance(a, Mapping)]
    differ = [k for k in value if k not in ("kind", "file") and any(t.get(k) != value[k] for t in tables)]
    keys = differ or ([] if name else list(value))
    parts = (f"{k} {value[k]:g}" if isinstance(value[k], float) else f"{k} {value[k]}" for k in keys)
    return " ".join([name, *parts]).strip()
