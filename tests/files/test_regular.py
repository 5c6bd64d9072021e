"""Files that are not regular, too large or hostile raise an error."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decentral_dp import InputError
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data.tables import DeclaredColumns, read_npz, read_table
from decentral_dp.files import regular
from decentral_dp.files.regular import most_bytes
from decentral_dp.topology.graph_files import read_graph


def _read_scenario(path: Path) -> Any:
    return load(path.with_suffix(".toml"))


READERS: dict[str, Callable[[Path], Any]] = {
    "csv": lambda path: read_table(path, DeclaredColumns("y", classes=())),
    "npz": lambda path: read_npz(path, DeclaredColumns(classes=())),
    "graph": lambda path: read_graph(path.with_suffix(".csv")),
    "scenario": _read_scenario,
}
ENDING = {"csv": ".csv", "npz": ".npz", "graph": ".csv", "scenario": ".toml"}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["a pipe", "a device", "too large"])
def test_only_regular_files_of_a_public_size_are_read(
    reader: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"given{ENDING[reader]}"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"0" * 1001)
        monkeypatch.setenv("DECENTRAL_DP_MOST_BYTES", "1000")
    said = (
        f"(is {kind}. Fix: use a regular file|is not a file)"
        if kind != "too large"
        else "1001 bytes, more than the limit of 1000"
    )
    with pytest.raises(InputError, match=said) as error:
        READERS[reader](path)
    assert path.name in str(error.value)


@pytest.mark.parametrize("given", ["0", "-1", "2G", "²", "1e9"])
def test_the_bound_is_a_number_of_bytes(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECENTRAL_DP_MOST_BYTES", given)
    with pytest.raises(InputError, match="expected a number of bytes"):
        most_bytes()


def _header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _stored(values: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


# Content of the array X.
HOSTILE = {
    "more numbers than bytes": _header("(4611686018427387904, 3)"),
    "forty gigabytes": _header("(2000000000, 3)") + bytes(100),
    "a negative size": _header("(-5, 3)") + bytes(120),
    "a size that is no whole number": _header("(5.0, 3)") + bytes(120),
    "a long header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31 - 1) + bytes(1000),
    "an open bracket": _header("(5, 3"),
    "an unknown version": b"\x93NUMPY\x09\x00" + bytes(100),
    "no array": b"not an array",
    "nothing": b"",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_headers_that_mislead_are_refused(case: str, tmp_path: Path) -> None:
    path = tmp_path / "records.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", HOSTILE[case])
        archive.writestr("y.npy", _stored(np.arange(5)))
    with pytest.raises(InputError, match="is damaged"):
        read_npz(path, DeclaredColumns())


def test_a_password_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "records.npz"
    np.savez(path, X=np.zeros((4, 2)), y=np.arange(4))
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := content.find(signature, at + 1)) >= 0:
            content[at + flags] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        read_npz(path, DeclaredColumns())


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.npz"
    np.savez_compressed(path, X=np.zeros((10**5, 4)), y=np.zeros(10**5), unread=np.zeros(10**6))
    assert path.stat().st_size < 10**5
    monkeypatch.setattr(regular, "MOST_BYTES", 10**6)
    monkeypatch.setattr(np.lib.format, "read_array", None)
    with pytest.raises(InputError, match=r"unpacks to 4000256 bytes, more than the limit of 1000000.*MOST_BYTES"):
        read_npz(path, DeclaredColumns())
    monkeypatch.undo()
    # Arrays that are not read do not count.
    monkeypatch.setattr(regular, "MOST_BYTES", 5 * 10**6)
    assert read_npz(path, DeclaredColumns(classes=())).features.shape == (10**5, 4)
