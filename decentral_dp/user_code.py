"""Python code of the user's own: components that a scenario names as `module:Name`, and files that it names.

    kind = "heavy_ball:HeavyBall"          the name HeavyBall of heavy_ball.py in the scenario's folder
    kind = "my_package.heavy_ball:HeavyBall"    the same of an installed package

The scenario's folder gives single files, which may import one another at their top. It hides no installed module: a
name of both is refused. A package has components if it requires decentral_dp; others, and Python's own modules, do not.

Each file is compiled from its source, never from a cache beside it, which nobody has consented to. Python knows the
module only while it runs: two folders may have modules of one name, and classes travel to other processes by value.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from decentral_dp.errors import InputError, missing_package, quoted_path
from decentral_dp.files import trust

# What a file or a function of the user's own may raise; a sentence reports it. Classes of errors of one's own and of
# libraries, such as networkx.NetworkXError, inherit from Exception alone.
USER_ERRORS = (Exception, SystemExit, GeneratorExit)

# Where Python's own modules and installed packages are.
_PYTHON = sysconfig.get_path("stdlib")
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
# Prefixes of problem.data that name no module.
_SCHEMES = ("openml",)


class UserCodeError(RuntimeError):
    """Code of the user's own raised in a run; the message says in which round, and in which line."""


def in_module(kind: str) -> tuple[str, str] | None:
    """The module and the name of "module:Name"; None for any other text.

    Example:
        >>> in_module("my_package.heavy_ball:HeavyBall"), in_module("ldp_dsbo"), in_module("openml:iris")
        (('my_package.heavy_ball', 'HeavyBall'), None, None)
    """
    module, colon, name = kind.partition(":")
    named = colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))
    # "heavy_ball.py:HeavyBall" is the form of others.
    return (module, name) if named and module not in _SCHEMES and not module.endswith(".py") else None


def module_file(module: str, folders: Sequence[Path]) -> Path | None:
    """The file of a module in the first of the folders that has it; None where none has."""
    found = (path for folder in folders if (path := folder / f"{module}.py").is_file())
    return None if "." in module else next(found, None)


def component(kind: str, folders: Sequence[Path], key: str) -> Any | None:
    """Import the component that "module:Name" names; None for any other text.

    Args:
        kind: as the scenario gives it.
        folders: where files are looked up.
        key: the scenario's key, for a refusal, for example "algorithm.kind".

    Raises:
        InputError: the module is missing, ambiguous, unknown here or does not run, or it lacks the name.
    """
    named = in_module(kind)
    if named is None:
        return None
    place, name = named
    path = module_file(place, folders)
    _check_module(place, path, key)
    module = run_file(path) if path is not None else _installed(kind, place, folders, key)
    if not hasattr(module, name):
        raise InputError(
            f"{key}: {place} defines no {name}{_near(name, vars(module))}. Fix: define it, or name another."
        )
    return getattr(module, name)


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}" if near else ""


def _check_module(module: str, path: Path | None, key: str) -> None:
    """Refuse a module that is no component's, before it is imported.

    A scenario is data, and a function that it names is called with its keys: one of Python, or of a package that was
    not made for this, could do anything.

    Args:
        module: its dotted name.
        path: of the file of this name; None where there is none.
        key: of the scenario.

    Raises:
        InputError: a module of Python, of this package, or of an installed package that does not require this one; one
            in a run folder on Python's path; or one of a package and of a file alike.
    """
    first = module.partition(".")[0]
    problem = ""
    if first in sys.stdlib_module_names or first == __package__:
        problem = f"{module} is a module of Python or of this package. Fix: name a module of your own"
    else:
        try:
            spec = find_spec(first)
        except (ImportError, ValueError):
            spec = None
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        folders = [Path(place) for place in places if place is not None]
        installed = any(part in _PACKAGE_FOLDERS for folder in folders for part in folder.parts)
        needed = [line for name in packages_distributions().get(first, ()) for line in requires(name) or ()]
        if path is not None and installed:
            problem = f"{module} is {quoted_path(path)} and an installed module as well. Fix: rename the file"
        elif path is None and any(map(trust.is_in_run_folder, folders)):
            # Python would import it from a cache, and without consent.
            problem = f"{module} is in a run folder on Python's path. Fix: run this from another folder"
        elif installed and not any(re.match(r"decentral[-_.]dp\b", line, re.IGNORECASE) for line in needed):
            problem = (
                f"{first} is an installed package that does not require decentral_dp. Fix: write the component in a "
                "file of your own, which may import it"
            )
    if problem:
        raise InputError(f"{key}: {problem}.")


