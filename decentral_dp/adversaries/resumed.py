"""Going on with an audit, a table of audits or an attack by what it left on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decentral_dp.adversaries.attack.attack import Inference, infer, write
from decentral_dp.adversaries.attack.storage import ATTACK, read_attack
from decentral_dp.adversaries.audit.audit import play
from decentral_dp.adversaries.audit.manifest import AUDIT, finish, read_asked
from decentral_dp.adversaries.audit.result import AuditResult
from decentral_dp.adversaries.audit.tables import audit_table, read_table, write_table
from decentral_dp.errors import InputError
from decentral_dp.files.regular import regular

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]


def resume_file(out: Path, progress: Progress | None = None) -> AuditResult | Inference:
    """Go on with an audit or an attack that was cut off: its runs so far are kept, the others are made.

    Args:
        out: its JSON file.
        progress: called with runs done, and runs in all.

    Returns:
        As without the interruption. All that it writes is written.

    Raises:
        InputError: the file is of none, or of one that is complete; or what it is of has changed since.
        Stopped: interrupted again.
    """
    content = _read(out)
    if "each" in content:
        folders, runs = read_attack(out, content)
        found = infer(folders, runs, progress, out)
        write(found, folders, out)
        return found
    plan, workers, ends = read_asked(out, content)
    shown = play(plan, out, progress, workers=workers, ends=ends)
    for _ in finish(shown, ends):
        pass
    return shown


def _read(out: Path) -> dict[str, Any]:
    """The content of a file of an audit or an attack that is not complete."""
    try:
        content = json.loads(regular(out, "resume").read_text(encoding="utf-8"))
        found: dict[str, Any] = content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        found = {}
    if "attacks" in found or "shown" in found:
        what = ATTACK if "attacks" in found else AUDIT
        raise InputError(f"resume: the {what} in {out} is complete; give the file of one that was interrupted.")
    if found.get("status") != "interrupted":
        raise InputError(
            f"resume: {out} is not the file of an audit or an attack that was interrupted. Give the file that it was "
            f"told to write with --out, or the folder of a run or of a study."
        )
    return found


def resume_table(folder: Path, progress: Progress | None = None) -> pd.DataFrame:
    """Go on with a table of audits that was cut off: audits that are done are kept, the others are made.

    Args:
        folder: of the table.
        progress: called with audits done, and audits in all.

    Returns:
        As `audit_table`; table and figure are written.

    Raises:
        InputError: as `read_table`.
        Stopped: interrupted again.
    """
    b = read_table(folder)
    table = audit_table(
        b.systems, b.runs, b.vantage, b.confidence, b.seed, progress, folder, jobs=b.jobs, address=b.address
    )
    write_table(table, folder)
    return table
