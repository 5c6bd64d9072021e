"""What an attack has found so far, on disk, so that one that is cut off goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.adversaries.attack.members import Attacked
from decentral_dp.adversaries.audit.storage import OWNERS, write_json
from decentral_dp.bounded import Array
from decentral_dp.config.components import inputs_digest
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.files.package import package_digest
from decentral_dp.files.regular import regular
from decentral_dp.files.salt import new_salt

INTERRUPTED = "interrupted"
ATTACK = "attack"


class AskedAttack(NamedTuple):
    """folders: of the runs that are attacked. runs: in all."""

    folders: Sequence[Path]
    runs: int


def read_attack(out: Path, content: Mapping[str, Any]) -> AskedAttack:
    """Read what an attack that was cut off was asked.

    Args:
        out: its file.
        content: of the file.

    Raises:
        InputError: the file does not say it.
    """
    try:
        asked = content["asked"]
        return AskedAttack([Path(folder) for folder in asked["folders"]], int(asked["runs"]))
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"resume: {out} does not say which runs were attacked, as an earlier version of decentral_dp leaves it. "
            f"Give the same attack with --out {out} again; what was found is kept."
        ) from None


def attack_fingerprint(given: Sequence[tuple[Scenario, dict[str, Array]]], salt: bytes) -> str:
    """Hash whatever decides what is found, this package among it; more runs go on from fewer.

    Args:
        given: of each run folder its scenario, and what it published.
        salt: that keys the digest of files.

    Returns:
        16 hexadecimal digits.
    """
    digest = blake2b(package_digest().encode(), digest_size=8)
    for scenario, published in given:
        content = scenario.model_dump(mode="json", exclude={"title", "description", "versions", "objects", "run"})
        digest.update(json.dumps([content, inputs_digest(scenario, salt)], sort_keys=True, default=str).encode())
        for name in sorted(published):
            digest.update(name.encode() + np.ascontiguousarray(published[name]).tobytes())
    return digest.hexdigest()


def found_so_far(out: Path, mark: Callable[[bytes], str]) -> tuple[list[Attacked], bytes]:
    """What an attack that was cut off left in a file, and its salt; nothing, and a new one, where there is no file yet.

    Args:
        out: of `keep_found`.
        mark: salt → fingerprint of what is attacked.

    Raises:
        InputError: the file holds anything else, or there is no folder for it.
    """
    if not out.parent.is_dir():
        raise InputError(f"--out: there is no folder {out.parent}; make it, or give a file in another.")
    if not out.exists():
        return [], new_salt()
    regular(out, "--out")
    try:
        content = json.loads(out.read_text(encoding="utf-8"))
        cut_off, attacked = content["status"] == INTERRUPTED, content["fingerprint"]
        # One of an earlier version has no salt, and is of another state of the package.
        salt = bytes.fromhex(content.get("salt", ""))
        found = [
            Attacked(int(one["members"]), int(one["others"]), {str(k): _number(v) for k, v in one["auc"].items()})
            for one in content["each"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        cut_off, attacked, found, salt = False, "", [], b""
    if not cut_off:
        raise InputError(f"--out: {out} exists already, and nothing is written over; give another file.")
    if attacked != mark(salt):
        raise InputError(
            f"{out} holds an interrupted attack on other runs, on ones that have changed since, or by another state of "
            "this package; put them back, or give another file."
        )
    return found, salt


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def keep_found(out: Path, fingerprint: str, salt: bytes, each: Sequence[Attacked], asked: AskedAttack) -> None:
    """Write what is found so far.

    Args:
        out: the file.
        fingerprint: of what is attacked.
        salt: that keys it, which the file has, for its owner only to read.
        each: run by run.
        asked: what it takes to go on by the file.
    """
    given = {"what": ATTACK, "folders": [str(folder.resolve()) for folder in asked.folders], "runs": asked.runs}
    runs = [{"members": one.members, "others": one.others, "auc": dict(one.auc)} for one in each]
    marked = {"fingerprint": fingerprint, "salt": salt.hex()}
    write_json(out, {"status": INTERRUPTED, **marked, "each": runs, "asked": given}, OWNERS)