def _installed(kind: str, module: str, folders: Sequence[Path], key: str) -> ModuleType:
    """Import a module of an installed package, or of Python's path. Raises InputError."""
    try:
        imported = import_module(module)
    except USER_ERRORS as error:
        problem, fix = f"{module} does not run: {blame(error)}", "fix it there"
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            near = _near(module, (p.stem for folder in folders for p in folder.glob("*.py")))
            places = ", ".join(dict.fromkeys(str(folder.resolve()) for folder in folders))
            problem = f"no module {module}{near} (looked for {module}.py in {places}, and for an installed module)"
            fix = "put the file there, or install the package"
        raise InputError(f"{key}: {problem}. Fix: {fix}.") from error
    trust.remember(kind.encode())
    return imported


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


def run_file(path: Path) -> ModuleType:
    """The module of a Python file of the user's own, which is run: it is code, not data.

    Raises:
        InputError: it does not run.
    """
    name = f"user_code_{path.stem}"
    module, shadowed, finder = ModuleType(name), sys.modules.get(name), _Beside(path.parent)
    sys.modules[name] = module
    meta_path: list[Any] = sys.meta_path
    meta_path.append(finder)
    try:
        _execute(module, path)
    except InputError:
        raise
    except USER_ERRORS as error:
        fix = missing_package(error) or "mend the file"
        if fix == "mend the file" and isinstance(error, ModuleNotFoundError) and error.name:
            lacking = error.name.partition(".")[0]
            fix = f"install {lacking}, or put {lacking}.py into {path.parent}, and import it at the top"
        raise InputError(f"{path}: it does not run: {blame(error)}. Fix: {fix}.") from error
    finally:
        meta_path.remove(finder)
        # Another folder may have a file of this name, and what travels, travels by value.
        for imported in (name, *finder.names):
            sys.modules.pop(imported, None)
        if shadowed is not None:
            sys.modules[name] = shadowed
    return module


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


def blame(error: BaseException) -> str:
    """The reason of an error with the file and line of the user's own that it came from, where one is known."""
    own = [f for f in _frames(error) if "site-packages" not in f.filename]
    return reason(error) + (f", in line {own[-1].lineno} of {own[-1].filename}" if own else "")


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
        f"round {t}: step of {author.__name__} {verb} {made}, and releases_per_round "
        f"states {program.releases_per_round}. Mend it there."
    )


def running_step(program: Any, t: int, known: Any, state: Any) -> Generator[Any, Any, Any]:
    """The generator of a program's round t, from 0. Raises UserCodeError where its step yields nothing."""
    running = program.step(t, known, state)
    if not isinstance(running, Generator):
        raise wrong_yield(program, t + 1, f"returns {type(running).__name__} and never yields")
    return running


def wrong_yield(program: Any, t: int, done: str) -> UserCodeError:
    """The end of a run in round t, from 1, whose step yields no exchange. done: what it does, in words."""
    author = type(getattr(program, "program", program))
    return UserCodeError(
        f"round {t}: step of {author.__name__} {done}, wanted exchanges. Fix: write for example own, near = yield "
        "Gossip(y=s.y), or g = yield from release_gradients(…) for a coordinator."
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
