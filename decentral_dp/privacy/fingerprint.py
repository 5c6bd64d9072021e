"""Digests of a user's inputs: files with their imports, Python objects, arrays.

An interrupted run resumes only with inputs of the same digest, and changed code does not reuse noise. A digest covers
sources, values that functions close over or read as globals, fields, and arrays. It contains no address and no derived
number, so it is the same in another process and on another processor.
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
# Globals with the location of a module, which may differ for the same file.
_ADDRESSES = {"__file__", "__path__", "__spec__", "__loader__", "__cached__"}
# Attributes of a class with its location, not its behaviour.
_UNREAD = ("__module__", "__qualname__", "__doc__", "__firstlineno__", "__dict__", "__weakref__")


def digest_of(value: Any) -> str:
    """Compute a digest of a Python object: its source, fields and arrays, and the values that its functions close over.

    Args:
        value: function, class, instance, array, tensor, graph, table, or a container of these.

    Returns:
        32 hexadecimal digits.

    Limits:
        The digest covers values inside C objects only if `repr` contains them, and installed packages only by name.

    Example:
        >>> def scaled(weight):
        ...     return lambda a: weight * a
        >>> digest_of(scaled(1.0)) == digest_of(scaled(1.0)), digest_of(scaled(1.0)) == digest_of(scaled(2.0))
        (True, False)
    """
    return blake2b(_object_bytes(value, frozenset(), _Files()), digest_size=16).hexdigest()


def digest_of_file(path: Path) -> str:
    """Compute a digest of a file's bytes, and of the user's files that a Python file imports."""
    return (
        _Files().with_imports(path)
        if path.suffix == ".py"
        else blake2b(regular(path, "scenario").read_bytes()).digest()
    ).hex()


def imports_of_folder(path: Path) -> list[Path]:
    """Return the files in the same folder that a Python file imports, directly or indirectly, sorted by name."""
    path = path.resolve()
    return sorted(module for module in _Files().imports(path) if module.parent == path.parent)


class _Files:
    """The user's sources, each read once per digest."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[bytes, list[Path]]] = {}
        self._whole: dict[Path, bytes] = {}
        self._packages: dict[str, tuple[list[Path], list[Path]]] = {}

    def with_imports(self, path: Path) -> bytes:
        """Compute a digest of a Python file and all its imports, except the standard library and installed modules."""
        path = path.resolve()
        if path not in self._whole:
            parts = [self._digest_and_imports(p)[0] for p in sorted(self.imports(path), key=str)]
            self._whole[path] = blake2b(self._digest_and_imports(path)[0] + b"".join(parts)).digest()
        return self._whole[path]

    def imports(self, path: Path) -> set[Path]:
        """Return the user's files that a file imports, directly or not, without the file itself."""
        files, ahead = {path}, [path]
        while ahead:
            for module in self._digest_and_imports(ahead.pop())[1]:
                if module not in files:
                    files.add(module)
                    ahead.append(module)
        return files - {path}

    def _digest_and_imports(self, path: Path) -> tuple[bytes, list[Path]]:
        """Return a digest of a file's bytes, and the user's files in its import statements."""
        if path not in self._read:
            text = regular(path, "scenario").read_bytes()
            imports = [module.resolve() for name in _names_in(text) for module in self._files_of(name, path.parent)]
            self._read[path] = blake2b(text).digest(), imports
        return self._read[path]

    def _files_of(self, name: str, importer: Path) -> list[Path]:
        """Return the sources of a user's module and its packages, excluding the standard library and installed modules.

        Args:
            name: name of the module, with leading dots if relative.
            importer: folder of the importing file, which is searched last.
        """
        first, *inside = name.split(".")
        if first:
            if first not in self._packages:
                self._packages[first] = _package_of(first)
            sources, places = self._packages[first]
            sibling = importer / f"{first}.py"
            if not sources and not places and first not in sys.stdlib_module_names and sibling.is_file():
                return [sibling]
        else:
            # One dot is the folder itself, every further one a parent.
            package = (importer, *importer.parents)[inside.count("")]
            sources, places = [package / "__init__.py"], [package]
        out = [path for path in sources if path.is_file()]
        for part in filter(None, inside):
            modules = [p for place in places for p in (place / f"{part}.py", place / part / "__init__.py")]
            places = [place / part for place in places if (place / part).is_dir()]
            out += [p for p in modules if p.is_file()]
        return [path for path in out if _is_users(path)]


# Files are read for every job, and parsing is slow.
@functools.lru_cache(maxsize=256)
def _names_in(text: bytes) -> tuple[str, ...]:
    """Return the modules that a source may import, sorted, or none if it is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # Relative to the file's folder, by the dots.
            package = "." * node.level + (f"{node.module}." if node.module else "")
            names |= {package + alias.name for alias in node.names} | ({package[:-1]} if node.module else set())
    return tuple(sorted(names))


def _package_of(name: str) -> tuple[list[Path], list[Path]]:
    """Return the source of a user's module and the folders of a package, or nothing for other modules."""
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
    return sources, [place for place in places if _is_users(place)]


def _is_users(path: Path) -> bool:
    """Return whether a source belongs to the user, not to this package or an installed one."""
    return not path.is_relative_to(_PACKAGE) and not any(part in _PACKAGE_FOLDERS for part in path.parts)


