"""What `check` has said of a file of Python code, kept beside it for as long as the file stays as it is."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

from decentral_dp.config.schema import Scenario
from decentral_dp.files.regular import regular

# Letters of a label.
_LONGEST = 200


def keep_label(path: Path, label: str) -> Path:
    """Write FILE.checked.json. label: what may be said of the file, with date, version and pairs tried."""
    kept = _beside(path)
    content = {"file": path.name, "digest": _digest(path), "label": label}
    kept.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return kept


def label_of(path: Path) -> str | None:
    """What was said of the file as it is now; None where it was not checked, or has changed since."""
    try:
        content = json.loads(regular(_beside(path), "scenario").read_text(encoding="utf-8"))
        label, digest = content["label"], content["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # Who writes this file can write anything: it is a note of the user's own, and no proof.
    return label if isinstance(label, str) and len(label) < _LONGEST and digest == _digest(path) else None


def labels(s: Scenario) -> dict[str, str]:
    """File → label, of the Python files that a scenario names and that passed a check."""
    found = {path.name: label_of(path) for path in code_files(s)}
    return {name: label for name, label in found.items() if label is not None}


def code_files(s: Scenario) -> list[Path]:
    """The Python files that a scenario names."""
    return sorted({path for path in s.files().values() if path.suffix.lower() == ".py"})


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked.json")


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()
