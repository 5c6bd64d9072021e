"""Python code of the user's own: files that are run, and components found in them, by entry point, or as objects.

A component is named where a registered one would be, `kind = …` of a table of the scenario:

    kind = "heavy_ball.py:HeavyBall"    the name HeavyBall of a Python file, seen from the scenario's folder
    kind = "heavy_ball"                 a registered component, or one of an installed package, by entry point

An installed package declares entry points in the groups of `GROUPS`, for example

    [project.entry-points."decentral_dp.algorithms"]
    heavy_ball = "my_package.heavy_ball:HeavyBall"

Files are code, not data: whatever they do is done when a scenario that names them is built. Such a file may import, at
its top, another one beside it by its name, where nothing that is installed is called so.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, NoReturn

from decentral_dp.errors import InputError, missing_package, quoted
from decentral_dp.files import trust
from decentral_dp.files.regular import regular
from decentral_dp.files.source_lines import class_at, definitions, line_at_top, line_in_class, place_in_class

# What a file or a function of the user's own may raise; a sentence reports it. Classes of errors of one's own and of
# libraries, such as networkx.NetworkXError, inherit from Exception alone.
USER_ERRORS = (Exception, SystemExit, GeneratorExit)

# Where Python's own modules are.
_PYTHON = sysconfig.get_path("stdlib")
# What Python says of a dataclass with option(…) and no type.
_UNTYPED_FIELD = re.compile(r"'(\w+)' is a field but has no type annotation")

# How alike two names are, from 0 to 1, of which one is taken for the other misspelt.
NEAR = 0.75
# What is no component, whatever it is to be one of.
_PLAIN = (bool, int, float, complex, str, bytes, ModuleType, type(None))
# What is none but records, or the links of a graph.
_TABLES, _OF_VALUES = (list, tuple, dict, set), ("data", "topology")

# What a component is → the group of entry points that installed packages declare it in.
GROUPS: Mapping[str, str] = {
    "algorithm": "decentral_dp.algorithms",
    "problem": "decentral_dp.problems",
    "objective": "decentral_dp.objectives",
    "mechanism": "decentral_dp.mechanisms",
    "topology": "decentral_dp.topologies",
    "data": "decentral_dp.data",
    "partition": "decentral_dp.partitions",
}


class UserCodeError(RuntimeError):
    """Code of the user's own raised in a run; the message says in which round, and in which line."""


class InFile(NamedTuple):
    """A component's place as a scenario writes it: "file.py:Name"."""

    file: str
    name: str


def in_file(kind: str) -> InFile | None:
    """The file and the name of "file.py:Name"; None for whatever is no such text."""
    file, colon, name = kind.rpartition(":")
    return InFile(file, name) if colon and file.lower().endswith(".py") and name.isidentifier() else None


def own_name(kind: str) -> str:
    """What pages and results call a component: of "folder/file.py:Name" it says nothing of folders.

    Example:
        >>> own_name("/home/ann/heavy_ball.py:HeavyBall"), own_name("ldp_dsbo")
        ('heavy_ball.py:HeavyBall', 'ldp_dsbo')
    """
    place = in_file(kind)
    return kind if place is None else f"{Path(place.file).name}:{place.name}"


def entry_points_of(what: str) -> dict[str, Any]:
    """Name → entry point, of the components that installed packages declare. what: a key of `GROUPS`."""
    return _entry_points(GROUPS[what], tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, Any]:
    # Reading what all installed packages declare takes milliseconds, and every name in a scenario is looked up.
    return {point.name: point for point in entry_points(group=group)}


def find_outside(what: str, kind: str, folder: Path, key: str) -> Any | None:
    """The component that `kind` names in a file or by entry point; None where it is neither.

    Args:
        what: a key of `GROUPS`.
        kind: as the scenario gives it.
        folder: where a relative path starts, or here where there is nothing.
        key: the scenario's key, for a refusal, for example "algorithm.kind".

    Raises:
        InputError: for a file that is missing, does not run or lacks the name, and for an entry point that does not
            load.
    """
    place = in_file(kind)
    if place is not None:
        path = Path(place.file).expanduser()
        # Of an absolute path both are the path itself.
        path = next((p for p in (folder / path, Path.cwd() / path) if p.exists()), folder / path)
        module = run_file(path, f"{key} must name a Python file and what it defines, as in file.py:Name")
        if not hasattr(module, place.name):
            raise InputError(
                f"{key}: {path} defines no {place.name}{_nearest_name(place.name, path)}. Define it there, or name "
                "what the file defines."
            )
        thing = getattr(module, place.name)
        if isinstance(thing, _PLAIN if what in _OF_VALUES else (*_PLAIN, *_TABLES)):
            line = line_at_top(path, place.name)
            raise InputError(
                f"{key}: {place.name} is {_plain(thing)}{f', in line {line}' if line is not None else ''} of {path}; "
                "wanted a class, a function or an object. Define it there, or name another."
            )
        return thing
    if kind.lower().endswith(".py"):
        path = folder / Path(kind).expanduser()
        names = list(definitions(path)) or ["Name"]
        known = f"; {path} defines {', '.join(names)}" if names != ["Name"] else ""
        raise InputError(
            f"{key}: got {quoted(kind)}, wanted what the file defines as well: {quoted(f'{kind}:{names[0]}')}{known}."
        )
    point = entry_points_of(what).get(kind)
    if point is None:
        return None
    try:
        return point.load()
    except USER_ERRORS as error:
        raise InputError(
            f"{key}: the entry point {quoted(kind)} ({point.value}) does not load: {reason(error)}. Mend the package."
        ) from error


