"""What an audit has played so far, on disk, so that an interrupted one goes on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.adversaries.audit.result import AuditResult
from decentral_dp.bounded import Array
from decentral_dp.config.components import inputs_digest
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.files.package import package_digest
from decentral_dp.files.regular import regular
from decentral_dp.files.salt import new_salt
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.simulation.result import plain, read_result

# Of a file that has a salt: for its owner alone.
OWNERS = 0o600
GROUPS = ("first", "second", "null")


@dataclass
class Played:
    """Scores of the runs of each world, in the order of their seeds, and the sizes of the noise that they drew.

    fingerprint: of the scenario and the settings, which must be the same to go on. salt: that keys it, in hexadecimal.
    """

    fingerprint: str
    salt: str = ""
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
        return {"fingerprint": self.fingerprint, "salt": self.salt, "scores": self.scores, "sizes": self.sizes}


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


def fingerprint(s: Scenario, vantage: str, confidence: float, seed: int, salt: bytes) -> str:
    """Hash whatever decides what is played, this package among it; more runs go on from fewer.

    Args:
        s: the scenario; its title, description, versions and `run` play no part, but the content of files that it
            names.
        vantage: as of `audit`.
        confidence: as of `audit`.
        seed: of the noise of the runs.
        salt: that keys the digest of files.

    Returns:
        16 hexadecimal digits.
    """
    content = s.model_dump(mode="json", exclude={"title", "description", "versions", "objects", "run"})
    given = [content, vantage, confidence, seed, inputs_digest(s, salt), package_digest()]
    text = json.dumps(given, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def resumed(out: Path | None, mark: Callable[[bytes], str]) -> Played:
    """What an interrupted audit left in this file, or nothing. mark: salt → fingerprint of what is asked.

    Raises InputError for a file that holds anything else, and where there is no folder for it.
    """
    if out is None or not out.exists():
        if out is not None and not out.parent.is_dir():
            raise InputError(f"--out: there is no folder {out.parent}; make it, or give a file in another.")
        salt = new_salt()
        return Played(mark(salt), salt.hex())
    regular(out, "--out")
    try:
        content = json.loads(out.read_text(encoding="utf-8"))
        # One of an earlier version has no salt, and is of another state of the package.
        interrupted, salt = content["status"] == "interrupted", bytes.fromhex(content.get("salt", ""))
        kept = Played(
            content["fingerprint"],
            str(content.get("salt", "")),
            {name: [_number(v) for v in content["scores"][name]] for name in GROUPS} if interrupted else {},
            {str(k): [float(v) for v in pair] for k, pair in content["sizes"].items()} if interrupted else {},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        interrupted, kept, salt = False, Played(""), b""
    if not interrupted:
        raise InputError(f"--out: {out} exists already, and nothing is written over; give another file.")
    if kept.fingerprint != mark(salt):
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


def write_json(out: Path, content: Mapping[str, Any], mode: int = 0o666) -> None:
    """Beside its place first, then moved there whole. mode: less the umask."""
    partial = out.with_name(f".{out.name}.part")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(json.dumps(plain(content), indent=2, allow_nan=False) + "\n")
    partial.replace(out)
