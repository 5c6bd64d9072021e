"""An audit under way, on record in its file: what was asked, and what was played so far."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from decentral_dp.adversaries.audit.plan import AuditPlan, planned
from decentral_dp.adversaries.audit.result import AuditResult
from decentral_dp.adversaries.audit.runs import Workers
from decentral_dp.adversaries.audit.storage import OWNERS, Played, add_to_run, write_json
from decentral_dp.config.loading import load
from decentral_dp.errors import InputError, Stopped
from decentral_dp.files.regular import regular
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.simulation.result import as_written

AUDIT = "audit"
# Seconds between two records of what was played.
_INTERVAL = 2.0


class Ends(NamedTuple):
    """What is written of a finished audit besides its file.

    Args:
        run: a run folder, whose result.json and page get the numbers.
        curve: PNG file of the trade-off curve.
    """

    run: Path | None = None
    curve: Path | None = None


NO_ENDS = Ends()


class Asked(NamedTuple):
    """An audit that goes on: its plan, who makes its runs, and what is written in the end."""

    plan: AuditPlan
    workers: Workers
    ends: Ends


@contextmanager
def on_record(
    out: Path | None, played: Played, plan: AuditPlan, workers: Workers, ends: Ends
) -> Iterator[Callable[[], None]]:
    """Keep what is played inside this in a file, from the beginning on, so that it outlives its process.

    Args:
        out: the file, or None.
        played: what there is so far; it grows.
        plan: what is asked, which the file has as well.
        workers: who makes the runs.
        ends: what is written in the end.

    Returns:
        What is called whenever something was played.

    Raises:
        Stopped: interrupted, and the file has what was played. Where nothing was, no file is left.
    """
    if out is None:
        yield lambda: None
        return
    new, asked, last = not out.exists(), _asked(plan, workers, ends), time.monotonic()
    whole = len(played.scores["null"]), dict(played.sizes)

    def keep() -> None:
        write_json(out, {"status": "interrupted", **played.to_dict(), "asked": asked}, OWNERS)

    def passed() -> None:
        nonlocal last, whole
        whole = len(played.scores["null"]), dict(played.sizes)
        if time.monotonic() >= last + _INTERVAL:
            keep()
            last = time.monotonic()

    keep()
    try:
        yield passed
    except BaseException as error:
        # An interrupt may come between two worlds of one run.
        for scores in played.scores.values():
            del scores[whole[0] :]
        played.sizes = whole[1]
        if new and not whole[0]:
            out.unlink(missing_ok=True)
            raise
        keep()
        if not isinstance(error, KeyboardInterrupt):
            raise
        raise Stopped(
            f'Interrupted; {whole[0]} runs of each world are kept in {out}, and "decentral-dp resume {out}" goes on.'
        ) from None


def _asked(plan: AuditPlan, workers: Workers, ends: Ends) -> dict[str, Any] | None:
    """As JSON values; None where the job was handed over, and no other process can build it."""
    if plan.source is None:
        return None
    content, folder = plan.source
    return {
        "what": AUDIT,
        "scenario": json.loads(json.dumps(content, default=str)),
        "folder": str(folder),
        "file": None if plan.file is None else str(plan.file.resolve()),
        "file_digest": None if plan.file is None else digest_of_file(plan.file),
        "runs": plan.runs,
        "vantage": plan.vantage,
        "confidence": plan.confidence,
        "seed": plan.seed,
        "curve": plan.curve,
        "jobs": workers.jobs,
        "address": workers.address,
        "ends": {name: None if path is None else str(path.resolve()) for name, path in ends._asdict().items()},
    }


def read_asked(out: Path, content: Mapping[str, Any]) -> Asked:
    """Read what an audit that was cut off was asked.

    Args:
        out: its file.
        content: of the file.

    Raises:
        InputError: it was asked of a job that was handed over, its scenario has changed, or the file is not what was
            written.
    """
    asked = content.get("asked")
    if asked is None:
        raise InputError(
            f"resume: {out} does not say what was audited: a job that was built in Python, or by an earlier version of "
            "decentral_dp. Give the same audit with the same out again; what was played is kept."
        )
    try:
        file, folder = asked["file"], Path(asked["folder"])
        if file is not None and Path(file).exists() and digest_of_file(Path(file)) != asked["file_digest"]:
            raise InputError(
                f"resume: {file} has changed since the audit in {out} was begun, and its runs would be of two "
                "scenarios. Put it back, or audit the new one with another --out."
            )
        settings = {name: asked[name] for name in ("runs", "vantage", "confidence", "seed", "curve")}
        ends = Ends(**{name: None if path is None else Path(path) for name, path in asked["ends"].items()})
        workers = Workers(asked["jobs"], asked["address"])
        # Of a run folder the names of keys and files are what that version wrote.
        with as_written(regular(out, "resume"), "resume"):
            scenario = load(asked["scenario"], folder=folder)
        known = None if file is None or not Path(file).exists() else Path(file)
        plan = replace(planned(scenario, **settings), file=known)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"resume: {out} is not what an audit writes ({error}); audit again with another --out."
        ) from None
    return Asked(plan, workers, ends)


def finish(found: AuditResult, ends: Ends) -> Iterator[Path]:
    """Write what a finished audit is written to besides its file.

    Args:
        found: what was shown.
        ends: where it goes.

    Returns:
        Each file, when it is written.
    """
    if ends.curve is not None:
        # matplotlib is slow to import and only drawing needs it.
        from decentral_dp.adversaries.audit.plot import write_curve

        yield write_curve(found, ends.curve)
    if ends.run is not None:
        from decentral_dp.reporting.page import write_report

        add_to_run(ends.run, found)
        with as_written(ends.run, AUDIT):
            page = write_report(ends.run)
        yield page
