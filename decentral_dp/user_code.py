"""Custom Python code: components that a scenario names as `module:Name`.

    kind = "my_steps:Descent"               the class Descent of my_steps.py in the scenario's folder
    kind = "my_package.my_steps:Descent"    the same in an installed package

Files of the scenario's folder may import one another at their top. A file with the name of an installed module raises
InputError. A package may contain components if it requires decentral_dp; other packages and Python's modules may not.
Each file is compiled from its source, never from a cache, which consent does not cover. The module is registered only
while it runs, since two folders may have modules of one name, and classes are sent to other processes by value."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path
from types import GeneratorType, ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from decentral_dp.errors import InputError, converting, missing_package, nearest_of, quoted_path
from decentral_dp.files import trust

# Errors of custom code, which become refusals. Errors of libraries, such as networkx.NetworkXError, are subclasses of
# Exception only.
USER_ERRORS = (Exception, SystemExit, GeneratorExit)

# Folders of Python's modules and of installed packages.
_PYTHON = sysconfig.get_path("stdlib")
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
# Prefixes of problem.data that are not modules.
_SCHEMES = ("openml",)


class UserCodeError(RuntimeError):
    """Error of custom code in a run. The message contains the round and the line."""


def in_module(kind: str) -> tuple[str, str] | None:
    """Split "module:Name" into module and name; return None for any other text.

    Example:
        >>> in_module("my_package.my_steps:Descent"), in_module("ldp_dsbo"), in_module("openml:iris")
        (('my_package.my_steps', 'Descent'), None, None)
    """
    module, colon, name = kind.partition(":")
    is_place = colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))
    return (module, name) if is_place and module not in _SCHEMES and not module.endswith(".py") else None


def module_file(module: str, folders: Sequence[Path]) -> Path | None:
    """Return the file of a module in the first folder that has it, or None."""
    paths = (path for folder in folders if (path := folder / f"{module}.py").is_file())
    return None if "." in module else next(paths, None)


def component(kind: str, folders: Sequence[Path], key: str) -> Any | None:
    """Import the component that "module:Name" names; return None for any other text.

    Args:
        kind: value in the scenario.
        folders: folders of the modules, in the order of the search.
        key: key of the scenario in errors, for example "algorithm.kind".

    Raises:
        InputError: the module is missing, ambiguous or not trusted, raises, or does not define the name.
    """
    module_and_name = in_module(kind)
    if module_and_name is None:
        return None
    place, name = module_and_name
    path = module_file(place, folders)
    _check_module(place, path, key)
    module = run_file(path) if path is not None else _import_installed(kind, place, folders, key)
    if not hasattr(module, name):
        names = [n for n, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise InputError(f"{key}: {place} defines no {name}{nearest_of(name, names)} Fix: define it.")
    return getattr(module, name)


def _check_module(module: str, path: Path | None, key: str) -> None:
    """Raise InputError for a module without components, before its import.

    A scenario calls functions with its keys. Functions of Python, or of a package without components, are therefore not
    allowed.

    Args:
        module: dotted name of the module.
        path: path of the file of this name, or None.
        key: key of the scenario.

    Raises:
        InputError: the module belongs to Python, to this package, or to an installed package that does not require this
            one; it is in a run folder on Python's path; or a file has the name of an installed module.
    """
    first = module.partition(".")[0]
    problem = ""
    if first in sys.stdlib_module_names or first == __package__:
        problem = f"{module} is a module of Python or of this package. Fix: name a custom module"
    else:
        try:
            spec = find_spec(first)
        except (ImportError, ValueError):
            spec = None
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        folders = [Path(place) for place in places if place is not None]
        is_installed = any(part in _PACKAGE_FOLDERS for folder in folders for part in folder.parts)
        if path is not None and is_installed:
            problem = f"{module} is {quoted_path(path)} and an installed module as well. Fix: rename the file"
        elif path is None and any(map(trust.is_in_run_folder, folders)):
            # Python would import it from a cache, without consent.
            problem = f"{module} is in a run folder on Python's path. Fix: run this from another folder"
        elif is_installed and not _requires_this_package(first):
            problem = (
                f"{first} is an installed package that does not require decentral_dp. Fix: write the component in a "
                "custom file, which may import it"
            )
    if problem:
        raise InputError(f"{key}: {problem}.")


def _requires_this_package(module: str) -> bool:
    """Return whether a distribution of an installed module requires this one. Reads the files of all distributions."""
    lines = [line for name in packages_distributions().get(module, ()) for line in requires(name) or ()]
    return any(re.match(r"decentral[-_.]dp\b", line, re.IGNORECASE) for line in lines)


def _import_installed(kind: str, module: str, folders: Sequence[Path], key: str) -> ModuleType:
    """Import a module of an installed package, or of Python's path. Raises InputError."""
    try:
        module_object = import_module(module)
    except USER_ERRORS as error:
        problem, fix = f"{module} cannot be imported: {blame(error)}.", "fix it there"
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            near = nearest_of(module, (p.stem for folder in folders for p in folder.glob("*.py")))
            places = ", ".join(dict.fromkeys(str(folder.resolve()) for folder in folders))
            problem = f"no module {module} (looked for {module}.py in {places}, and for an installed module){near}"
            fix = "put the file there, or install the package"
        raise InputError(f"{key}: {problem} Fix: {fix}.") from error
    trust.remember(kind.encode())
    return module_object


