"""Cells of a study: every combination of the axes, for every seed, as the content of a scenario."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin

from pydantic import BaseModel

from decentral_dp.config.loading import assign, dotted, find, load, nearest_of, read_toml, tables_in
from decentral_dp.config.schema import Scenario, TopologyTable
from decentral_dp.errors import InputError, quoted
from decentral_dp.studies.schema import Study, Variant
from decentral_dp.user_code import in_file, installed

Label: TypeAlias = "str | int | float | bool"
VARIANT = "variant"
# Columns of the tables that are no axes.
RESERVED = (
    *("cell", "seed", "round", "last", "name", "value", "n", "cells", "failed", "mean", "low", "high", "interval"),
    *("status", "reason", "seconds"),
)
MOST_CELLS = 100_000
# Table whose `kind` names a component → the groups of entry points that it may be in.
_KINDS = {"problem": ("problem", "objective"), "topology": ("topology",), "algorithm": ("algorithm",)}
# Tables of one of several kinds: a new kind takes nothing over from another.
_TAGGED = ("topology", "partition", "stream", "weights")


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
    found = []
    if study.variants:
        names = tuple(v.name for v in study.variants)
        if len(set(names)) < len(names):
            raise InputError(f"variants: two are called {quoted(_twice(names))}; give each a name of its own.")
        found.append(Axis(VARIANT, names, names))
    outside = _tables_from_outside(study)
    settled = {path for table in (study.set, *(v.set for v in study.variants)) for path, _ in leaves(table)}
    for path, values in leaves(study.grid):
        check_key(path, "grid", outside)
        name = ".".join(path)
        if not isinstance(values, list) or not values:
            raise InputError(
                f"grid.{name}: got {quoted(values)}, wanted a list of values; put it in brackets, or in set."
            )
        if name in RESERVED:
            raise InputError(f'grid.{name}: cannot be varied here. Use "seeds" for seeds.')
        lost = [other for other in settled if other[: len(path)] == path]
        if lost:
            raise InputError(
                f"grid.{name}: it would replace {'.'.join(lost[0])}, which set, a variant or the grid gives before. "
                "Keep one of the two, or put it into the values."
            )
        settled.add(path)
        found.append(Axis(name, label_all(values), tuple(values)))
        if len(set(found[-1].labels)) < len(values):
            raise InputError(f"grid.{name}: {quoted(_twice(found[-1].labels))} is there twice. Take one out.")
    return found


def _twice(names: Sequence[Label]) -> Label:
    return next(n for k, n in enumerate(names) if n in names[:k])


def cells(study: Study) -> list[Cell]:
    """List all combinations for all seeds; the seeds of one combination follow each other.

    Raises:
        InputError: a key that no scenario has, repeated seeds, or more than MOST_CELLS cells.
    """
    varied = axes(study)
    outside = _tables_from_outside(study)
    # What every cell has is refused at once; a variant's own mistake fails its own cells.
    for path, _ in leaves(study.set):
        check_key(path, "set", outside)
    for key in study.unset:
        check_key(tuple(dotted(key)), "unset", outside)
    # But what is taken out by a wrong name is missed by nobody, and its cells would run with what was to be left out.
    for variant in study.variants:
        for key in variant.unset:
            check_key(tuple(dotted(key)), f"variants.{variant.name}.unset", outside)
    seeds = study.seed_list
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds: got {quoted(seeds)}, wanted a number of seeds, or a list without repetition.")
    count = len(seeds)
    for axis in varied:
        count *= len(axis.values)
    if count > MOST_CELLS:
        raise InputError(f"grid: {count} cells are more than {MOST_CELLS}. Vary fewer keys at a time.")
    bases = {v.name: _base(study, v) for v in study.variants} or {"": _base(study, None)}
    found = list(_combinations(varied, bases, seeds))
    _check_lists(study, found[0])
    return found


def _check_lists(study: Study, cell: Cell) -> None:
    """Refuse a list that was meant as the values of an axis. Raises InputError."""
    lists = [".".join(path) for path, value in leaves(study.set) if isinstance(value, list)]
    if not lists:
        return
    try:
        load(cell.content, folder=cell.folder)
    except InputError as error:
        if any(str(error).startswith(f"{key}: got [") for key in lists):
            raise InputError(
                f"set.{error} A list under [set] is one value. Under [grid] its entries are tried one after the other."
            ) from None


def _combinations(
    varied: Sequence[Axis], bases: Mapping[str, tuple[dict[str, Any], Path]], seeds: Sequence[int]
) -> Iterator[Cell]:
    for chosen in itertools.product(*(zip(a.labels, a.values, strict=True) for a in varied)):
        at = {axis.name: label for axis, (label, _) in zip(varied, chosen, strict=True)}
        content, folder = bases[str(at.get(VARIANT, ""))]
        for axis, (_, value) in zip(varied, chosen, strict=True):
            if axis.name != VARIANT:
                content = assign(content, dotted(axis.name), value)
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
                content = _without(content, dotted(key))
            content = merged(content, part.set)
    return content, path.resolve().parent


def _without(content: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    out = dict(content)
    if len(keys) == 1:
        out.pop(keys[0], None)
    elif isinstance(out.get(keys[0]), Mapping):
        out[keys[0]] = _without(out[keys[0]], keys[1:])
    return out


def merged(old: Mapping[str, Any], new: Mapping[str, Any], top: bool = True) -> dict[str, Any]:
    """Merge `new` into `old`, table by table; at the top a key such as "a.b" counts as what it spells.

    Args:
        old: a scenario's content, not changed.
        new: key → value. A tagged table with a kind or file of its own takes nothing over.
        top: whether keys with dots are spelled out; default yes.

    Example:
        >>> merged({"algorithm": {"rounds": 5}}, {"algorithm.protocol": "released"})
        {'algorithm': {'rounds': 5, 'protocol': 'released'}}
    """
    out = dict(old)
    for written, value in new.items():
        key, *rest = dotted(written) if top else [written]
        for name in reversed(rest):
            value = {name: value}
        before = out.get(key)
        anew = key in _TAGGED and isinstance(value, Mapping) and ("kind" in value or "file" in value)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and not anew:
            value = merged(before, value, top=False)
        out[key] = value
    return out


def leaves(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """List (parts of the key, value) of what is not a table itself; at the top a key such as "a.b" is what it spells.

    Example:
        >>> list(leaves({"a": {"b": 1}, "c.d": 2}))
        [(('a', 'b'), 1), (('c', 'd'), 2)]
    """
    for written, value in table.items():
        path = (*above, written) if above else tuple(dotted(written))
        if isinstance(value, Mapping):
            yield from leaves(value, path)
        else:
            yield path, value


def _tables_from_outside(study: Study) -> set[str]:
    """The tables whose component is from outside in some cell, so that its keys are not all known here."""
    out = set()
    bases = []
    chosen: list[Variant | None] = [*study.variants] if study.variants else [None]
    for variant in chosen:
        try:
            bases.append(_base(study, variant)[0])
        except InputError:
            # Refused where the cells are made.
            continue
    varied = dict(leaves(study.grid))
    for table, groups in _KINDS.items():
        tables = [base.get(table) for base in bases]
        kinds = [t.get("kind") for t in tables if isinstance(t, Mapping)] + list(varied.get((table, "kind")) or [])
        texts = [kind for kind in kinds if isinstance(kind, str)]
        if any(in_file(kind) is not None or any(kind in installed(group) for group in groups) for kind in texts):
            out.add(table)
    return out


def _in_tables(name: str) -> str:
    """The key of a table that has this name, for who leaves the table out; empty where there is none."""
    for table, field in Scenario.model_fields.items():
        if any(name in inner.model_fields for inner in tables_in(field.annotation)):
            return f"{table}.{name}"
    return ""


def check_key(path: Sequence[str], where: str, outside: Collection[str] = ()) -> None:
    """Refuse a key that no scenario has, with the nearest one that it could be.

    Args:
        path: parts of the key.
        where: begins the message.
        outside: tables whose component is from outside; what its keys are is known when it is built.

    Raises:
        InputError: no scenario has the key.
    """
    if path[0] in outside and len(path) > 1:
        return
    candidates: list[type[BaseModel]] = [Scenario]
    for depth, name in enumerate(path):
        known = {key: f.annotation for c in candidates for key, f in c.model_fields.items()}
        free = set().union(*(_parameters(c) for c in candidates))
        if name in free and name not in known:
            return
        if name not in known:
            parts = ".".join(path[: depth + 1])
            meant = _in_tables(name) if depth == 0 else ""
            meant = f'; did you mean "{meant}"' if meant else nearest_of(name, sorted({*known, *free}))
            raise InputError(f"{where}.{parts}: no scenario has this key{meant}.")
        annotations = [c.model_fields[name].annotation for c in candidates if name in c.model_fields]
        candidates = [t for a in annotations for t in tables_in(a)]
        if depth + 1 < len(path) and not candidates:
            if any(_holds_keys(a) for a in annotations):
                return
            parts = ".".join(path[: depth + 1])
            raise InputError(f"{where}.{'.'.join(path)}: {parts} is a value, not a table; leave out what follows it.")


def _holds_keys(annotation: Any) -> bool:
    """Whether a value of this type may be a table of keys that depend on the case."""
    return get_origin(annotation) is dict or any(_holds_keys(a) for a in get_args(annotation))


def _parameters(table: type[BaseModel]) -> set[str]:
    """The keys that are not in the schema: what generators of graphs take."""
    from decentral_dp.topology import GENERATORS

    return {p.name for g in GENERATORS.values() for p in g.parameters} if table is TopologyTable else set()


def are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def label_all(values: Sequence[Any]) -> tuple[Label, ...]:
    """Name values: scalars as they are, tables by kind or file and by what tells them from others of the kind.

    Example:
        >>> label_all([{"kind": "ring", "agents": 10}, {"kind": "ring", "agents": 20}])
        ('ring agents 10', 'ring agents 20')
        >>> label_all([0.1, 1])
        (0.1, 1)
        >>> label_all(["ring", "my_graphs.py:wheel", "a/graphs.py:star", "b/graphs.py:star"])
        ('ring', 'wheel', 'a/graphs.py:star', 'b/graphs.py:star')
    """
    if are_numbers(values):
        return tuple(values)
    full = [_name(v) for v in values]
    named = list(zip(_without_files(full), values, strict=True))
    return tuple(_label(name, v, [o for n, o in named if n == name]) for name, v in named)


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("kind") or value.get("file") or "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_files(names: Sequence[str]) -> list[str]:
    """A component of a file by its own name, where no other value has that name too."""
    short = [parts[1] if (parts := in_file(name)) is not None else name for name in names]
    of: dict[str, set[str]] = {}
    for own, name in zip(short, names, strict=True):
        of.setdefault(own, set()).add(name)
    return [own if len(of[own]) == 1 else name for own, name in zip(short, names, strict=True)]


def _label(name: str, value: Any, alike: Sequence[Any]) -> str:
    if not isinstance(value, Mapping):
        return name
    tables = [a for a in alike if isinstance(a, Mapping)]
    differ = [k for k in value if k not in ("kind", "file") and any(t.get(k) != value[k] for t in tables)]
    shown = differ or ([] if name else list(value))
    return " ".join([name, *(f"{k} {_short(value[k])}" for k in shown)]).strip()


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
