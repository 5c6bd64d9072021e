"""Refuse a study that cannot be meant, before anything is run: names, axes, values and pairs that are not there."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from decentral_dp.config.loading import nearest_of
from decentral_dp.errors import InputError, quoted
from decentral_dp.studies.measures import is_measured, names_of
from decentral_dp.studies.schema import VARIANT, Axis, Cell, Gain, Pair, Plot, Side, Study, Where, axes, cells

# Keys of [privacy] that both sides of a pair share.
_SHARED_PRIVACY = ("guarantee", "mechanism", "epsilon", "delta", "cap", "unit", "neighbours")


def check_study(study: Study) -> tuple[list[Axis], list[Cell]]:
    """Return the axes of a study, and its cells.

    Raises:
        InputError: the first fault of the study, with the nearest name where one is not known.
    """
    varied = axes(study)
    _refuse(fault for part in study.where for fault in _faults_of_where(part, varied, "study"))
    listed = cells(study)
    _refuse(
        itertools.chain(
            _faults_of_claims(study, varied),
            (fault for plot in study.plots for fault in _faults_of_plot(study, plot, varied)),
            (fault for gain in study.gains for fault in _faults_of_gain(study, gain, varied, listed)),
            (
                fault
                for name in study.measure
                if not is_measured(name, study.kind, over_rounds=True)
                for fault in _unknown_measure("measure", name, study, over_rounds=False)
            ),
        )
    )
    return varied, listed


def _refuse(faults: Iterator[str]) -> None:
    """Raise the first fault. What comes after it may rely on what comes before, and is not looked at."""
    fault = next(faults, None)
    if fault is not None:
        raise InputError(fault)


def _missing_axis(key: str, name: str, known: Collection[str]) -> Iterator[str]:
    if name not in known:
        yield f"{key}: {quoted(name)} does not vary here{nearest_of(name, sorted(known))}."


def _unknown_measure(place: str, name: str, study: Study, over_rounds: bool) -> Iterator[str]:
    if not is_measured(name, study.kind, over_rounds):
        when = f"over the rounds of a {study.kind}" if over_rounds else f"at the end of a {study.kind}"
        yield f"{place}: {quoted(name)} is not measured {when}{nearest_of(name, names_of(study.kind, over_rounds))}."


def _faults_of_where(where: Where, varied: Sequence[Axis], place: str) -> Iterator[str]:
    known = {axis.name: axis for axis in varied}
    for name, wanted in where.items():
        yield from _missing_axis(f"{place}.where", name, known)
        for label in wanted if isinstance(wanted, list) else [wanted]:
            if label not in known[name].labels:
                near = nearest_of(str(label), [str(v) for v in known[name].labels])
                yield f"{place}.where.{name}: {quoted(label)} is no value{near}."


def _faults_of_claims(study: Study, varied: Sequence[Axis]) -> Iterator[str]:
    kept = [] if isinstance(study.rounds, str) else study.rounds
    for claim in study.claims:
        place = f"claims ({claim.statement})"
        for side in (claim.left, claim.right):
            if isinstance(side, Side):
                yield from _faults_of_where(side.where, varied, place)
                left = [axis.name for axis in varied if axis.name not in side.where]
                yield from _missing_axis(f"{place}.best", side.best, left) if side.best is not None else ()
                yield from _unknown_measure(f"{place}.measure", side.measure, study, side.round is not None)
                if side.round is not None and not (study.rounds == "all" or side.round in kept):
                    yield f'{place}.round: {side.round} is not kept. Fix: set rounds = "all", or list it.'


def _faults_of_plot(study: Study, plot: Plot, varied: Sequence[Axis]) -> Iterator[str]:
    """Axes and names that are not there, and plots that would draw different cells as one."""
    place, over_rounds, names = f"plots ({plot.name})", plot.x == "round", [axis.name for axis in varied]
    yield from _faults_of_where(plot.where, varied, place)
    for role in ("lines", "panels"):
        if (name := getattr(plot, role)) is not None:
            yield from _missing_axis(f"{place}.{role}", name, names)
    if over_rounds and study.rounds in ("last", []):
        yield f'{place}.x: no values of single rounds are kept. Fix: set rounds = "all", or a list.'
    if not over_rounds and plot.x not in names and not is_measured(plot.x, study.kind, over_rounds=False):
        hint = nearest_of(plot.x, ["round", *names, *names_of(study.kind, over_rounds=False)])
        yield f"{place}.x: {quoted(plot.x)} is no axis, and is not measured{hint}."
    for name in plot.measures:
        yield from _unknown_measure(f"{place}.y", name, study, over_rounds)
    settled = {name for name, wanted in plot.where.items() if not isinstance(wanted, list)}
    used = {plot.x, plot.lines, plot.panels} | settled
    left = [axis.name for axis in varied if axis.name not in used and len(axis.values) > 1]
    if left and (over_rounds or plot.x in names):
        yield (
            f"{place}: {left[0]} varies too, and cells that differ in it would be drawn as one. Make it x, lines or "
            "panels, or fix it in where."
        )


def _faults_of_gain(study: Study, gain: Gain, varied: Sequence[Axis], listed: Sequence[Cell]) -> Iterator[str]:
    """Variants, axes and measures that are not there, and sides that differ otherwise."""
    known, place = {axis.name: axis for axis in varied}, f"gains ({gain.name})"
    variants = known[VARIANT].labels if VARIANT in known else ()
    yield from _unknown_measure(f"{place}.measure", gain.measure, study, over_rounds=False)
    for key, name in (("x", gain.x), ("y", gain.y)):
        if name is not None and (name == VARIANT or name not in known):
            yield f"{place}.{key}: {quoted(name)} is no axis of the grid; name a key of it."
        if name is not None and gain.y is not None and not known[name].is_numeric:
            yield f"{place}.{key}: {quoted(name)} is no axis of numbers; leave out y, and make it x."
    yield from _faults_of_where(gain.where, varied, place)
    for axis in varied:
        if axis.name not in (VARIANT, gain.x, gain.y, *gain.where) and len(axis.values) > 1:
            yield f"{place}: {axis.name} varies too; make it x or y, or fix it in where."
    run = [cell for cell in listed if all(cell.labels[axis] == label for axis, label in gain.where.items())]
    for pair in gain.pairs:
        for name in (pair.of, pair.over):
            if name not in variants:
                near = nearest_of(name, [str(v) for v in variants])
                yield f"{place}.pairs: {quoted(name)} is no variant{near}."
        yield from _differences(f"{place}.pairs ({pair.name})", pair, run)


def _differences(place: str, pair: Pair, run: Sequence[Cell]) -> Iterator[str]:
    """Describe in what cells of the two sides differ: the problem, the privacy target, or both graph and program."""

    def shared(cell: Cell) -> dict[str, Any]:
        privacy: Mapping[str, Any] = cell.content.get("privacy") or {}
        return {"problem": cell.content.get("problem")} | {
            f"privacy.{key}": privacy.get(key) for key in _SHARED_PRIVACY
        }

    sides: dict[Any, dict[Any, Cell]] = {pair.of: {}, pair.over: {}}
    for cell in run:
        if (side := cell.labels[VARIANT]) in sides:
            sides[side][(cell.seed, *(v for a, v in cell.labels.items() if a != VARIANT))] = cell
    both = [at for at in sides[pair.of] if at in sides[pair.over]]
    if not both:
        yield f"{place}: there is no cell of both sides. Name variants that are run at the same values."
    for at in both:
        left, right = (shared(sides[name][at]) for name in (pair.of, pair.over))
        differ = [key for key in left if left[key] != right[key]]
        of, over = (sides[name][at].content for name in (pair.of, pair.over))
        if all(of.get(table) != over.get(table) for table in ("topology", "algorithm")):
            differ.append("topology and algorithm")
        for key in differ:
            yield (
                f"{place}: {quoted(pair.of)} and {quoted(pair.over)} differ in {key}, so that their difference has "
                "several causes. Fix: give both the same."
            )
