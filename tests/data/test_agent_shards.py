"""Manifests: what is written is read again, and whatever else is refused with a sentence."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from decentral_dp import InputError
from decentral_dp.data.agent_shards import Manifest, ShardEntry, read_manifest

SHA = "0123456789abcdef" * 4
TOLD = Manifest(
    "mine",
    ("a", "b"),
    ("no", "yes"),
    (ShardEntry(3, 2, 1, SHA), ShardEntry(4, 4, 0, SHA)),
    (0.0, 2.0),
    (1, 2, 1),
    ("Said.",),
)
GOOD: dict[str, Any] = {"features": 2, "classes": [0, 1], "agents": [{"train": 3, "validation": 2, "sha256": SHA}]}


def read(folder: Path, content: Any, name: str = "manifest.json") -> Manifest:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_manifest(path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    again = read(tmp_path, TOLD.to_toml(), "manifest.toml")
    assert (again, again.digest) == (TOLD, TOLD.digest)
    assert read(tmp_path, GOOD).agents == (ShardEntry(3, 2, 0, SHA),)
    assert read(tmp_path, GOOD).names == ("x0", "x1")
    assert read(tmp_path, GOOD).digest != TOLD.digest


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"agents": []}, "lists no agents"),
        ({"agents": 3}, "lists no agents"),
        ({"agents": [3]}, "agent 0 is no table"),
        ({"agents": [{"train": 1, "validation": 1}]}, "agent 0: sha256 is 64 hexadecimal digits"),
        ({"agents": [{"train": -1, "validation": 1, "sha256": SHA}]}, "agent 0: train is a number of records"),
        ({"agents": [{"train": True, "validation": 1, "sha256": SHA}]}, "agent 0: train is a number of records"),
        ({"agents": [{"train": 10**8, "validation": 1, "sha256": SHA}]}, "counts more than 100000000 records"),
        ({"agents": [{"train": 1, "vaildation": 1, "sha256": SHA}]}, 'unknown key "vaildation"; the nearest is'),
        ({"features": 0}, "features is how many there are"),
        ({"features": 10**12}, "features is how many there are"),
        ({"features": ["a", "a"]}, "a list of different names"),
        ({"classes": [1]}, "at least two different labels"),
        ({"classes": [1, "1"]}, "at least two different labels"),
        ({"range": [1, 1]}, "range is .low, high."),
        ({"range": [0, 1e308]}, "range is .low, high."),
        ({"image": [2, 2, 1]}, "do not have 2 numbers"),
        ({"image": [2, 0, 1]}, "image is .height, width, channels."),
        ({"source": "a\u001b[31m"}, "source is what results call the records"),
        ({"notes": ["a\nb"]}, "notes is a list of at most 20 sentences"),
        ({"more": 1}, 'unknown key "more"'),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, GOOD | changed)


def test_files_that_are_no_manifest_are_refused(tmp_path: Path) -> None:
    for content in ("", "[", "[" * 100_000, '"a"', "null"):
        with pytest.raises(InputError, match=r"problem\.manifest: "):
            read(tmp_path, content)
    for missing in (tmp_path / "none.toml", tmp_path, Path("/dev/zero")):
        with pytest.raises(InputError, match=r"problem\.manifest: "):
            read_manifest(missing)


def test_a_manifest_with_bytes_changed_is_read_or_refused(tmp_path: Path) -> None:
    draw = random.Random(5)
    path = tmp_path / "manifest.toml"
    for _ in range(200):
        content = bytearray(TOLD.to_toml().encode())
        for _ in range(draw.randint(1, 3)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            assert read_manifest(path).agents
