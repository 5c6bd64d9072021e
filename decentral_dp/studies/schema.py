"""The tables of a study file, and its cells: every combination of the axes, for every seed, as a scenario's content."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import tomli_w
from pydantic import Field, PrivateAttr, ValidationError

from decentral_dp.config.loading import (
    ABSENT,
    assign,
    explain,
    find,
    key_parts,
    parse_change,
    python_value,
    read_toml,
)
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.durable import portable_path
from decentral_dp.files.package import versions
from decentral_dp.files.tables import Count, Finite, Line, Positive, Seed, Table

Label: TypeAlias = "str | int | float | bool"
Where = dict[str, Any]
PictureName = Annotated[
    str, Field(pattern=r"^[\w-]+$", description="Name of the picture's file: letters, digits, _ and -.")
]


class Variant(Table):
    """A named bundle of changes: another base, keys taken out, keys set."""

    name: str
    """What tables, plots and claims call it."""

    scenario: str | None = None
    """Another base scenario, by name or path; the study's if left out."""

    unset: list[str] = []
    """Keys that are taken out of the scenario, such as "privacy" or "algorithm.z"."""

    set: dict[str, Any] = {}
    """Key of the scenario → value, in every run of this variant."""


class Plot(Table):
    """One picture."""

    name: PictureName
    title: Line = ""
    """Heading of the picture."""

    x: str = "round"
    """What is on the horizontal axis: an axis of the grid, "round", or a measured name."""

    y: str | list[str]
    """Measured name on the vertical axis, or several."""

    lines: str | None = None
    """Axis whose values are lines of their own. Where x is measured, what else varies at one x has own markers."""

    panels: str | None = None
    """Axis whose values are panels of their own."""

    log: Literal["", "x", "y", "xy"] = ""
    """Which axes are logarithmic: "x", "y", "xy", or "" for none."""

    where: Where = {}
    """Axis → value, or values, that are drawn; all if left out."""

    y_label: str = ""
    """Words on the vertical axis; the measured name if left out."""

    @property
    def measures(self) -> list[str]:
        return [self.y] if isinstance(self.y, str) else self.y


class Side(Table):
    """The mean of a measured name over the seeds of the cells where axes have these values."""

    measure: str
    """Measured name whose mean over seeds is taken."""

    where: Where = {}
    """Axis → value of the runs that count."""

    best: str | None = None
    """Axis of whose values the one with the highest mean is taken, as who tunes by these numbers would."""

    round: Annotated[int, Field(ge=0)] | None = None
    """Round at which it is measured; the last if left out."""


class Claim(Table):
    """A comparison of two means, with a verdict."""

    statement: str
    """The claim in words."""

    left: Side
    """What is compared."""

    compare: Annotated[Literal["less", "greater", "within"], Field(alias="is")]
    """ "less": left < factor · right; "greater": left > factor · right; "within": right/factor ≤ left ≤ factor · right.
    """

    right: Side | Finite
    """What it is compared with: another mean, or a number."""

    factor: Positive = 1.0
    """The factor of the comparison, above 0."""


class Pair(Table):
    """Two variants that are compared seed by seed."""

    name: str
    """What tables and pictures call the comparison."""

    of: str
    """The variant whose gain is asked for."""

    over: str
    """The variant that it is a gain over."""


class Gain(Table):
    """Paired differences between variants, level by level, as a table and a phase diagram."""

    name: PictureName
    title: Line = ""
    """Heading of the picture."""

    measure: str
    """Measured name whose differences are taken."""

    where: dict[str, Label] = {}
    """Axis → value of the runs that count; all if left out."""

    x: str
    """Axis of the grid on the horizontal axis; of numbers, where there is a y."""

    y: str | None = None
    """Axis of the grid, of numbers, on the vertical axis; left out: the gain itself, as lines."""

    pairs: Annotated[list[Pair], Field(min_length=1)]
    """What is compared: one panel, or line, each."""

    @property
    def axes(self) -> list[str]:
        return [axis for axis in (self.x, self.y) if axis is not None]


class Study(Table):
    """A study, complete; see the package's description."""

    title: Line = ""
    """One line, for tables and pictures."""

    description: str = ""
    """What is asked, and how it was set up."""

    scenario: str
    """The base scenario: a shipped name, or a path from the study's folder."""

    kind: Literal["run", "plan"] = "run"
    """ "run": every scenario is run; "plan": it is only priced."""

    seeds: Count | list[Seed] = 1
    """Number of seeds (1, 2, …), or their list."""

    rounds: Literal["last", "all"] | list[Count] = "last"
    """Rounds whose values are kept, and at which plans are priced, for plots with x = "round" and claims at a round.
    "last": the end alone; "all": of runs every round that is evaluated, of plans 1, 2, 5, 10, …; or a list, of which
    runs keep those that are evaluated."""

    measure: list[str] = []
    """Measured names that tables show, of `show measures`; those of plots and claims are measured, too."""

    unset: list[str] = []
    """Keys that are taken out of every scenario."""

    set: dict[str, Any] = {}
    """Key of the scenario → value, in every run."""

    grid: dict[str, Any] = {}
    """Axes: key of the scenario → list of values; every combination is run."""

    variants: list[Variant] = []
    """Named bundles of changes, as one more axis."""

    where: list[Where] = []
    """Parts of the grid that are run, each as axis → value, or values; the whole grid if left out."""

    plots: list[Plot] = []
    """Pictures to draw."""

    gains: list[Gain] = []
    """Paired differences between variants, with phase diagrams."""

    claims: list[Claim] = []
    """Claims to check, each with a verdict."""

    versions: dict[str, str] = {}
    """Versions of the software that wrote a results folder; not read."""

    # Where the names of scenario files start: the folder of the study file. What --set changed in the scenarios.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def folder(self) -> Path:
        return self._folder

    def covers(self, labels: Mapping[str, Label]) -> bool:
        """Whether a combination of the axes lies in a part of the grid that is run."""
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
        study: a path, a shipped name, or a dict of the same shape.
        overrides: "key=value"; a key of the study ("seeds=2"), or else one of the scenario, set in every cell.

    Raises:
        InputError: one sentence for whatever is wrong.

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
        own = keys[0] in Study.model_fields
        content = assign(content, keys if own else ["set", *keys], value)
    try:
        loaded = Study.model_validate(content)
        tomli_w.dumps(loaded.model_dump(exclude_none=True, by_alias=True))
    except ValidationError as error:
        raise InputError(explain(error, Study)) from None
    except TypeError as error:
        # Its folder keeps it as a file.
        raise InputError(f"study: {error}; wanted numbers, text, lists and tables, as a TOML file has them.") from None
    loaded._folder = folder
    return loaded


