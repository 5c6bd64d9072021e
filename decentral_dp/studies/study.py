"""Conduct a study: read the cells that its folder holds, compute the others, and write tables, figures and verdicts.

Cells of other settings, inputs or versions of the package stay in the folder. A study that is changed back finds them.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pandas as pd

from decentral_dp.errors import InputError, Stopped
from decentral_dp.files.durable import salt_in, write_whole
from decentral_dp.files.regular import own
from decentral_dp.files.spreadsheets import escape_formulas
from decentral_dp.reporting.style import write_figure
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.build import measures_of_classes
from decentral_dp.simulation.result import plain
from decentral_dp.studies.checks import check_study
from decentral_dp.studies.comparisons import decide_claim, gain_table
from decentral_dp.studies.figures import gain_figures, study_figures
from decentral_dp.studies.measures import NETWORK, missing_measures, named_measures
from decentral_dp.studies.page import Findings, study_page
from decentral_dp.studies.runs import GOOD, Record, Task, perform, task_of
from decentral_dp.studies.schema import Axis, Cell, Study, to_toml
from decentral_dp.studies.tables import Measured, cell_table, results, rows_of_means, summary
from decentral_dp.tasks.outcomes import CELLS, hold_folder, read_outcome
from decentral_dp.tasks.parallel import Workers, cores


def conduct(
    study: Study,
    out: Path,
    jobs: int | None = None,
    address: str | None = None,
    progress: Callback | None = None,
) -> Findings:
    """Compute every cell that `out` does not hold yet, and write all tables and pictures there.

    Args:
        study: as loaded.
        out: the folder.
        jobs: processes on this machine, by default one per core.
        address: of a Ray cluster ("auto", "host:port") to use instead.
        progress: called with a `Progress` of "cells".

    Returns:
        Tables and verdicts.

    Raises:
        InputError: a study that cannot be meant, or is under way in this folder. A cell that fails is recorded,
            and the others go on.
        Stopped: an interrupt came.
    """
    try:
        varied, listed = check_study(study)
        Workers(address=address).check()
        with _folder_of_cells(out) as folder:
            keys, records, computed = _compute_cells(study, listed, folder, jobs, address, progress)
            return _write(study, varied, listed, keys, records, computed, out)
    except KeyboardInterrupt:
        finished = sum(1 for _ in (out / CELLS).glob("*.json"))
        raise Stopped(
            f"Interrupted; {finished} finished cells are kept in {out}. The same study with --out {out} resumes."
        ) from None


@contextmanager
def _folder_of_cells(out: Path) -> Iterator[Path]:
    """out/cells, made if need be, for this process alone. Refuses a folder that holds anything but a study."""
    folder = out / CELLS
    with ExitStack() as stack:
        try:
            if os.path.lexists(out) and not folder.is_dir() and (not out.is_dir() or any(out.iterdir())):
                raise InputError(f"--out: {out} is no study. Fix: give a new folder, or that of a study.")
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(
                hold_folder(folder, f"{out}: this study is under way. Wait until it ends, or end it first.")
            )
        except OSError as error:
            raise InputError(f"--out: {out} cannot be written ({error.strerror}). Give another folder.") from None
        yield folder


def _compute_cells(
    study: Study,
    listed: Sequence[Cell],
    folder: Path,
    jobs: int | None,
    address: str | None,
    progress: Callback | None,
) -> tuple[list[str], list[Record], int]:
    """The key and the record of every cell, and how many of them were not in the folder."""
    salt, named = salt_in(folder), named_measures(study)
    network, of_classes = any(name.startswith(NETWORK) for name in named), measures_of_classes(named)
    tasks = [task_of(cell, study.kind, study.rounds, network, salt, of_classes) for cell in listed]
    keys = [task.key if isinstance(task, Task) else "" for task in tasks]
    refused = [task["reason"] for task in tasks if not isinstance(task, Task)]
    if len(refused) == len(tasks):
        # Such as a key that no scenario has.
        raise InputError(f"All {len(tasks)} cells are refused: {refused[0]}")
    # Cells that come to the same scenario are computed once.
    every = dict.fromkeys(filter(None, keys))
    known: dict[str, Record] = {key: record for key in every if (record := read_outcome(folder, key)) is not None}
    missing = {task.key: task for task in tasks if isinstance(task, Task) and task.key not in known}
    report = Reporter(progress, "cells")
    failed = sum(record["status"] not in GOOD for record in known.values())
    report(len(known), len(every), failed=failed)
    workers = Workers(min(jobs or cores(), max(1, len(missing))), address)
    with closing(perform(list(missing.values()), folder, workers)) as done:
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
    measured = Measured(study, varied, means, table)
    gains = gain_table(study, values, table)
    own(out / "plots", out, "study").mkdir(exist_ok=True)
    figures = itertools.chain(study_figures(measured), gain_figures(study, gains, table))
    paths = [path for name, figure in figures for path in write_figure(figure, out / "plots" / name)]
    findings = Findings(
        study,
        varied,
        _select_names(values, study.measure),
        _select_names(means, study.measure),
        table,
        verdicts,
        computed,
        missing_measures(study, values, {path.stem for path in paths}) if table["status"].isin(GOOD).any() else [],
        out,
        gains,
    )
    for name in ("results", "summary", "cells"):
        write_whole(out / f"{name}.parquet", getattr(findings, name).to_parquet(index=False))
    stated = [plain(v.to_dict()) for v in verdicts]
    claims = json.dumps(stated, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(out / "claims.json", f"{claims}\n".encode())
    texts = {"summary.csv": escape_formulas(findings.summary).to_csv(index=False)}
    if study.gains:
        texts["gains.csv"] = escape_formulas(gains).to_csv(index=False)
    texts["report.html"] = study_page(
        findings,
        out / "plots",
        [note for record in records for note in record["notes"]],
    )
    for name, text in texts.items():
        write_whole(out / name, text.encode())
    write_whole(out / "study.toml", to_toml(study, out).encode())
    return findings


def _select_names(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    return frame[frame["name"].isin(names)] if names else frame
