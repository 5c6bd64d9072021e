"""Arrays that Python code of the user's own can see beside its arguments, named for a note.

A loss is tried on made-up records, and may still hold real ones: a file that reads the data when it is imported, a
function that closes over an array, an object with a table in an attribute. Nothing can tell whether such an array is
private. What is found is named; what is not found (what a function reads from a disk when it is called) may be there.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

# Fewer numbers than this are settings.
HANDFUL = 16
# How far objects are followed into each other.
_DEPTH = 4
_PACKAGE = f"{Path(__file__).parents[2]}/"
_LIBRARIES = tuple(
    {path + "/" for key in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(key))}
)


def components_of(thing: Any, name: str = "", depth: int = 2 * _DEPTH) -> Iterator[tuple[str, Any]]:
    """Name → a problem and what it is made of: the values of its fields, and of theirs."""
    yield name, thing
    if depth == 0 or isinstance(thing, type):
        return
    if is_dataclass(thing):
        names = [f.name for f in fields(thing)]
    elif isinstance(thing, tuple):
        names = list(getattr(thing, "_fields", ()))
    else:
        return
    for inner in names:
        yield from components_of(getattr(thing, inner), inner, depth - 1)


def arrays_seen(*things: Any) -> list[str]:
    """In words, as "`upper_loss` closes over `features`, an array of shape (569, 30)"; each array once.

    Args:
        things: problems, algorithms and functions. Of a problem those parts are looked at that its user wrote.
    """
    seen: set[int] = set()
    out: dict[str, None] = {}
    for thing in things:
        for field, part in components_of(thing):
            if not _is_written(part):
                continue
            is_function = isinstance(part, FunctionType | MethodType)
            name = (field or part.__name__) if is_function else type(part).__name__
            for variable, array in _arrays(part, "", seen, _DEPTH):
                out[f"`{name}` closes over `{variable}`, {array}"] = None
    return list(out)


def _is_written(part: Any) -> bool:
    """Whether one part of a problem is a function, an object or a module that the user wrote."""
    if isinstance(part, FunctionType | MethodType):
        return not _is_foreign(part.__code__.co_filename)
    if isinstance(part, partial) or hasattr(part, "named_buffers"):
        return True
    return not isinstance(part, type) and bool(_methods(part))


def _arrays(value: Any, name: str, seen: set[int], depth: int) -> Iterator[tuple[str, str]]:
    """Variable → what it holds, of everything that a value leads to."""
    if id(value) in seen or value is None or isinstance(value, str | bytes | int | float | type):
        return
    seen.add(id(value))
    described = _described(value)
    if described is not None:
        if described:
            yield name, described
        return
    if depth == 0:
        return
    for inner, found in _inside(value):
        yield from _arrays(found, inner if not name or inner.isidentifier() else f"{name}{inner}", seen, depth - 1)


def _described(value: Any) -> str | None:
    """What an array, or a list of numbers, is, in words; "" of one that is small, None of anything else."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and (hasattr(value, "dtype") or hasattr(value, "dtypes")):
        if any(not isinstance(n, int | np.integer) for n in shape):
            return None
        kind = "an array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        return f"{kind} of shape {tuple(map(int, shape))}" if np.prod(shape, dtype=np.int64) > HANDFUL else ""
    if isinstance(value, list | tuple) and value and all(isinstance(v, int | float) for v in value):
        return f"{len(value)} numbers" if len(value) > HANDFUL else ""
    return None


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Variable → value, of what Python code can reach from a value of the user's own."""
    if isinstance(value, ModuleType):
        return  # `torch.ops` says that it has whatever it is asked for; what a function names of a module is looked up.
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{k}]", inner) for k, inner in enumerate(value))
    elif isinstance(value, partial):
        yield from (("func", value.func), *((f"[{k}]", v) for k, v in enumerate(value.args)), *value.keywords.items())
    elif isinstance(value, MethodType):
        yield from (("self", value.__self__), ("func", value.__func__))
    elif isinstance(value, FunctionType):
        if not _is_foreign(value.__code__.co_filename):
            yield from _of_function(value)
    elif hasattr(value, "named_buffers"):
        # A torch module: its trainable parameters are published anyway.
        yield from value.named_buffers()
        yield from ((name, p) for name, p in value.named_parameters() if not p.requires_grad)
        yield from ((f.__name__, f) for part in value.modules() for f in _methods(part))
    else:
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
        yield from ((f.__name__, f) for f in _methods(value))


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, its defaults, and the globals that it names."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # Empty: nothing was assigned yet.
            continue
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name in _names(code):
        if name in function.__globals__:
            held = function.__globals__[name]
            yield name, held
            if isinstance(held, ModuleType) and not _is_foreign(getattr(held, "__file__", None) or "<built in>"):
                yield from ((n, getattr(held, n)) for n in _names(code) if hasattr(held, n))


def _names(code: CodeType) -> set[str]:
    """Names that are not local, of a function and of those in it."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def _methods(thing: Any) -> list[Callable[..., Any]]:
    """The methods of an object that its user wrote."""
    found = [f for home in type(thing).__mro__ for f in vars(home).values() if isinstance(f, FunctionType)]
    return [f for f in found if not _is_foreign(f.__code__.co_filename)]


def _is_foreign(file: str) -> bool:
    """Whether code is this package's or a library's; what was typed in or made by a dataclass is in no file."""
    return file.startswith((_PACKAGE, "<string>", "<built in>", "<frozen", *_LIBRARIES))
