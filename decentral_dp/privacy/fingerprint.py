"""Digests of a user's inputs: files with their imports, Python objects, arrays.

By them an interrupted run is resumed on the same inputs only.

A digest differs wherever what is computed may differ, and is the same in another process and on another processor: it
is taken of sources, of values that functions close over or read as globals, of fields and of arrays as given; never of
an address, and never of a number that this package derived.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from decentral_dp.files.regular import regular

_PACKAGE = Path(__file__).parent.parent
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
# Installed packages whose versions a run folder records (`files.package.versions`).
_VERSIONS_KEPT = ("numpy", "scipy", "sklearn", "torch", "ray", "pandas", "networkx", "pyarrow")
# Globals of a module that say where it is: the same file may be named from two folders.
_ADDRESSES = {"__file__", "__path__", "__spec__", "__loader__", "__cached__"}
# Of a class: says where it was written, not what it does.
_UNREAD = ("__module__", "__qualname__", "__doc__", "__firstlineno__", "__dict__", "__weakref__")


def digest_of(value: Any) -> str:
    """A digest of a Python object: of its source, its fields, its arrays and what its functions close over.

    Args:
        value: a function, class, instance, array, tensor, graph, table, or a container of them.

    Returns:
        32 hexadecimal digits.

    Limits:
        Values that only C code holds are seen as far as `repr` shows them. Installed packages are seen by name.

    Example:
        >>> def scaled(weight):
        ...     return lambda a: weight * a
        >>> digest_of(scaled(1.0)) == digest_of(scaled(1.0)), digest_of(scaled(1.0)) == digest_of(scaled(2.0))
        (True, False)
    """
    return blake2b(_object_bytes(value, frozenset(), _Files()), digest_size=16).hexdigest()


def digest_of_file(path: Path) -> str:
    """A digest of a file's bytes; of a Python file together with the files of the user's own that it imports."""
    return (
        _Files().with_imports(path)
        if path.suffix == ".py"
        else blake2b(regular(path, "scenario").read_bytes()).digest()
    ).hex()


def imports_of_folder(path: Path) -> list[Path]:
    """The files of its folder that a Python file imports, or that those import, in the order of their names."""
    path = path.resolve()
    return sorted(other for other in _Files().imports(path) if other.parent == path.parent)


class _Files:
    """Sources of the user's own, each read once for a digest."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[bytes, list[Path]]] = {}
        self._whole: dict[Path, bytes] = {}
        self._packages: dict[str, tuple[list[Path], list[Path]]] = {}

    def with_imports(self, path: Path) -> bytes:
        """A digest of a Python file and of all that it imports, but for Python's own and installed modules."""
        path = path.resolve()
        if path not in self._whole:
            parts = [self._digest_and_imports(p)[0] for p in sorted(self.imports(path), key=str)]
            self._whole[path] = blake2b(self._digest_and_imports(path)[0] + b"".join(parts)).digest()
        return self._whole[path]

    def imports(self, path: Path) -> set[Path]:
        """The files of the user's own that a file imports, or that those import; not the file itself."""
        reached, ahead = {path}, [path]
        while ahead:
            for other in self._digest_and_imports(ahead.pop())[1]:
                if other not in reached:
                    reached.add(other)
                    ahead.append(other)
        return reached - {path}

    def _digest_and_imports(self, path: Path) -> tuple[bytes, list[Path]]:
        """A digest of a file's bytes alone, and the files of the user's own that it names in imports."""
        if path not in self._read:
            text = regular(path, "scenario").read_bytes()
            imports = [other.resolve() for name in _names_in(text) for other in self._files_of(name, path.parent)]
            self._read[path] = blake2b(text).digest(), imports
        return self._read[path]

    def _files_of(self, name: str, beside: Path) -> list[Path]:
        """Sources of a module of the user's own and of the packages it is in; none of Python's or installed ones.

        beside: the folder of the file that imports it, where modules are found that are nowhere else.
        """
        first, *inside = name.split(".")
        if first:
            if first not in self._packages:
                self._packages[first] = _package_of(first)
            sources, places = self._packages[first]
            sibling = beside / f"{first}.py"
            if not sources and not places and first not in sys.stdlib_module_names and sibling.is_file():
                return [sibling]
        else:
            # One dot is the folder itself, every further one the folder above.
            package = (beside, *beside.parents)[inside.count("")]
            sources, places = [package / "__init__.py"], [package]
        out = [path for path in sources if path.is_file()]
        for part in filter(None, inside):
            modules = [p for place in places for p in (place / f"{part}.py", place / part / "__init__.py")]
            places = [place / part for place in places if (place / part).is_dir()]
            out += [p for p in modules if p.is_file()]
        return [path for path in out if _is_own(path)]


