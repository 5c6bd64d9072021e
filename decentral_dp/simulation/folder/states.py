"""State files of runs: numbers, strings, arrays, `Bounded`, and tuples, lists and dicts of them, without code.

A file is an .npz archive of a JSON text with the nesting of values, and the arrays. Named tuples and frozen dataclasses
are identified by module and class. Classes are looked up only in this package and in the algorithm's module, so that a
file cannot choose code to call.

Agents that hold their records keep their states next to the records, and these files are never sent. If a block of
agents reads `/data/agent-3.npz`, its states are `/data/states/RUN-3-ROUND.npz`, which only the owner can read. The
driver receives a receipt: the round, and a digest that leaks nothing of the state, because the file has random bits.
The last two states are kept, so that blocks that are interrupted during a write have a common round.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from decentral_dp.algorithms.plans import Wrapper
from decentral_dp.engines.protocol import Receipts
from decentral_dp.files.durable import digest, intact, write_synced

_STRUCTURE = "structure"
_ALGORITHM_MODULE = "algorithm"
# Kinds of arrays that are saved.
_KINDS = "biufc"


class AuthorModule(NamedTuple):
    """Module of a custom algorithm, whose classes may occur in a state.

    Args:
        name: name of the module.
        names: definitions of the module.
    """

    name: str
    names: Mapping[str, Any]


def module_of(algorithm: Any) -> AuthorModule:
    """Return the module of an algorithm.

    If a user's file is not an imported module, its definitions are the globals of its functions.
    """
    while isinstance(algorithm, Wrapper):
        algorithm = algorithm.program
    kind = type(algorithm)
    module = kind.__module__
    if module in sys.modules:
        return AuthorModule(module, vars(sys.modules[module]))
    functions = (f.__globals__ for f in vars(kind).values() if isinstance(f, FunctionType))
    return AuthorModule(module, next((names for names in functions if names.get("__name__") == module), {}))


def to_bytes(value: Any, module: AuthorModule) -> bytes:
    """Write values as bytes.

    Args:
        value: nested values; arrays keep their memory layout, on which the last bits of sums may depend.
        module: module of the algorithm.

    Returns:
        The .npz archive.

    Raises:
        TypeError: an object cannot be saved.

    Example:
        >>> kept = to_bytes({"x": np.array([1.0, 2.0]), "round": 3}, AuthorModule("", {}))
        >>> from_bytes(kept, AuthorModule("", {}))
        {'x': array([1., 2.]), 'round': 3}
    """
    arrays: dict[str, NDArray[Any]] = {}
    structure = json.dumps(_describe(value, arrays, module))
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **{_STRUCTURE: np.array(structure)}, **arrays)
    return out.getvalue()


def from_bytes(content: bytes, module: AuthorModule) -> Any:
    """Read the values that `to_bytes` wrote.

    Raises:
        ValueError: the bytes are damaged, or name an unknown class.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return _build_value(json.loads(str(arrays[_STRUCTURE])), arrays, module)
    except (OSError, EOFError, zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a file of saved values ({error})") from error


def _describe(value: Any, arrays: dict[str, NDArray[Any]], module: AuthorModule) -> Any:
    """Describe a value in JSON, adding its arrays to `arrays`."""
    inner = partial(_describe, arrays=arrays, module=module)
    if value is None or type(value) in (bool, int, str):
        return {"value": value}
    if type(value) is float:
        return {"float": value.hex()}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _KINDS:
        array, name = np.asarray(value), f"a{len(arrays)}"
        arrays[name] = array
        description: dict[str, Any] = {"array": name, "scalar": isinstance(value, np.generic)}
        if not (array.flags.c_contiguous or array.flags.f_contiguous) and min(array.strides) >= 0:
            description["strides"] = list(array.strides)
        return description
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"named": _name(type(value), module), "parts": [inner(v) for v in value]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: inner(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return {"fields": _name(type(value), module), "parts": fields}
    if type(value) in (list, tuple):
        return {type(value).__name__: [inner(v) for v in value]}
    if isinstance(value, Mapping):
        return {"dict": [[inner(k), inner(v)] for k, v in value.items()]}
    raise TypeError(
        f"a {type(value).__name__} cannot be saved; a state consists of numbers, arrays and tuples of these"
    )


def _with_strides(array: NDArray[Any], strides: list[int]) -> NDArray[Any]:
    """Copy an array into the memory layout with these strides."""
    if len(strides) != array.ndim or any(type(s) is not int or s < 0 or s % array.itemsize for s in strides):
        raise ValueError("strides do not fit their array")
    room = sum(s * (n - 1) for s, n in zip(strides, array.shape, strict=True)) // array.itemsize + 1
    if room > 64 * array.size + 1024:
        # A narrow column of a very wide array would waste memory.
        return array
    out = as_strided(np.empty(room, dtype=array.dtype), array.shape, strides)
    out[...] = array
    return out


def _name(kind: type, module: AuthorModule) -> list[str]:
    """Return the module and the name by which the class of a value can be found.

    Raises:
        TypeError: the class cannot be found there.
    """
    name = [_ALGORITHM_MODULE if kind.__module__ == module.name else kind.__module__, kind.__qualname__]
    try:
        _class(name, module)
    except ValueError as error:
        raise TypeError(
            f"a {kind.__qualname__} of {kind.__module__} cannot be saved; define it at the top level of the "
            "algorithm's file"
        ) from error
    return name


def _class(name: list[str], module: AuthorModule) -> Any:
    """Look up a class of values, only in this package and in the algorithm's module."""
    module_name, class_name = name
    is_ours = module_name.split(".")[0] == __package__.split(".")[0] and module_name in sys.modules
    names = module.names if module_name == _ALGORITHM_MODULE else vars(sys.modules[module_name]) if is_ours else {}
    first, *inner_names = class_name.split(".")
    member: Any = names.get(first)
    for part in inner_names:
        member = getattr(member, part, None)
    if not (isinstance(member, type) and (dataclasses.is_dataclass(member) or hasattr(member, "_fields"))):
        raise ValueError(f"{class_name} of {module_name} is not a class of saved values")
    return member


def _build_value(description: Any, arrays: Mapping[str, NDArray[Any]], module: AuthorModule) -> Any:
    inner = partial(_build_value, arrays=arrays, module=module)
    if "value" in description:
        return description["value"]
    if "float" in description:
        return float.fromhex(description["float"])
    if "array" in description:
        array = arrays[description["array"]]
        if description["scalar"]:
            return array[()]
        return _with_strides(array, description["strides"]) if "strides" in description else array
    if "named" in description:
        return _class(description["named"], module)(*map(inner, description["parts"]))
    if "fields" in description:
        return _class(description["fields"], module)(**{k: inner(v) for k, v in description["parts"].items()})
    if "dict" in description:
        return {inner(k): inner(v) for k, v in description["dict"]}
    if "list" in description:
        return [inner(v) for v in description["list"]]
    return tuple(inner(v) for v in description["tuple"])


STATES = "states"
# Number of states that are kept, and of random bytes that keep a digest from confirming a guess of the state.
_LAST, _SALT = 2, 16


@dataclass
class AgentStates:
    """States of one block of agents in one run.

    Args:
        folder: folder of the files.
        name: prefix of the file names.
        module: module of the algorithm.
        receipts: receipts of the states that this run has kept, default none.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     states = AgentStates(Path(folder) / STATES, "run-0", AuthorModule("", {}))
        ...     kept = [states.write(t, {"y": float(t)}) for t in (10, 20, 30)][-1]
        ...     later = AgentStates(Path(folder) / STATES, "run-0", AuthorModule("", {}), kept)
        ...     later.saved_rounds(), later.state_after(30)
        ([20, 30], {'y': 30.0})
    """

    folder: Path
    name: str
    module: AuthorModule
    receipts: Receipts = field(default=())

    def write(self, t: int, state: Mapping[str, Any]) -> Receipts:
        """Write the state after a round.

        Returns:
            The receipts for the driver, which map each kept round to the digest of its file.

        Raises:
            TypeError: the state cannot be saved or written. The run continues.
        """
        content = to_bytes({"salt": os.urandom(_SALT).hex(), "state": dict(state)}, self.module)
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            write_synced(self._path(t), content, mode=0o600)
        except OSError as error:
            raise TypeError(f"states of agents cannot be saved in {self.folder}: {error.strerror}") from error
        before = [receipt for receipt in self.receipts if receipt[0] < t]
        self.receipts = [*before, (t, digest(content))][-_LAST:]
        self._remove_others()
        return self.receipts

    def saved_rounds(self) -> list[int]:
        """List the rounds whose states are intact."""
        return [t for t, _ in self.receipts if self._read_state(t) is not None]

    def state_after(self, t: int) -> Mapping[str, Any]:
        """Read the state after a round, one of `saved_rounds`."""
        state: Mapping[str, Any] = self._read_state(t)["state"]
        return state

    def forget(self, later_than: int = -1) -> None:
        """Remove the states of later rounds (by default all rounds), and the folder if it is empty."""
        self.receipts = [receipt for receipt in self.receipts if 0 < receipt[0] <= later_than]
        self._remove_others()

    def _path(self, t: int) -> Path:
        return self.folder / f"{self.name}-{t}.npz"

    def _read_state(self, t: int) -> Any:
        """Read a file; return None if it was changed."""
        try:
            content = intact(self._path(t), dict(self.receipts)[t])
            return None if content is None else from_bytes(content, self.module)
        except (OSError, ValueError):
            return None

    def _remove_others(self) -> None:
        """Remove all files of this block and run without a receipt."""
        in_use = {self._path(t) for t, _ in self.receipts}
        try:
            for path in {*self.folder.glob(f"{self.name}-*.npz"), *self.folder.glob(f".{self.name}-*.part")} - in_use:
                path.unlink(missing_ok=True)
            if not in_use:
                self.folder.rmdir()
        except OSError:
            # The folder has other files, or is not writable. The run continues.
            return