def to_toml(study: Study, out: Path | None = None) -> str:
    """Print the study as TOML with every default filled in and the versions.

    Args:
        study: as loaded.
        out: the folder that the text is for, from which it names scenario files; without one it names them from the
            study's folder where they lie in it.

    Returns:
        The text.
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
# Columns of the tables that are no axes.
RESERVED = (
    *("cell", "seed", "round", "last", "name", "value", "n", "cells", "failed", "mean", "low", "high", "interval"),
    *("status", "reason", "seconds"),
)
MOST_CELLS = 100_000
# Tables of one of several kinds: a new kind takes nothing over from another.
_TABLES_OF_KINDS = ("topology", "partition", "stream", "weights")


class Axis(NamedTuple):
    """A key that varies.

    Args:
        name: the key, or "variant".
        labels: its values as tables and pictures name them, all different.
        values: as they stand in the study.
    """

    name: str
    labels: tuple[Label, ...]
    values: tuple[Any, ...]

    @property
    def is_numeric(self) -> bool:
        """Whether all its labels are numbers."""
        return are_numbers(self.labels)


class Cell(NamedTuple):
    """One run of a study.

    Args:
        labels: axis → label.
        seed: of the run.
        content: of its scenario, not yet validated.
        folder: where its paths start.
    """

    labels: Mapping[str, Label]
    seed: int
    content: dict[str, Any]
    folder: Path


def axes(study: Study) -> list[Axis]:
    """List what varies: the variants first, then the grid's keys in their order.

    Raises:
        InputError: a key that no scenario has, or an axis without values.

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
        elif lost:
            problem = f"it would replace {'.'.join(lost[0])}, which set, a variant or the grid gives before"
        if problem:
            raise InputError(f"grid.{name}: {problem}. Fix: correct the grid, or use set.")
        settled.add(path)
        all_axes.append(Axis(name, label_all(values), tuple(values)))
    for axis in all_axes:
        if len(set(axis.labels)) < len(axis.labels):
            twice = next(label for k, label in enumerate(axis.labels) if label in axis.labels[:k])
            raise InputError(f"{axis.name}: {quoted(twice)} is there twice. Fix: give every value a name of its own.")
    return all_axes


def cells(study: Study) -> list[Cell]:
    """List all combinations for all seeds; the seeds of one combination follow each other.

    Raises:
        InputError: a key that no scenario has, repeated seeds, or more than MOST_CELLS cells.
    """
    varied = axes(study)
    seeds = study.seed_list
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds: got {quoted(seeds)}, expected a number of seeds, or a list without repetition.")
    count = math.prod([len(seeds), *(len(axis.values) for axis in varied)])
    if count > MOST_CELLS:
        raise InputError(f"grid: {count} cells are more than {MOST_CELLS}. Vary fewer keys at a time.")
    bases = {v.name: _base(study, v) for v in study.variants} or {"": _base(study, None)}
    covered = [cell for cell in _combinations(varied, bases, seeds) if study.covers(cell.labels)]
    if not covered:
        raise InputError(
            "where: no combination of the grid lies in a part of it. Leave where out to run the whole grid."
        )
    return covered


def _combinations(
    varied: Sequence[Axis], bases: Mapping[str, tuple[dict[str, Any], Path]], seeds: Sequence[int]
) -> Iterator[Cell]:
    for chosen in itertools.product(*(zip(a.labels, a.values, strict=True) for a in varied)):
        at = {axis.name: label for axis, (label, _) in zip(varied, chosen, strict=True)}
        content, folder = bases[str(at.get(VARIANT, ""))]
        for axis, (_, value) in zip(varied, chosen, strict=True):
            if axis.name != VARIANT:
                content = assign(content, key_parts(axis.name), value)
        for seed in seeds:
            yield Cell(at, seed, {**content, "seed": seed}, folder)


def _base(study: Study, variant: Variant | None) -> tuple[dict[str, Any], Path]:
    """The content and folder of a scenario, with what the study and then the variant change in it."""
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
    """Merge `new` into `old`, table by table; at the top a key such as "a.b" counts as what it spells.

    Args:
        old: a scenario's content, not changed.
        new: key → value. A tagged table with a kind or file of its own takes nothing over.
        top: whether keys with dots are spelled out; default yes.

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
    """List (parts of the key, value) of what is not a table itself; at the top a key such as "a.b" is what it spells.

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
    """Whether all are numbers, truth values aside."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def label_all(values: Sequence[Any]) -> tuple[Label, ...]:
    """Name values: scalars as they are, tables by kind or file and by what tells them from others of the kind.

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
    shown = differ or ([] if name else list(value))
    parts = (f"{k} {value[k]:g}" if isinstance(value[k], float) else f"{k} {value[k]}" for k in shown)
    return " ".join([name, *parts]).strip()
