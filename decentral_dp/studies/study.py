"""Conduct a study: check it, compute the missing cells, and write tables, figures and verdicts.

Cells of other settings, inputs or versions of the package remain in the folder. A study that is changed back uses them
again.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from decentral_dp.errors import InputError, Stopped, converting, nearest_of, quoted
from decentral_dp.files.durable import salt_in, write_whole
from decentral_dp.files.exports import escape_formulas
from decentral_dp.files.regular import own
from decentral_dp.reporting.style import FORMATS, picture_of, write_figure
from decentral_dp.reporting.terminal import ProgressBar
from decentral_dp.simulation.budget import Budget
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.build import requested_measures
from decentral_dp.simulation.result import plain
from decentral_dp.studies.comparisons import decide_claim, gain_table
from decentral_dp.studies.figures import NARROW, check_style, study_figures
from decentral_dp.studies.measures import (
    NETWORK,
    follows_rounds,
    is_measured,
    list_measures,
    missing_measures,
    named_measures,
)
from decentral_dp.studies.report import Findings, print_findings, study_page
from decentral_dp.studies.runs import GOOD, Record, Task, make_task, perform
from decentral_dp.studies.schema import (
    VARIANT,
    Axis,
    Cell,
    Gain,
    Pair,
    Plot,
    Side,
    Study,
    Where,
    axes,
    cells,
    leaves,
    load_study,
    to_toml,
)
from decentral_dp.studies.tables import Measured, cell_table, results, rows_of_means, summary
from decentral_dp.studies.tasks import CELLS, check_address, cores, hold_folder, read_outcome


def conduct(
    study: Study,
    out: Path,
    jobs: int | None = None,
    address: str | None = None,
    progress: Callback | None = None,
    budget: Budget | None = None,
) -> Findings:
    """Compute the missing cells of `out`, and write all tables and figures there.

    Args:
        study: loaded study.
        out: output folder.
        jobs: number of processes on this machine, by default one per core.
        address: address of a Ray cluster ("auto", "host:port") to use instead of processes.
        progress: callback that receives a `Progress` for "cells".
        budget: `Budget` backed by a file, to which each cell's run is charged; default none.

    Returns:
        Tables and verdicts. A failed cell is recorded.

    Raises:
        InputError: the study is invalid, or is running in this folder.
        Stopped: the study was interrupted.
    """
    if budget is not None and budget.file is None:
        raise InputError(
            "budget: has no file, which the processes of a study share. Fix: create the budget with a file."
        )
    try:
        varied, listed = check_study(study)
        check_address(address)
        with _lock_folder(out) as folder:
            keys, records, computed = _compute_cells(study, listed, folder, jobs, address, progress, budget)
            return _write(study, varied, listed, keys, records, computed, out)
    except KeyboardInterrupt:
        finished = sum(1 for _ in (out / CELLS).glob("*.json"))
        raise Stopped(
            f"Interrupted; {finished} finished cells are kept in {out}. The same study with --out {out} resumes."
        ) from None


@contextmanager
def _lock_folder(out: Path) -> Iterator[Path]:
    """Create and lock out/cells for this process. Raises InputError for a folder with other files."""
    folder = out / CELLS
    with ExitStack() as stack:
        problem = f"--out: {out} cannot be written"
        with converting(OSError, lambda error: f"{problem} ({error.strerror}). Fix: use another folder."):
            if os.path.lexists(out) and not folder.is_dir() and (not out.is_dir() or any(out.iterdir())):
                raise InputError(
                    f"--out: {out} is not the folder of a study. Fix: use a new folder, or the folder of a study."
                )
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(
                hold_folder(folder, f"{out}: this study is running. Fix: wait until it ends, or stop it.")
            )
        yield folder


def _compute_cells(
    study: Study,
    listed: Sequence[Cell],
    folder: Path,
    jobs: int | None,
    address: str | None,
    progress: Callback | None,
    budget: Budget | None,
) -> tuple[list[str], list[Record], int]:
    """Return the key and the record of every cell, and the number of computed cells."""
    salt, named = salt_in(folder), named_measures(study)
    network, requested = any(name.startswith(NETWORK) for name in named), requested_measures(named)
    tasks = [make_task(cell, study.kind, study.rounds, network, salt, requested) for cell in listed]
    keys = [task.key if isinstance(task, Task) else "" for task in tasks]
    refused = [task["reason"] for task in tasks if not isinstance(task, Task)]
    if len(refused) == len(tasks):
        raise InputError(f"None of the {len(tasks)} cells can run: {refused[0]}")
    # Cells with the same scenario are computed once.
    every = dict.fromkeys(filter(None, keys))
    known: dict[str, Record] = {key: record for key in every if (record := read_outcome(folder, key)) is not None}
    missing = {
        task.key: task._replace(budget=budget) for task in tasks if isinstance(task, Task) and task.key not in known
    }
    report = Reporter(progress, "cells")
    failed = sum(record["status"] not in GOOD for record in known.values())
    report(len(known), len(every), failed=failed)
    processes = min(jobs or cores(), max(1, len(missing)))
    with closing(perform(list(missing.values()), folder, processes, address)) as done:
        for task, record in done:
            known[task.key] = record
            failed += record["status"] not in GOOD
            report(len(known), len(every), failed=failed)
    return keys, [known[task.key] if isinstance(task, Task) else task for task in tasks], len(missing)


def _write(
    study: Study,
    varied: Sequence[Axis],
    listed: Sequence[Cell],
    keys: Sequence[str],
    records: Sequence[Record],
    computed: int,
    out: Path,
) -> Findings:
    names = [axis.name for axis in varied]
    values = results(listed, keys, records, study.rounds, named_measures(study))
    table = cell_table(listed, keys, records)
    means = summary(values, names, table)
    counted = rows_of_means(values, table)
    verdicts = [decide_claim(claim, study, counted, varied) for claim in study.claims]
    band = study.style.band
    measured = Measured(study, varied, means if band == "t" else summary(values, names, table, band), table)
    gains = gain_table(study, values, table)
    own(out / "plots", out, "study").mkdir(exist_ok=True)
    captions = {}
    for name, figure, caption in study_figures(measured, gains):
        write_figure(figure, out / "plots" / name, FORMATS)
        write_whole(out / "plots" / f"{name}.txt", f"{caption}\n".encode())
        captions[name] = caption
    narrow_style = study.style.model_copy(update={"width": NARROW, "columns": 1})
    narrow = measured._replace(study=study.model_copy(update={"style": narrow_style}))
    absent = missing_measures(study, values, captions) if table["status"].isin(GOOD).any() else []
    findings = Findings(
        study,
        varied,
        _select_names(values, study.measure),
        _select_names(means, study.measure),
        table,
        verdicts,
        computed,
        [*_problem_warnings(varied, listed), *absent],
        out,
        gains,
    )
    for name in ("results", "summary", "cells"):
        write_whole(out / f"{name}.parquet", getattr(findings, name).to_parquet(index=False))
    entries = [plain(v.to_dict()) for v in verdicts]
    claims = json.dumps(entries, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(out / "claims.json", f"{claims}\n".encode())
    texts = {"summary.csv": escape_formulas(findings.summary).to_csv(index=False)}
    if study.gains:
        texts["gains.csv"] = escape_formulas(gains).to_csv(index=False)
    for name, text in texts.items():
        write_whole(out / name, text.encode())
    write_whole(out / "study.toml", to_toml(study, out).encode())
    page = study_page(
        findings,
        out / "plots",
        captions,
        {name: picture_of(figure) for name, figure, _ in study_figures(narrow, gains)},
        [record["unverified"] for record in records],
        [path.name for path in out.iterdir()],
    )
    write_whole(out / "report.html", page.encode())
    return findings


def _problem_warnings(varied: Sequence[Axis], listed: Sequence[Cell]) -> list[str]:
    """Return a warning if variants differ in [problem], apart from the keys of the grid."""
    problems: dict[Any, dict[str, Any]] = {}
    for cell in listed:
        content = {".".join(path): value for path, value in leaves({"problem": cell.content.get("problem") or {}})}
        problems.setdefault(cell.labels.get(VARIANT), content)
    keys = sorted({key for content in problems.values() for key in content} - {axis.name for axis in varied})
    differing = [key for key in keys if len({repr(content.get(key)) for content in problems.values()}) > 1]
    text = f"Variants differ in {', '.join(differing)}, so their means do not compare algorithms only."
    return [text] if differing else []


def _select_names(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    return frame[frame["name"].isin(names)] if names else frame


# Keys of [privacy] that both sides of a pair share.
_SHARED_PRIVACY = ("guarantee", "mechanism", "epsilon", "noise_multiplier", "delta", "unit", "neighbours")


def check_study(study: Study) -> tuple[list[Axis], list[Cell]]:
    """Return the axes of a study, and its cells.

    Raises:
        InputError: the study is invalid. The message reports its first fault, with a suggestion for an unknown name.
    """
    varied = axes(study)
    _raise_first(fault for part in study.where for fault in _check_where(part, varied, "study"))
    listed = cells(study)
    _raise_first(
        itertools.chain(
            _check_claims(study, varied),
            (fault for plot in study.plots for fault in _check_plot(study, plot, varied)),
            (fault for gain in study.gains for fault in _check_gain(study, gain, varied, listed)),
            check_style(study, varied),
            (
                fault
                for name in study.measure
                if not is_measured(name, study.kind, over_rounds=True)
                for fault in _check_measure("measure", name, study, over_rounds=False)
            ),
        )
    )
    return varied, listed


def _raise_first(faults: Iterator[str]) -> None:
    """Raise the first fault. Later checks rely on earlier ones."""
    fault = next(faults, None)
    if fault is not None:
        raise InputError(fault)


def _check_axis(key: str, name: str, known: Collection[str]) -> Iterator[str]:
    if name not in known:
        yield f"{key}: {quoted(name)} is not an axis{nearest_of(name, sorted(known))}"


def _check_measure(place: str, name: str, study: Study, over_rounds: bool) -> Iterator[str]:
    if not is_measured(name, study.kind, over_rounds):
        when = f"over the rounds of a {study.kind}" if over_rounds else f"at the end of a {study.kind}"
        near = nearest_of(name, list_measures(study.kind, over_rounds))
        yield f"{place}: {quoted(name)} is not measured {when}{near}"


def _check_where(where: Where, varied: Sequence[Axis], place: str) -> Iterator[str]:
    axes_by_name = {axis.name: axis for axis in varied}
    for name, wanted in where.items():
        yield from _check_axis(f"{place}.where", name, axes_by_name)
        for label in wanted if isinstance(wanted, list) else [wanted]:
            if label not in axes_by_name[name].labels:
                near = nearest_of(str(label), [str(v) for v in axes_by_name[name].labels])
                yield f"{place}.where.{name}: {quoted(label)} is not a value{near}"


def _check_claims(study: Study, varied: Sequence[Axis]) -> Iterator[str]:
    rounds = [] if isinstance(study.rounds, str) else study.rounds
    for claim in study.claims:
        place = f"claims ({claim.statement})"
        for side in (claim.left, claim.right):
            if isinstance(side, Side):
                yield from _check_where(side.where, varied, place)
                free = [axis.name for axis in varied if axis.name not in side.where]
                yield from _check_axis(f"{place}.best", side.best, free) if side.best is not None else ()
                yield from _check_measure(f"{place}.measure", side.measure, study, side.round is not None)
                if side.round is not None and not (study.rounds == "all" or side.round in rounds):
                    yield f'{place}.round: {side.round} is not kept. Fix: set rounds = "all", or list it.'


def _check_plot(study: Study, plot: Plot, varied: Sequence[Axis]) -> Iterator[str]:
    """Yield unknown axes and measures, and axes without a role in the plot."""
    place, over_rounds, names = f"plots ({plot.name})", follows_rounds(plot, study), [axis.name for axis in varied]
    yield from _check_where(plot.where, varied, place)
    for role in ("lines", "panels"):
        if (name := getattr(plot, role)) is not None:
            yield from _check_axis(f"{place}.{role}", name, names)
    if plot.x == "round" and study.rounds in ("last", []):
        yield f'{place}.x: no values of single rounds are kept. Fix: set rounds = "all", or a list.'
    if not over_rounds and plot.x not in names and not is_measured(plot.x, study.kind, over_rounds=False):
        hint = nearest_of(plot.x, ["round", *names, *list_measures(study.kind, over_rounds=False)])
        yield f"{place}.x: {quoted(plot.x)} is neither an axis nor measured{hint}"
    for name in plot.measures:
        yield from _check_measure(f"{place}.y", name, study, over_rounds)
    settled = {name for name, wanted in plot.where.items() if not isinstance(wanted, list)}
    used = {plot.x, plot.lines, plot.panels} | settled
    unused = [axis.name for axis in varied if axis.name not in used and len(axis.values) > 1]
    if unused and (over_rounds or plot.x in names):
        yield (
            f"{place}: {unused[0]} varies too, so one point would have several cells. Fix: use it as x, lines "
            "or panels, or fix it in where."
        )


def _check_gain(study: Study, gain: Gain, varied: Sequence[Axis], listed: Sequence[Cell]) -> Iterator[str]:
    """Yield unknown variants, axes and measures, and sides that differ in other keys."""
    axes_by_name, place = {axis.name: axis for axis in varied}, f"gains ({gain.name})"
    variants = axes_by_name[VARIANT].labels if VARIANT in axes_by_name else ()
    yield from _check_measure(f"{place}.measure", gain.measure, study, over_rounds=False)
    for key, name in (("x", gain.x), ("y", gain.y)):
        if name is not None and (name == VARIANT or name not in axes_by_name):
            yield f"{place}.{key}: {quoted(name)} is not an axis of the grid. Fix: name a key of the grid."
        if name is not None and gain.y is not None and not axes_by_name[name].is_numeric:
            yield f"{place}.{key}: {quoted(name)} is not a numeric axis. Fix: remove y, and use this axis as x."
    yield from _check_where(gain.where, varied, place)
    for axis in varied:
        if axis.name not in (VARIANT, gain.x, gain.y, *gain.where) and len(axis.values) > 1:
            yield f"{place}: {axis.name} varies too. Fix: use it as x or y, or fix it in where."
    run = [cell for cell in listed if all(cell.labels[axis] == label for axis, label in gain.where.items())]
    for pair in gain.pairs:
        for name in (pair.of, pair.over):
            if name not in variants:
                near = nearest_of(name, [str(v) for v in variants])
                yield f"{place}.pairs: {quoted(name)} is not a variant{near}"
        yield from _find_differences(f"{place}.pairs ({pair.name})", pair, run)


def _find_differences(place: str, pair: Pair, run: Sequence[Cell]) -> Iterator[str]:
    """Yield differences of the two sides in the problem, the privacy target, or both graph and algorithm."""

    def shared(cell: Cell) -> dict[str, Any]:
        privacy: Mapping[str, Any] = cell.content.get("privacy") or {}
        return {"problem": cell.content.get("problem")} | {
            f"privacy.{key}": privacy.get(key) for key in _SHARED_PRIVACY
        }

    sides: dict[Any, dict[Any, Cell]] = {pair.of: {}, pair.over: {}}
    for cell in run:
        if (side := cell.labels[VARIANT]) in sides:
            sides[side][(cell.seed, *(v for a, v in cell.labels.items() if a != VARIANT))] = cell
    common = [level for level in sides[pair.of] if level in sides[pair.over]]
    if not common:
        yield f"{place}: no cell has both sides. Fix: name two variants with common values."
    for level in common:
        left, right = (shared(sides[name][level]) for name in (pair.of, pair.over))
        differ = [key for key in left if left[key] != right[key]]
        of, over = (sides[name][level].content for name in (pair.of, pair.over))
        if all(of.get(table) != over.get(table) for table in ("topology", "algorithm")):
            differ.append("topology and algorithm")
        for key in differ:
            yield (
                f"{place}: {quoted(pair.of)} and {quoted(pair.over)} differ in {key}. Fix: use the same {key} for both."
            )


def study_command(
    study: str,
    override: Sequence[str],
    out: Path | None,
    jobs: int | None,
    address: str | None,
    budget: Budget | None = None,
) -> bool:
    """Run the command `study`, and return whether any cell ended ok."""
    loaded = load_study(study, override)
    folder = out if out is not None else Path("runs") / f"study-{Path(study).stem}"
    with ProgressBar("cells") as progress:
        findings = conduct(loaded, folder, jobs, address, progress, budget)
    print_findings(findings)
    return len(findings.failed) < len(findings.cells)