class _Beside:
    """Finder and loader of modules in one folder, for the files of that folder and for names that no other module has.

    Modules are compiled from their source, since a cache may be stale, and are removed with the importing file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        file = self._folder / f"{name}.py"
        # Only for files of the folder, since imports of libraries must not find its modules.
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        is_beside = Path(frame.f_code.co_filename).parent == self._folder
        if path is not None or not is_beside or not os.path.isfile(file):
            return None
        self.names.add(name)
        return ModuleSpec(name, self, origin=str(file))  # type: ignore[arg-type]  # it has the methods of a loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        _execute(module, self._folder / f"{module.__name__}.py")


def _execute(module: ModuleType, file: Path) -> None:
    """Run a file as a module. A loader would read and write a cache."""
    content = file.read_bytes()
    if trust.is_in_run_folder(file):
        trust.require_trust(file, content)
    else:
        trust.remember(content)
    module.__file__ = str(file)
    exec(SourceFileLoader(module.__name__, str(file)).source_to_code(content, str(file)), module.__dict__)


def run_file(path: Path) -> ModuleType:
    """Run a custom Python file and return its module.

    Raises:
        InputError: the file raises.
    """
    name = f"user_code_{path.stem}"
    module, previous_module, finder = ModuleType(name), sys.modules.get(name), _Beside(path.parent)
    sys.modules[name] = module
    meta_path: list[Any] = sys.meta_path
    meta_path.append(finder)
    try:
        with converting(
            USER_ERRORS, lambda e: f"{path}: cannot be imported: {blame(e)}. Fix: {_fix_of_import(e, path)}."
        ):
            _execute(module, path)
    finally:
        meta_path.remove(finder)
        # Another folder may have a file of this name. Objects are sent to other processes by value.
        for name_of_module in (name, *finder.names):
            sys.modules.pop(name_of_module, None)
        if previous_module is not None:
            sys.modules[name] = previous_module
    return module


def convert_failures(place: str, fix: str = "correct its code") -> AbstractContextManager[None]:
    """Convert errors of custom code to InputError with its line.

    Args:
        place: key and name of the component.
        fix: advice, without a full stop.
    """
    return converting(USER_ERRORS, lambda error: f"{place} fails: {blame(error)}. Fix: {fix}.")


def call_array(
    place: str, function: Callable[..., Any], shape: tuple[int, ...], *arguments: Any
) -> NDArray[np.float64]:
    """Return the float64 array of a custom function.

    Args:
        place: key and name of the component.
        function: custom function.
        shape: expected shape.
        arguments: arguments of the function.

    Raises:
        InputError: the function fails, or its result has another shape.
    """
    with convert_failures(place):
        out = np.asarray(function(*arguments), dtype=np.float64)
    if out.shape != shape:
        raise InputError(
            f"{place}: wrong shape (got {out.shape}, expected {shape}). Fix: return an array of this shape."
        )
    return out


def _fix_of_import(error: BaseException, path: Path) -> str:
    """Return the advice for a custom file that raises at its import."""
    if (package := missing_package(error)) is not None:
        return package
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return "change the file"
    lacking = error.name.partition(".")[0]
    return f"install {lacking}, or put {lacking}.py into {path.parent}, and import it at the top"


def blame(error: BaseException) -> str:
    """Write an error with the line of custom code that raised it."""
    frames = [f for f in _frames(error) if "site-packages" not in f.filename]
    return reason(error) + (f", in line {frames[-1].lineno} of {frames[-1].filename}" if frames else "")


def is_users(error: BaseException) -> bool:
    """Return whether custom code, or a library that it called, raised an error."""
    return any("site-packages" not in f.filename for f in _frames(error))


def author_of(program: Any) -> str:
    """Return the name of the innermost class of a program, which custom code may define."""
    while hasattr(program, "program"):
        program = program.program
    return type(program).__name__


def wrong_exchanges(program: Any, t: int, verb: str, exchanges: str) -> NoReturn:
    """Raise an error for a round t with another number of exchanges than the program states.

    Noise and ledger entries are indexed by exchanges: an additional one would have neither.

    Args:
        program: program of the run, possibly a wrapper of the custom program.
        t: round, from 1.
        verb: verb, for example "makes".
        exchanges: description of the exchanges, for example "2 exchanges".

    Raises:
        UserCodeError: always.
    """
    raise UserCodeError(
        f"round {t}: step of {author_of(program)} {verb} {exchanges} (expected releases_per_round = "
        f"{program.releases_per_round}). Fix: correct its code."
    )


def running_step(program: Any, t: int, known: Any, state: Any) -> Generator[Any, Any, Any]:
    """Return the generator of a program's round t, from 0. Raises UserCodeError if its step yields nothing."""
    with converting(TypeError, lambda e: f"{author_of(program)}: {blame(e)}. Fix: define step(self, t, dataset, s)."):
        running = program.step(t, known, state)
    # The check of the abstract class is slow.
    if not isinstance(running, GeneratorType) and not isinstance(running, Generator):
        raise wrong_yield(program, t + 1, f"returns {type(running).__name__} and never yields")
    return running


