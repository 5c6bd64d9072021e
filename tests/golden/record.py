"""Record golden data anew: `python -m tests.golden.record [NAME …]`.

A name is that of a scenario, or "texts" or "folders"; without names everything is recorded, and what is recorded of
scenarios that are no longer shipped is deleted.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import measure
from .cases import FOLDER, is_planned_only, scenario_names

DATA, TEXTS, FOLDERS = FOLDER / "scenarios", FOLDER / "texts", FOLDER / "folders"
OTHERS = ("texts", "folders")


def command(name: str) -> str:
    return f'"python -m tests.golden.record {name}"'


def load(folder: Path, name: str) -> Any:
    """Return the golden data of that name, or raise AssertionError with the command that records them."""
    path = folder / f"{name}.json"
    if not path.is_file():
        raise AssertionError(f"no golden data of {name}; record them with {command(name)} and look at them.")
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def record_scenario(name: str) -> None:
    _write(DATA / f"{name}.json", measure.scenario(name))


def record_texts() -> None:
    TEXTS.mkdir(exist_ok=True)
    written = measure.texts()
    for path in TEXTS.iterdir():
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (TEXTS / name).write_text(text, encoding="utf-8")


def record_folders() -> None:
    for kind, name in measure.FOLDERS.items():
        with tempfile.TemporaryDirectory() as place:
            _write(FOLDERS / f"{kind}.json", measure.folder(name, Path(place)))


def main(names: Sequence[str]) -> None:
    shipped = scenario_names()
    unknown = [name for name in names if name not in (*shipped, *OTHERS)]
    if unknown:
        sys.exit(f"{', '.join(unknown)}: no shipped scenario; give such a name, or one of {', '.join(OTHERS)}.")
    chosen = list(names) or [*shipped, *OTHERS]
    scenarios = [name for name in chosen if name not in OTHERS]
    if any(not is_planned_only(name) for name in scenarios):
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    for name in scenarios:
        started = time.perf_counter()
        record_scenario(name)
        print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
    if "texts" in chosen:
        record_texts()
    if "folders" in chosen:
        record_folders()
    if not names and DATA.is_dir():
        for path in DATA.glob("*.json"):
            if path.stem not in shipped:
                path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