@functools.cache
def _package_bytes(top: Path) -> bytes:
    """Compute a digest of all sources of an installed package."""
    sources = sorted(top.rglob("*.py")) if top.is_dir() else [top]
    return blake2b(b"".join(blake2b(source.read_bytes()).digest() for source in sources)).digest()


def _object_bytes(value: Any, ancestors: frozenset[int], files: _Files) -> bytes:
    """Return bytes that distinguish objects; `seen` has the addresses of enclosing objects, to detect cycles."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return f"{type(value).__name__} {value!r}".encode()
    if id(value) in ancestors:
        return b"again"
    ancestors = ancestors | {id(value)}
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    # Arrays of objects are handled entry by entry.
    if isinstance(value, np.ndarray) and value.dtype != object:
        return str((value.dtype, value.shape)).encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, list | tuple):
        return type(value).__name__.encode() + b"".join(_object_bytes(v, ancestors, files) + b"," for v in value)
    if isinstance(value, set | frozenset):
        return b"set" + b",".join(sorted(_object_bytes(v, ancestors, files) for v in value))
    if isinstance(value, Mapping):
        return b"".join(
            _object_bytes(k, ancestors, files) + b":" + _object_bytes(v, ancestors, files) + b","
            for k, v in value.items()
        )
    if isinstance(value, functools.partial):
        return b"partial" + _object_bytes((value.func, value.args, value.keywords), ancestors, files)
    if isinstance(value, MethodType):
        return _object_bytes(value.__func__, ancestors, files) + _object_bytes(value.__self__, ancestors, files)
    if isinstance(value, FunctionType):
        return _source(value, ancestors, files) + _object_bytes(_surroundings(value), ancestors, files)
    if isinstance(value, type):
        return _source(value, ancestors, files)
    if isinstance(value, ModuleType):
        path = getattr(value, "__file__", None)
        is_users = path is not None and path.endswith(".py") and _is_users(Path(path))
        return value.__name__.encode() + (files.with_imports(Path(path)) if is_users and path is not None else b"")
    # An instance: its class and its content.
    if hasattr(value, "nodes") and hasattr(value, "edges"):
        return repr((list(map(str, value.nodes)), sorted(map(str, value.edges(data=True))))).encode()
    kind = _source(type(value), ancestors, files)
    if is_dataclass(value):
        # Other fields are derived, or caches.
        return kind + b"".join(
            f.name.encode() + b"=" + _object_bytes(getattr(value, f.name), ancestors, files)
            for f in fields(value)
            if f.init
        )
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return kind + _object_bytes([(str(c), value[c].to_numpy()) for c in value.columns], ancestors, files)
    if hasattr(value, "__dict__"):
        return kind + _object_bytes(dict(sorted(vars(value).items())), ancestors, files)
    return kind if " at 0x" in repr(value) else kind + repr(value).encode()


def _surroundings(function: FunctionType) -> tuple[Any, ...]:
    """Return the dependencies of a function besides its code: defaults, closed-over values and globals."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            cells.append(None)  # Empty while a recursive function is being defined.
    path = _file_of(function)
    is_users = path is None or _is_users(path)
    # The digest of a package covers its globals; values that its decorators close over are the user's.
    global_names = sorted((_names(function.__code__) & function.__globals__.keys()) - _ADDRESSES) if is_users else []
    return function.__defaults__, function.__kwdefaults__, cells, {n: function.__globals__[n] for n in global_names}


def _names(code: CodeType) -> set[str]:
    """Return names that a function and its inner functions may look up among globals."""
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*inner)


def _file_of(value: Any) -> Path | None:
    try:
        file = inspect.getsourcefile(value)
    except (TypeError, OSError):
        # A class of a notebook, or of an unloaded module: its functions have the path of the source.
        inside = [f for f in vars(value).values() if isinstance(f, FunctionType)] if isinstance(value, type) else []
        file = inside[0].__code__.co_filename if inside else None
    return None if file is None or not Path(file).is_file() else Path(file)


def _source(value: Any, ancestors: frozenset[int], files: _Files) -> bytes:
    """Return bytes of the source of a function or class: its file with imports, or its code if there is no file."""
    path, name = _file_of(value), str(value.__qualname__).encode()
    if path is not None and _is_users(path):
        return files.with_imports(path) + name
    if path is not None:
        # Installed packages are hashed as a whole, except this one and those with recorded versions.
        place = next((k for k, part in enumerate(path.parts) if part in _PACKAGE_FOLDERS), None)
        if place is None or path.is_relative_to(_PACKAGE) or path.parts[place + 1] in _VERSIONS_KEPT:
            return name
        return _package_bytes(Path(*path.parts[: place + 2])) + name
    if isinstance(value, FunctionType):
        return name + _code(value.__code__)
    if value.__module__ == "__main__" or value.__module__ not in sys.modules:
        kinds = (FunctionType, bool, int, float, str, tuple)
        attributes = {k: v for k, v in vars(value).items() if isinstance(v, kinds) and k not in _UNREAD}
        return name + _object_bytes(dict(sorted(attributes.items())), ancestors | {id(value)}, files)
    return str(value.__module__).encode() + name


def _code(code: CodeType) -> bytes:
    """Return bytes of a function's code, without its location."""
    # The order of a set of constants differs between processes.
    plain = [sorted(map(repr, c)) if isinstance(c, frozenset) else c for c in code.co_consts]
    inner = [_code(c) if isinstance(c, CodeType) else repr(c).encode() for c in plain]
    return code.co_code + repr((code.co_names, code.co_varnames)).encode() + b"".join(inner)