class _Beside:
    """Finds modules in one folder for the files of that folder, where nothing else is called so: a finder and a loader.

    What is found is compiled afresh, for a cache beside it may be stale, and is forgotten with the file that asked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        file = self._folder / f"{name}.py"
        if path is not None or not self._imports() or not os.path.isfile(file):
            return None
        self.names.add(name)
        return ModuleSpec(name, self, origin=str(file))  # type: ignore[arg-type]  # what a loader needs, it has

    def _imports(self) -> bool:
        """Whether a file of the folder imports, and no library on the way, which may do without what it tries."""
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        return Path(frame.f_code.co_filename).parent == self._folder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        _execute(module, self._folder / f"{module.__name__}.py")


def _execute(module: ModuleType, file: Path) -> None:
    """Run a file as a module: compiled here, and not by a loader, which would leave a cache and read a stale one."""
    content = file.read_bytes()
    if trust.is_in_run_folder(file):
        trust.require_trust(file, content)
    else:
        trust.remember(content)
    module.__file__ = str(file)
    exec(SourceFileLoader(module.__name__, str(file)).source_to_code(content, str(file)), module.__dict__)


@contextmanager
def _siblings_of(path: Path) -> Iterator[None]:
    """Let a file import others of its folder, as long as it runs."""
    finder: Any = _Beside(path.parent)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        # As of the file itself: another folder may have a file of this name, and what travels, travels by value.
        for name in finder.names:
            sys.modules.pop(name, None)


def run_file(path: Path, requirement: str) -> ModuleType:
    """The module of a Python file of the user's own, which is run: it is code, not data.

    Python knows the module only while it runs, so that its functions and classes travel to other processes by value.

    Args:
        path: the file.
        requirement: what is to be there, for a refusal.

    Raises:
        InputError: where there is no such file, or it does not run; with its line.
    """
    if path.suffix != ".py":
        # Digests and consent follow this ending.
        raise InputError(f"{path}: code is read from files that end in .py. Fix: rename the file.")
    if not os.path.isfile(regular(path, requirement.partition(" ")[0])):
        near = difflib.get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.py")], n=1)
        meant = f"; did you mean {near[0]}.py" if near else ""
        here = "" if path.parent.resolve() == Path.cwd() else f", and none of this name in {Path.cwd()}"
        raise InputError(f"{path}: there is no such file{here}{meant}; {requirement}.")
    name = f"user_code_{path.stem}"
    module, shadowed = ModuleType(name), sys.modules.get(name)
    sys.modules[name] = module
    try:
        with _siblings_of(path):
            _execute(module, path)
    except InputError:
        raise
    except USER_ERRORS as error:
        line, mend = _line(error, path), missing_package(error) or _missing_sibling(error, path) or "mend the file"
        if isinstance(error, TypeError) and (untyped := _UNTYPED_FIELD.match(str(error))):
            line = _line_of_field(untyped[1], error, path) or line
            mend = f"write {untyped[1]}: float = …, for example"
        raise InputError(f"{path}: it does not run: {reason(error)}{line}; {mend}.") from error
    finally:
        sys.modules.pop(name, None)
        if shadowed is not None:
            sys.modules[name] = shadowed
    return module


def _missing_sibling(error: BaseException, path: Path) -> str | None:
    """How to mend an import of what is neither installed nor beside the file; None of another error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    name = error.name.partition(".")[0]
    return f"install {name}, or put {name}.py into {path.parent}, and import it at the top"


def _plain(value: Any) -> str:
    """A value that is no component, in words."""
    return "a module" if isinstance(value, ModuleType) else quoted(value) if value is not None else "None"


def _nearest_name(name: str, path: Path) -> str:
    """The name in a file that one comes nearest to, with its line, and all that are there, for a refusal."""
    lines = definitions(path)
    near = difflib.get_close_matches(name, lines, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]}, in line {lines[near[0]]}" if near else ""
    others = [f"{other} (line {line})" for other, line in lines.items() if other not in near]
    return meant + (f"{' beside' if near else '; it defines'} {', '.join(others)}" if others else "")


