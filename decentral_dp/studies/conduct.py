"""Performing a study: what is done already is read, the rest is computed, and tables, pictures and verdicts written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

import pandas as pd
import tomli_w

from decentral_dp.engines.task_pool import check_at_hand, cores
from decentral_dp.errors import InputError, Stopped
from decentral_dp.files.begun_names import CELLS
from decentral_dp.files.portable_paths import portable_path
from decentral_dp.files.salt import NAME as SALT
from decentral_dp.files.salt import has_salt, salt_in
from decentral_dp.reporting.notebook_progress import StudyBar, shown
from decentral_dp.simulation.folder.layout import versions
from decentral_dp.simulation.result import plain
from decentral_dp.studies.gains import check_gains, gain_table
from decentral_dp.studies.grid import Axis, Cell, axes, cells
from decentral_dp.studies.measures import asks_for_network, check_names, unmeasured
from decentral_dp.studies.pool import perform
from decentral_dp.studies.stale import discard, find_stale, why
from decentral_dp.studies.study_begun import Begun, alone, digest_of_cells, ended, require_unchanged, write_begun
from decentral_dp.studies.study_findings import Findings
from decentral_dp.studies.study_interactive import interactive_figures, require_plotly
from decentral_dp.studies.study_page import study_page
from decentral_dp.studies.study_runs import GOOD, Record, Task, read, task_of
from decentral_dp.studies.study_schema import Plot, Study, load_study
from decentral_dp.studies.study_tables import cell_table, counted_rows, results, summary
from decentral_dp.studies.study_text import study_table
from decentral_dp.studies.verdicts import check_claims, check_where, planned_alike, verdict

ProgressCallback = Callable[[int, int, int], None]
"""Told of progress: cells done, cells in all, cells that failed."""


@runtime_checkable
class ProgressReporter(Protocol):
    """A progress callback that can say something before the first cell is done."""

    def say(self, sentence: str) -> None: ...


def conduct(
    study: Study,
    out: Path,
    jobs: int | None = None,
    address: str | None = None,
    progress: ProgressCallback | None = None,
    begun: Begun | None = None,
) -> Findings:
    """Compute every cell that `out` does not hold yet, and write all tables and pictures there.

    Args:
        study: as loaded.
        out: the folder.
        jobs: processes on this machine, by default one per core.
        address: of a Ray cluster ("auto", "host:port") to use instead.
        progress: called with cells done, cells in all, and cells that failed.
        begun: what the folder says of this study, where it goes on by its folder; its cells must be what they were.

    Returns:
        Tables and verdicts.

    Raises:
        InputError: a study that cannot be meant, or is under way in this folder. A cell that fails is recorded,
            and the others go on.
        Stopped: an interrupt came.
    """
    try:
        with ExitStack() as held:
            return _conduct(study, out, jobs, address, progress, begun, held)
    except KeyboardInterrupt:
        kept = sum(1 for _ in (out / "cells").glob("*.json"))
        raise Stopped(
            f'Interrupted; {kept} finished cells are kept in {out}, and "decentral-dp resume {out}" goes on.'
        ) from None


def study(
    study: str | Path | Mapping[str, Any] | Study,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    jobs: int | None = None,
    address: str | None = None,
    progress: ProgressCallback | None = None,
) -> Findings:
    """Run a grid of scenarios × seeds, and judge the claims about it.

    Args:
        study: a shipped name, a path, a dict of the same shape, or a loaded study.
        out: the folder for tables and pictures, from which it goes on if it is interrupted; by default nothing is kept.
        overrides: "key=value"; a key of the study, or else one of the scenario, set in every cell. A loaded study takes
            none.
        jobs: processes on this machine, by default one per core.
        address: of a Ray cluster ("auto", "host:port") to use instead.
        progress: called with cells done, cells in all, and cells that failed; by default notebooks show a bar.

    Returns:
        Tables of all cells and of means with intervals, and a verdict on every claim.

    Raises:
        InputError: the study cannot be meant. A cell that fails is recorded, and the others go on.
        Stopped: an interrupt came.

    Example:
        >>> import decentral_dp
        >>> found = decentral_dp.study({"scenario": "quadratic", "kind": "plan", "measure": ["rounds"],
        ...     "grid": {"algorithm.rounds": [1, 2]}}, jobs=1)
        >>> found.summary["mean"].tolist(), len(found.failed)
        ([1.0, 2.0], 0)
    """
    if isinstance(study, Study) and overrides:
        raise InputError("study: overrides are for a study that is read. Give its name, path or dict.")
    loaded = study if isinstance(study, Study) else load_study(study, overrides)
    with shown(progress, StudyBar) as told:
        if out is not None:
            return conduct(loaded, Path(out), jobs, address, told)
        with TemporaryDirectory(prefix="decentral_dp-study-") as folder:
            return replace(conduct(loaded, Path(folder), jobs, address, told), folder=None)


def _conduct(
    study: Study,
    out: Path,
    jobs: int | None,
    address: str | None,
    progress: ProgressCallback | None,
    begun: Begun | None,
    held: ExitStack,
) -> Findings:
    varied, listed = axes(study), cells(study)
    check_claims(study, varied)
    for plot in study.plots:
        check_plot(plot, varied)
    check_names(study, varied)
    check_gains(study, varied, listed)
    check_at_hand(address)
    if study.interactive:
        require_plotly()
    kept = _folder(out, held)
    if begun is not None and not has_salt(kept):
        raise InputError(
            f"resume: {kept / SALT}, by which the study in {out} knows its files, is gone, or an earlier version of "
            f"decentral_dp wrote none. Give the same study with --out {out} again; cells that read files are computed "
            "anew."
        )
    knew = has_salt(kept)
    salt = salt_in(kept)
    network = asks_for_network(study)
    planned = [task_of(cell, study.kind, study.rounds, network, salt) for cell in listed]
    keys = [p.key if isinstance(p, Task) else "" for p in planned]
    if begun is not None:
        require_unchanged(begun, keys, out)
    write_begun(out, begun or Begun(study, digest_of_cells(keys), jobs, address))
    known: dict[str, Record] = {}
    for key in dict.fromkeys(k for k in keys if k):
        record = read(kept, key)
        if record is not None:
            known[key] = record
    # Cells that come to the same scenario are computed once.
    missing = {p.key: p for p in planned if isinstance(p, Task) and p.key not in known}
    stale = find_stale(kept, set(filter(None, keys)))
    again = why(stale, missing, knew)
    if again is not None and isinstance(progress, ProgressReporter):
        progress.say(again)
    _compute(list(missing.values()), kept, known, jobs or cores(), address, progress, len(set(filter(None, keys))))
    discard(kept, stale)
    records = [known[p.key] if isinstance(p, Task) else p for p in planned]
    return _write(study, varied, listed, keys, records, len(missing), out)


def _compute(
    tasks: Sequence[Task],
    kept: Path,
    known: dict[str, Record],
    jobs: int,
    address: str | None,
    progress: ProgressCallback | None,
    total: int,
) -> None:
    """Fill `known`."""
    failed = sum(r["status"] not in GOOD for r in known.values())
    if progress is not None:
        progress(len(known), total, failed)
    done = perform(tasks, kept, min(jobs, max(1, len(tasks))), address)
    try:
        for task, record in done:
            known[task.key] = record
            failed += record["status"] not in GOOD
            if progress is not None:
                progress(len(known), total, failed)
    finally:
        done.close()


def _folder(out: Path, held: ExitStack) -> Path:
    """out/cells, made if need be, and held for this process. Refuses a folder that holds anything but a study."""
    kept = out / CELLS
    try:
        if os.path.lexists(out) and not out.is_dir():
            raise InputError(f"--out: {out} is a file. Give a folder.")
        if out.is_dir() and any(out.iterdir()) and not kept.is_dir():
            raise InputError(f"--out: {out} holds something else than a study. Give a new folder, or that of a study.")
        kept.mkdir(parents=True, exist_ok=True)
        held.enter_context(alone(kept))
        for partial in kept.glob("*.partial"):
            partial.unlink()
    except OSError as error:
        raise InputError(f"--out: {out} cannot be written ({error.strerror}). Give another folder.") from None
    return kept


def check_plot(plot: Plot, varied: Sequence[Axis]) -> None:
    """Refuse a picture of axes that are not there, or that would draw different cells as one.

    Raises:
        InputError: one sentence on what is wrong.
    """
    place = f"plots ({plot.name})"
    check_where(plot.where, varied, place)
    names = [axis.name for axis in varied]
    for role in ("lines", "panels", "points"):
        name = getattr(plot, role)
        if name is not None and name not in names:
            raise InputError(f"{place}.{role}: {name!r} does not vary here; name one of {', '.join(names) or 'none'}.")
    if plot.points is not None and (plot.panels is not None or plot.x == "round" or plot.x in names):
        raise InputError(
            f"{place}.points: names are written where x is measured, and there are no panels. Leave it out."
        )
    settled = {name for name, wanted in plot.where.items() if not isinstance(wanted, list)}
    used = {plot.x, plot.lines, plot.panels, plot.points} | settled
    left = [axis.name for axis in varied if axis.name not in used and len(axis.values) > 1]
    if left and (plot.x == "round" or plot.x in names):
        raise InputError(
            f"{place}: {left[0]} varies too, and cells that differ in it would be drawn as one. Make it x, lines or "
            "panels, or fix it in where."
        )


def _write(
    study: Study,
    varied: Sequence[Axis],
    listed: Sequence[Cell],
    keys: Sequence[str],
    records: Sequence[Record],
    computed: int,
    out: Path,
) -> Findings:
    # matplotlib is slow to import.
    from decentral_dp.studies.gain_plots import write_gain_plots
    from decentral_dp.studies.narrow_pictures import narrow_pictures
    from decentral_dp.studies.study_plots import left_out_words, write_study_plots

    names = [axis.name for axis in varied]
    before = _plots_before(out)
    measured = results(listed, keys, records, study.rounds)
    table = cell_table(listed, keys, records)
    means = summary(measured, names, study.confidence, table)
    counted, fixed = counted_rows(measured, table), planned_alike(listed, table["status"].tolist())
    verdicts = [verdict(claim, study, means, counted, varied, fixed) for claim in study.claims]
    drawn = write_study_plots(out / "plots", study, varied, means, table)
    gains = gain_table(study, measured, table)
    drawn += write_gain_plots(out / "plots", study, gains, table)
    left = {out / "plots" / name for name in before} - set(drawn)
    removed = sorted(path.name for path in left if path.is_file())
    for name in removed:
        (out / "plots" / name).unlink()
    found = Findings(
        study,
        varied,
        _chosen(measured, study.measure),
        _chosen(means, study.measure),
        table,
        verdicts,
        computed,
        unmeasured(study, measured, {path.stem for path in drawn}) if table["status"].isin(GOOD).any() else [],
        out,
        gains,
        removed,
    )
    for name in ("results", "summary", "cells"):
        _replace(out / f"{name}.parquet", getattr(found, name).to_parquet(index=False))
    stated = [plain(v.stated()) for v in verdicts]
    claims = json.dumps(stated, indent=2, ensure_ascii=False, allow_nan=False)
    _replace(out / "claims.json", f"{claims}\n".encode())
    words = study_table(study, varied, found.summary, table)
    texts = {"summary.csv": found.summary.to_csv(index=False), "table.md": found.to_markdown()}
    texts["table.tex"] = found.to_latex()
    if study.gains:
        texts["gains.csv"] = gains.to_csv(index=False)
    moving = interactive_figures(study, varied, means, table) if study.interactive else ()
    said, pictures = found.gain_sentences, out / "plots"
    texts["report.html"] = study_page(
        study,
        words,
        table,
        verdicts,
        found.warnings,
        resolved(study),
        pictures,
        moving,
        said,
        [note for record in records for note in record["notes"]],
        {plot.name: caption for plot in study.plots if (caption := left_out_words(plot, varied, means))},
        narrow_pictures(study, varied, means, table, gains),
    )
    for name, text in texts.items():
        _replace(out / name, text.encode())
    # Late: it tells the next study in this folder which pictures are of this one.
    _replace(out / "study.toml", resolved(study, out).encode())
    ended(out)
    return found


def _plots_before(out: Path) -> set[str]:
    """Files of pictures of the study that was in this folder before; none where that cannot be read any more."""
    with suppress(InputError):
        before = load_study(out / "study.toml")
        names = [plot.name for plot in before.plots] + [gain.name for gain in before.gains]
        return {f"{name}.{ending}" for name in names for ending in before.formats}
    return set()


def _chosen(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    return frame[frame["name"].isin(names)] if names else frame


def _replace(path: Path, content: bytes) -> None:
    """Write beside the place first, so that an interrupt leaves the old file or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def resolved(study: Study, out: Path | None = None) -> str:
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
