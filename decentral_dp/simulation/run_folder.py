"""Run folders: where a run goes, and what is written of a finished one."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tomli_w

from decentral_dp.config.scenario_components import is_coordinated
from decentral_dp.config.schema import Scenario, put
from decentral_dp.errors import InputError

if TYPE_CHECKING:
    from decentral_dp.simulation.runner import Run


def versions() -> dict[str, str]:
    """Versions of this package and of what computes its numbers."""
    names = ("decentral_dp", "numpy", "scipy", "dp-accounting", "scikit-learn", "torch", "ray")
    return {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in names}}


def new_folder(out: Path | None, name: str) -> Path:
    """Where a run goes: `out`, or a new folder runs/NAME, runs/NAME-2, …"""
    if out is not None:
        return out
    base = Path("runs")
    taken = {p.name for p in base.iterdir()} if base.is_dir() else set()
    numbered = (name if k == 1 else f"{name}-{k}" for k in range(1, len(taken) + 2))
    return base / next(n for n in numbered if n not in taken)


def check_writable(folder: Path) -> None:
    """Refuse before the run what could not be written after it; leaves nothing behind."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"--out: {folder} exists already, and nothing is written over. Give a new or an empty folder."
            )
        above = next(p for p in folder.absolute().parents if p.exists())
        Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=above)).rmdir()
    except OSError as error:
        raise InputError(f"--out: {folder} cannot be written ({error.strerror}). Give another folder.") from None


def write_folder(done: Run, folder: Path) -> None:
    """Write everything beside its place first and move it there whole, so that no half-written folder is left."""
    from decentral_dp.reporting.page import write_report
    from decentral_dp.reporting.plots import write_plots

    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        (partial / "scenario.toml").write_text(resolved_toml(done.scenario), encoding="utf-8")
        done.metrics.to_parquet(partial / "metrics.parquet", index=False)
        done.ledger.to_parquet(partial / "ledger.parquet", index=False)
        arrays = {**done.state}
        arrays |= {f"released_{c}": v for c, v in done.released.items()}
        arrays |= {f"published_{c}": v for c, v in done.published.items()}
        np.savez_compressed(partial / "state.npz", allow_pickle=False, **arrays)
        (partial / "result.json").write_text(done.result.to_json(), encoding="utf-8")
        if folder.is_dir():
            folder.rmdir()
        partial.chmod(0o755)
        partial.rename(folder)
        # Last, so that what cannot be drawn is not lost: "decentral-dp report" draws it again.
        write_plots(folder)
        write_report(folder)
    except OSError as error:
        raise OSError(
            f"the run is done, but its folder {folder} could not be written ({error}). Give --out where there is room."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def resolved_toml(scenario: Scenario) -> str:
    """The scenario with every default filled in, the versions and the seed (never a secret root)."""
    content = scenario.model_dump(exclude_none=True)
    content["versions"] = versions()
    if is_coordinated(scenario) and "mechanism" not in scenario.privacy.model_fields_set:
        # A coordinator's algorithm has its own, and refuses any other.
        del content["privacy"]["mechanism"]
    for place, path in scenario.files().items():
        put(content, place, str(path))
    if scenario.problem.files is not None:
        content["problem"]["files"] = scenario.image_files()
    return tomli_w.dumps(content)