# The same files are read for every job on them, and parsing one takes far longer than reading it.
@functools.lru_cache(maxsize=256)
def _names_in(text: bytes) -> tuple[str, ...]:
    """What a source may import, in order; nothing where it is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # Relative to the file's own folder by its dots.
            package = "." * node.level + (f"{node.module}." if node.module else "")
            names |= {package + alias.name for alias in node.names} | ({package[:-1]} if node.module else set())
    return tuple(sorted(names))


def _package_of(name: str) -> tuple[list[Path], list[Path]]:
    """The source of a module, and the folders of one that is a package; nothing of Python's or of installed ones."""
    if name in sys.stdlib_module_names or name == _PACKAGE.name:
        return [], []
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return [], []
    if spec is None:
        return [], []
    sources = [Path(spec.origin)] if spec.origin is not None and spec.origin.endswith(".py") else []
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    return sources, [place for place in places if _is_own(place)]


def _is_own(path: Path) -> bool:
    """Whether a source is the user's, and not of this package or an installed one."""
    return not path.is_relative_to(_PACKAGE) and not any(part in _PACKAGE_FOLDERS for part in path.parts)


@functools.cache
def _package_bytes(top: Path) -> bytes:
    """A digest of all sources of an installed package."""
    sources = sorted(top.rglob("*.py")) if top.is_dir() else [top]
    return blake2b(b"".join(blake2b(source.read_bytes()).digest() for source in sources)).digest()


