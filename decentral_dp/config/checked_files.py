"""What `check` has said of a file of Python code, kept beside it for as long as the file stays as it is.

A label says what was tried of the components that the file defines: it is kept for no file of which nothing was tried.
One of an earlier form, which did not say so, is not quoted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from decentral_dp.config.schema import Files
from decentral_dp.files.regular import regular
from decentral_dp.privacy.fingerprint import digest_of_file

# Letters of a label.
_LONGEST = 300
# Of the file: labels of form 1 named neither rounds nor components.
_FORM = 2


def keep_label(path: Path, label: str) -> Path:
    """Write FILE.checked.json. label: what may be said of the file, with date, version and all that was tried."""
    kept = _beside(path)
    content = {"form": _FORM, "file": path.name, "digest": digest_of_file(path), "label": label}
    kept.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return kept


def label_of(path: Path) -> str | None:
    """What was said of the file as it is now; None where it, or what it imports, was not checked or has changed."""
    try:
        content = json.loads(regular(_beside(path), "scenario").read_text(encoding="utf-8"))
        label, digest, form = content["label"], content["digest"], content.get("form")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    # Who writes this file can write anything: it is a note of the user's own, and no proof.
    sound = form == _FORM and isinstance(label, str) and len(label) < _LONGEST
    return label if sound and digest == digest_of_file(path) else None


def labels(files: Files) -> dict[str, str]:
    """File → label, of the Python files that a scenario names and that passed a check."""
    found = {path.name: label_of(path) for path in code_files(files)}
    return {name: label for name, label in found.items() if label is not None}


def code_files(files: Files) -> Mapping[Path, tuple[str, ...]]:
    """Python file → the components that a scenario takes from it, both in the order of the alphabet."""
    found: dict[Path, set[str]] = {}
    for place, path in files.items():
        if path.suffix.lower() == ".py":
            found.setdefault(path, set()).add(_component(place))
    return {path: tuple(sorted(found[path])) for path in sorted(found)}


def _component(place: tuple[str, ...]) -> str:
    """ "partition" of problem.partition, "mechanism" of privacy.mechanism.kind, "problem" of problem.losses."""
    return next((key for key in ("data", "partition", "mechanism") if key in place), place[0])


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked.json")