def wrong_yield(program: Any, t: int, done: str) -> UserCodeError:
    """Return the error of a step that yields no exchange in round t, from 1. `done` describes its behaviour."""
    return UserCodeError(
        f"round {t}: step of {author_of(program)} {done} (expected exchanges). Fix: write for example own, near = "
        "yield Gossip(y=s.y), or g = yield from release_gradients(…) for a coordinator."
    )


def raise_in_round(error: BaseException, t: int) -> NoReturn:
    """Raise an error of round t: with the round and the line if custom code raised it."""
    if isinstance(error, UserCodeError) and not str(error).startswith("round "):
        error.args = (f"round {t}: {error}",)
    if isinstance(error, UserCodeError | InputError) or not is_users(error):
        raise error
    raise UserCodeError(f"round {t}: {blame(error)}. Fix: correct its code.") from error


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error outside this package and Python."""
    package = str(Path(__file__).parent)
    if isinstance(error.__cause__, StopIteration):
        # A StopIteration in a generator becomes a RuntimeError of its caller.
        error = error.__cause__
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((package, "<"))]
    return [f for f in frames if "site-packages" in f.filename or not f.filename.startswith(_PYTHON)]


def reason(error: BaseException) -> str:
    """Return the type and the first sentence of an error."""
    text = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