def _object_bytes(value: Any, seen: frozenset[int], files: _Files) -> bytes:
    """Bytes that tell an object from another. seen: addresses of what is being described, against cycles."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return f"{type(value).__name__} {value!r}".encode()
    if id(value) in seen:
        return b"again"
    seen = seen | {id(value)}
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    # Arrays of objects are described entry by entry.
    if isinstance(value, np.ndarray) and value.dtype != object:
        return str((value.dtype, value.shape)).encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, list | tuple):
        return type(value).__name__.encode() + b"".join(_object_bytes(v, seen, files) + b"," for v in value)
    if isinstance(value, set | frozenset):
        return b"set" + b",".join(sorted(_object_bytes(v, seen, files) for v in value))
    if isinstance(value, Mapping):
        return b"".join(
            _object_bytes(k, seen, files) + b":" + _object_bytes(v, seen, files) + b"," for k, v in value.items()
        )
    return _of_code(value, seen, files) or _of_object(value, seen, files)


def _of_code(value: Any, seen: frozenset[int], files: _Files) -> bytes:
    """Of functions, classes and modules; nothing where it is none of them."""
    if isinstance(value, functools.partial):
        return b"partial" + _object_bytes((value.func, value.args, value.keywords), seen, files)
    if isinstance(value, MethodType):
        return _object_bytes(value.__func__, seen, files) + _object_bytes(value.__self__, seen, files)
    if isinstance(value, FunctionType):
        return _source(value, seen, files) + _object_bytes(_surroundings(value), seen, files)
    if isinstance(value, type):
        return _source(value, seen, files)
    if isinstance(value, ModuleType):
        path = getattr(value, "__file__", None)
        own = path is not None and path.endswith(".py") and _is_own(Path(path))
        return value.__name__.encode() + (files.with_imports(Path(path)) if own and path is not None else b"")
    return b""


def _of_object(value: Any, seen: frozenset[int], files: _Files) -> bytes:
    """Of an instance: its class and what it holds."""
    if hasattr(value, "nodes") and hasattr(value, "edges"):
        return repr((list(map(str, value.nodes)), sorted(map(str, value.edges(data=True))))).encode()
    kind = _source(type(value), seen, files)
    if is_dataclass(value):
        # What no caller can give is derived, or kept from one call to the next.
        return kind + b"".join(
            f.name.encode() + b"=" + _object_bytes(getattr(value, f.name), seen, files) for f in fields(value) if f.init
        )
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return kind + _object_bytes([(str(c), value[c].to_numpy()) for c in value.columns], seen, files)
    if hasattr(value, "__dict__"):
        return kind + _object_bytes(dict(sorted(vars(value).items())), seen, files)
    return kind if " at 0x" in repr(value) else kind + repr(value).encode()


def _surroundings(function: FunctionType) -> tuple[Any, ...]:
    """Return what a function depends on besides its code: defaults, closed-over values, and globals that it reads."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            cells.append(None)  # Not filled yet: a function that names itself.
    path = _file_of(function)
    own = path is None or _is_own(path)
    # An installed package's globals are its own; what its decorators and factories close over is the user's.
    named = sorted((_names(function.__code__) & function.__globals__.keys()) - _ADDRESSES) if own else []
    return function.__defaults__, function.__kwdefaults__, cells, {n: function.__globals__[n] for n in named}


def _names(code: CodeType) -> set[str]:
    """Names that a function and those within it may look up among globals."""
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*inner)


def _file_of(value: Any) -> Path | None:
    try:
        file = inspect.getsourcefile(value)
    except (TypeError, OSError):
        # A class of a notebook, or of a module that Python no longer knows: its functions know where they were written.
        inside = [f for f in vars(value).values() if isinstance(f, FunctionType)] if isinstance(value, type) else []
        file = inside[0].__code__.co_filename if inside else None
    return None if file is None or not Path(file).is_file() else Path(file)


def _source(value: Any, seen: frozenset[int], files: _Files) -> bytes:
    """Where a function or class is written: the whole file with what it imports; its code where there is no file."""
    path, name = _file_of(value), str(value.__qualname__).encode()
    if path is not None and _is_own(path):
        return files.with_imports(path) + name
    if path is not None:
        # Of an installed package, but of this one and those whose versions are kept.
        place = next((k for k, part in enumerate(path.parts) if part in _PACKAGE_FOLDERS), None)
        if place is None or path.is_relative_to(_PACKAGE) or path.parts[place + 1] in _VERSIONS_KEPT:
            return name
        return _package_bytes(Path(*path.parts[: place + 2])) + name
    if isinstance(value, FunctionType):
        return name + _code(value.__code__)
    if value.__module__ == "__main__" or value.__module__ not in sys.modules:
        kinds = (FunctionType, bool, int, float, str, tuple)
        attributes = {k: v for k, v in vars(value).items() if isinstance(v, kinds) and k not in _UNREAD}
        return name + _object_bytes(dict(sorted(attributes.items())), seen | {id(value)}, files)
    return str(value.__module__).encode() + name


def _code(code: CodeType) -> bytes:
    """What a function does, without where it is written."""
    # The order of a set of constants is another in every process.
    plain = [sorted(map(repr, c)) if isinstance(c, frozenset) else c for c in code.co_consts]
    inner = [_code(c) if isinstance(c, CodeType) else repr(c).encode() for c in plain]
    return code.co_code + repr((code.co_names, code.co_varnames)).encode() + b"".join(inner)
