"""Digests of Python objects that a user hands over: their sources, fields and arrays key the noise."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

_PACKAGE = Path(__file__).parent.parent


def digest_of(value: Any) -> str:
    """A digest that differs where what is computed may: of sources, of fields, of arrays; never of an address."""
    return blake2b(_told(value), digest_size=16).hexdigest()


def _told(value: Any) -> bytes:
    """Bytes that tell an object from another: sources, fields, arrays."""
    if isinstance(value, np.ndarray):
        return str((value.dtype, value.shape)).encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, type | FunctionType):
        return _source(value)
    if hasattr(value, "nodes") and hasattr(value, "edges"):
        return repr((list(map(str, value.nodes)), sorted(map(str, value.edges(data=True))))).encode()
    if is_dataclass(value):
        parts = [f.name.encode() + b"=" + _told(getattr(value, f.name)) for f in fields(value)]
        return _source(type(value)) + b"".join(parts)
    if isinstance(value, Mapping):
        return b"".join(str(k).encode() + b":" + _told(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return b"".join(_told(v) + b"," for v in value)
    if " at 0x" in repr(value):
        return _source(type(value)) + _told(dict(sorted(vars(value).items())) if hasattr(value, "__dict__") else ())
    return repr(value).encode()


def _source(value: Any) -> bytes:
    try:
        path = inspect.getsourcefile(value)
        if path is not None and Path(path).is_relative_to(_PACKAGE):
            return str(value.__qualname__).encode()
        if path is not None and Path(path).is_file():
            return Path(path).read_bytes() + str(value.__qualname__).encode()
    except (OSError, TypeError):
        pass
    functions = [value] if isinstance(value, FunctionType) else vars(value).values()
    codes = [_code(f.__code__) for f in functions if isinstance(f, FunctionType)]
    return str(value.__qualname__).encode() + b"".join(codes)


def _code(code: CodeType) -> bytes:
    """What a function does, without where it is written."""
    # The order of a set of constants is another in every process.
    plain = [sorted(map(repr, c)) if isinstance(c, frozenset) else c for c in code.co_consts]
    inner = [_code(c) if isinstance(c, CodeType) else repr(c).encode() for c in plain]
    return code.co_code + repr((code.co_names, code.co_varnames)).encode() + b"".join(inner)
