"""Names of run folders: the scenario, and what `--set` changes in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from decentral_dp.config.loading import ABSENT, parsed

# A name in a folder has at most 255 bytes on the usual file systems; a number may follow, and temporary endings.
_MOST_BYTES = 160
_DIGEST_LETTERS = 8


def run_name(stem: str, overrides: Sequence[str]) -> str:
    """Name a run by its scenario and what is changed in it, as a folder can be called.

    Args:
        stem: of the scenario's file.
        overrides: "table.key=value"; of a key that is set twice the last counts.

    Returns:
        STEM-key=value-…, with as much of each key as tells it from the others. What is too long is cut, and ends with
        a digest of everything.

    Example:
        >>> run_name("ring_breast_cancer", ["privacy.epsilon=2.0", "topology.kind=complete"])
        'ring_breast_cancer-epsilon=2.0-kind=complete'
        >>> run_name("quadratic", ["topology.kind=star", "algorithm.kind=ma_dsbo", "topology.weights={kind='lazy'}"])
        'quadratic-topology.kind=star-algorithm.kind=ma_dsbo-weights=lazy'
    """
    changed = {tuple(keys): value for keys, value in map(parsed, overrides)}
    parts = [f"{_key(keys, list(changed))}={_value(value)}" for keys, value in changed.items()]
    if not parts:
        return stem
    name = "-".join([stem, *(re.sub(r"[^\w.=+,-]+", "_", part) for part in parts)])
    # A file's name may be bytes that are no text.
    content = os.fsencode(name)
    if len(content) <= _MOST_BYTES:
        return name
    digest = blake2b("\0".join([stem, *overrides]).encode("utf-8", "surrogatepass"), digest_size=_DIGEST_LETTERS // 2)
    kept = content[: _MOST_BYTES - _DIGEST_LETTERS - 1].decode("utf-8", "ignore")
    return f"{kept}-{digest.hexdigest()}"


def _key(keys: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> str:
    """The end of a key that no other one has."""
    for depth in range(1, len(keys) + 1):
        if sum(other[-depth:] == keys[-depth:] for other in others) == 1:
            return ".".join(keys[-depth:])
    return ".".join(keys)


def _value(value: Any) -> str:
    """A value in a few letters: tables by their kind or file, else by what they hold."""
    if value is ABSENT:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        named = value.get("kind") or value.get("file")
        held = [f"{key}={_value(inner)}" for key, inner in value.items() if key not in ("kind", "file")]
        return ",".join([str(named), *held] if named else held)
    return ",".join(map(_value, value)) if isinstance(value, list) else str(value)