def _line(error: BaseException, path: Path) -> str:
    """The last line of this file that an error came through, as ", in line 3"; "" where none is known."""
    if isinstance(error, SyntaxError):
        return ""  # Its text says it.
    line = _line_number(error, path)
    return f", in line {line}" if line is not None else ""


def _line_number(error: BaseException, path: Path) -> int | None:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else None


def _line_of_field(field: str, error: BaseException, path: Path) -> str:
    """The line of a field for which a dataclass is refused, as `_line`: Python names that of the decorator."""
    at = _line_number(error, path)
    name = class_at(path, at) if at is not None else None
    line = line_in_class(path, name, field) if name is not None else None
    return f", in line {line}" if line is not None else ""


def call(function: Callable[..., Any], values: Mapping[str, Any], sentence: Callable[[BaseException], str]) -> Any:
    """Call code of the user's own; what it raises becomes a refusal, but for a refusal itself.

    Args:
        function: a function or a class.
        values: its arguments by name.
        sentence: the refusal's text, from the error.

    Returns:
        What it gives.

    Raises:
        InputError: with the sentence, or its own.
    """
    try:
        return function(**values)
    except InputError:
        raise
    except USER_ERRORS as error:
        raise InputError(sentence(error)) from error


def untyped_options(cls: type) -> list[str]:
    """What a class sets to a plain value without a type: it looks like an option, and is none."""
    # Read first: asking a class without annotations for them adds an entry to what is gone through.
    typed = getattr(cls, "__annotations__", {})
    return [
        key
        for key, value in vars(cls).items()
        if key not in typed
        and key.islower()
        and not key.startswith("_")
        and isinstance(value, bool | int | float | str | list | dict)
    ]


def misspelt_method(cls: type, optional: Collection[str], needed: Collection[str]) -> str | None:
    """Say which method of a class is none that is asked for, and is called nearly like one that may be left out.

    Args:
        cls: the class.
        optional: names of methods that may be left out.
        needed: names of those that may not.

    Returns:
        A sentence; None where there is none.
    """
    missing = [name for name in optional if not hasattr(cls, name)]
    for name, member in vars(cls).items():
        if not isinstance(member, FunctionType) or name.startswith("_") or name in (*optional, *needed):
            continue
        of_this_length = [other for other in missing if abs(len(other) - len(name)) <= 1]
        for near in difflib.get_close_matches(name, of_this_length, n=1, cutoff=NEAR):
            return (
                f"{cls.__name__} has a method {name}{place_in_class(cls, name)}, which nothing asks for; did you "
                f"mean {near}? Call it that, or _{name} where it is one of your own."
            )
    return None


def blame(error: BaseException, otherwise: str = "") -> str:
    """The reason of an error with the file and line of the user's own that it came from, where one is known.

    Args:
        error: what was raised.
        otherwise: what stands in the place of the line where none is known, as of `place_in_class`.
    """
    frames = _frames(error)
    own = [f for f in frames if "site-packages" not in f.filename] or ([] if otherwise else frames)
    return reason(error) + (f", in line {own[-1].lineno} of {own[-1].filename}" if own else otherwise)


def is_users(error: BaseException) -> bool:
    """Whether an error came up in code of the user's own, or in a library that this code called."""
    return any("site-packages" not in f.filename for f in _frames(error))


def wrong_exchanges(program: Any, t: int, verb: str, made: str) -> NoReturn:
    """End a run in round t, in which a program makes another number of exchanges than it states.

    Prices and noise go by the number of an exchange, so that one too many has neither.

    Args:
        program: that is run; `program.program` is what its author wrote, where that is another object.
        t: the round, from 1.
        verb: what it does, for example "makes".
        made: what it made, in words, for example "2 exchanges".

    Raises:
        UserCodeError: always.
    """
    author = type(getattr(program, "program", program))
    raise UserCodeError(
        f"round {t}: step of {author.__name__} {verb} {made}{place_in_class(author, 'step')}, and releases_per_round "
        f"states {program.releases_per_round}. Mend it there."
    )


def error_of_round(error: BaseException, t: int) -> BaseException:
    """What ends a run: a sentence where code of the user's own raised in round t, else the error itself."""
    if isinstance(error, UserCodeError):
        return error if str(error).startswith("round ") else UserCodeError(f"round {t}: {error}")
    if isinstance(error, InputError) or not is_users(error):
        return error
    return UserCodeError(f"round {t}: {blame(error)}. Mend it there.")


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Where an error came from, without this package's own code and that of Python."""
    package = str(Path(__file__).parent)
    if isinstance(error.__cause__, StopIteration):
        # Raised in a generator, it becomes a RuntimeError of whoever asked for the next value.
        error = error.__cause__
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((package, "<"))]
    return [f for f in frames if "site-packages" in f.filename or not f.filename.startswith(_PYTHON)]


def reason(error: BaseException) -> str:
    """The first sentence of an error, with its kind."""
    text = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
