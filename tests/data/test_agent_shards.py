"""Manifests: round trips and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from decentral_dp import InputError
from decentral_dp.data.agent_shards import Manifest, ShardEntry, read_shard_manifest

SHA = "0123456789abcdef" * 4
TOLD = Manifest(
    source="mine",
    features=("a", "b"),
    classes=("no", "yes"),
    range=(0.0, 2.0),
    image=(1, 2, 1),
    notes=("Said.",),
    agents=(ShardEntry(train=3, validation=2, test=1, sha256=SHA), ShardEntry(train=4, validation=4, sha256=SHA)),
)
AGENT: dict[str, Any] = {"train": 3, "validation": 2, "sha256": SHA.upper()}
GOOD: dict[str, Any] = {"features": 2, "classes": [0, 1], "agents": [AGENT]}


def read(folder: Path, content: Any) -> Manifest:
    path = folder / "manifest.toml"
    path.write_text(content if isinstance(content, str) else tomli_w.dumps(content))
    return read_shard_manifest(path)


def test_a_written_manifest_is_read_again(tmp_path: Path) -> None:
    again = read(tmp_path, tomli_w.dumps(TOLD.model_dump(mode="json", exclude_none=True)))
    assert (again, again.digest) == (TOLD, TOLD.digest)
    counted = read(tmp_path, GOOD)
    assert counted.agents == (ShardEntry(train=3, validation=2, sha256=SHA),)
    assert counted.features == ("x0", "x1")
    assert counted.digest != TOLD.digest
    assert read(tmp_path, GOOD | {"source": "a\u001b[31m"}).source.isprintable()


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"agents": []}, "agents"),
        ({"agents": [{"train": 1, "validation": 1}]}, r"agents\.0\.sha256"),
        ({"agents": [AGENT | {"train": -1}]}, r"agents\.0\.train"),
        ({"agents": [AGENT | {"train": 10**8}]}, "agents have more than 100000000 records"),
        ({"features": 0}, "features"),
        ({"features": ["a", "a"]}, "features has a name twice"),
        ({"classes": [1]}, "classes"),
        ({"range": [1, 1]}, "range"),
        ({"image": [2, 2, 1]}, "image"),
    ],
)
def test_a_manifest_with_another_content_is_refused(tmp_path: Path, changed: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=rf"problem\.manifest: .*{key}"):
        read(tmp_path, GOOD | changed)


def test_files_that_are_no_manifest_are_refused(tmp_path: Path) -> None:
    for content in ("", "[", "[" * 100_000, '"a"', "null"):
        with pytest.raises(InputError, match=r"problem\.manifest: "):
            read(tmp_path, content)
    for missing in (tmp_path / "none.toml", tmp_path, Path("/dev/zero")):
        with pytest.raises(InputError, match=r"problem\.manifest: "):
            read_shard_manifest(missing)
