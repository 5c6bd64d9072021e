"""What an audit has played so far, on disk, so that an interrupted one goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.adversaries.audit_result import AuditResult
from decentral_dp.bounded import Array
from decentral_dp.config.input_digest import inputs_digest
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.files.package_digest import package_digest
from decentral_dp.files.regular import regular
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.simulation.result import plain, read_result

GROUPS = ("first", "second", "null")


@dataclass
class Played:
    """Scores of the runs of each world, in the order of their seeds, and the sizes of the noise that they drew.

    fingerprint: of the scenario and the settings, which must be the same to go on.
    """

    fingerprint: str
    scores: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in GROUPS})
    sizes: dict[str, list[float]] = field(default_factory=dict)

    def add(self, group: str, score: float, sizes: Mapping[str, tuple[int, float]]) -> None:
        """One run. sizes: as of `noise_sizes`."""
        self.scores[group].append(score)
        for name, (n, total) in sizes.items():
            before = self.sizes.get(name, [0.0, 0.0])
            self.sizes[name] = [before[0] + n, before[1] + total]

    def noise(self) -> list[tuple[str, int, float]]:
        """For `likelihoods.drawn_noise`."""
        return [(name, int(n), total) for name, (n, total) in self.sizes.items()]

    def to_dict(self) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint, "scores": self.scores, "sizes": self.sizes}


def noise_sizes(residuals: Mapping[str, Array]) -> dict[str, tuple[int, float]]:
    """Measure the noise of one run.

    Args:
        residuals: mechanism's name → its noise in units of the scale.

    Returns:
        Mechanism's name → how many numbers, and the sum of their sizes: of Gaussian noise squares, else absolute
        values.
    """
    return {
        name: (values.size, float((values**2 if name == GAUSSIAN.name else np.abs(values)).sum()))
        for name, values in residuals.items()
        if name in (GAUSSIAN.name, LAPLACE.name) and np.isfinite(values).all()
    }


def fingerprint(s: Scenario, runs: int, vantage: str, confidence: float, seed: int) -> str:
    """Hash whatever decides what is played, this package among it; more runs go on from fewer.

    Args:
        s: the scenario; its title, description, versions and `run` play no part, but the content of files that it
            names.
        runs: of each world; they play no part either.
        vantage: as of `audit`.
        confidence: as of `audit`.
        seed: of the noise of the runs.

    Returns:
        16 hexadecimal digits.
    """
    content = s.model_dump(mode="json", exclude={"title", "description", "versions", "objects", "run"})
    given = [content, vantage, confidence, seed, inputs_digest(s), package_digest()]
    text = json.dumps(given, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def resumed(out: Path | None, expected: str) -> Played:
    """What an interrupted audit left in this file, or nothing.

    Raises InputError for a file that holds anything else, and where there is no folder for it.
    """
    if out is None or not out.exists():
        if out is not None and not out.parent.is_dir():
            raise InputError(f"--out: there is no folder {out.parent}; make it, or give a file in another.")
        return Played(expected)
    regular(out, "--out")
    try:
        content = json.loads(out.read_text(encoding="utf-8"))
        interrupted = content["status"] == "interrupted"
        kept = Played(
            content["fingerprint"],
            {name: [_number(v) for v in content["scores"][name]] for name in GROUPS} if interrupted else {},
            {str(k): [float(v) for v in pair] for k, pair in content["sizes"].items()} if interrupted else {},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        interrupted, kept = False, Played("")
    if not interrupted:
        raise InputError(f"--out: {out} exists already, and nothing is written over; give another file.")
    if kept.fingerprint != expected:
        raise InputError(
            f"{out} holds an interrupted audit of another scenario or with other settings, of one that has changed "
            "since, or by another state of this package; put back what it was of, or give another file."
        )
    return kept


def _number(value: float | str | None) -> float:
    """As `plain` writes it: what is missing is NaN."""
    return math.nan if value is None else float(value)


def add_to_run(folder: Path, found: AuditResult) -> None:
    """Put what an audit shows into result.json of the run. Raises InputError where that cannot be read."""
    result = read_result(folder)
    write_json(folder / "result.json", {**result.content, "audit": found.to_dict()})


def write_json(out: Path, content: Mapping[str, Any]) -> None:
    """Beside its place first, then moved there whole."""
    partial = out.with_name(f".{out.name}.part")
    partial.write_text(json.dumps(plain(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(out)
