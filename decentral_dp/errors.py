"""Errors of user input, and the format of values in their messages."""

from __future__ import annotations

import difflib
import json
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

# Largest numbers of characters in an error, in one of its words, and in one of its paths.
_LONGEST, _WORD, _PATH = 2000, 160, 400
# Largest number of characters of a quoted path.
_TAIL = 300
# Largest number of valid names in an error.
_LISTED = 15
# Optional package → its extra.
_EXTRAS = {"mlflow": "mlflow", "ray": "ray", "tensorboardX": "tensorboard", "torch": "torch"}
# Characters that change the direction of writing.
_DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def printable(text: str, lines: bool = True) -> str:
    r"""Escape control characters, which a terminal would execute.

    Args:
        text: text from a scenario, a file, or a file name.
        lines: whether newlines and tabs are kept.

    Example:
        >>> print(printable("a ring\x1b[2J"))
        a ring\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(c if lines and c in "\n\t" else _escape(c) for c in text)


def _escape(c: str) -> str:
    # Cc: control characters; Cs: surrogates; Zl, Zp: separators of lines.
    is_escaped = unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(c) in _DIRECTIONS
    return c.encode("unicode_escape").decode("ascii") if is_escaped else c


def readable(message: str, lines: bool = True) -> str:
    """Escape control characters of a message, and shorten long words.

    Args:
        message: text of the message.
        lines: whether newlines and tabs are kept.
    """

    def shorten_word(word: re.Match[str]) -> str:
        most = _PATH if "/" in word[0] else _WORD
        return word[0] if len(word[0]) <= most else f"{word[0][:76]} …"

    short = re.sub(rf"\S{{{_WORD},}}", shorten_word, printable(message, lines))
    return short if len(short) <= _LONGEST else f"{short[: _LONGEST - 2]} …"


class InputError(ValueError):
    """Unusable scenario, file or argument.

    The message is "key: problem (got X, expected Y). Fix: …".

    Args:
        message: text of the error.
        command: text with the names of command-line options.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.load("quadratic", set={"algorithm.rounds": 0})
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(":")[0])
        algorithm.rounds
    """

    def __init__(self, message: object = "", command: str = "") -> None:
        super().__init__(readable(str(message), lines=False))
        self.command = readable(command, lines=False) if command else str(self)


Subject = TypeVar("Subject")


class Refusal(NamedTuple, Generic[Subject]):
    """Row of a table of input checks.

    In the texts, `{it}` is the result of `find`, and `{of}` the subject.

    Args:
        find: subject → the offending value; false if the subject is valid.
        key: key of the scenario.
        problem: reason for the error.
        fix: change of the scenario that fixes the error.
    """

    find: Callable[[Subject], Any]
    key: str
    problem: str
    fix: str


def refuse(subject: Subject, table: Iterable[Refusal[Subject]]) -> None:
    """Raise the error of the first failed check in a table.

    Args:
        subject: checked object.
        table: checks in order of precedence. A row may rely on all previous rows.

    Raises:
        InputError: a check fails.

    Example:
        >>> table = [Refusal(lambda rounds: rounds > 9, "algorithm.rounds", "too large (got {of})", "take at most 9")]
        >>> refuse(9, table)
        >>> refuse(10, table)
        Traceback (most recent call last):
        decentral_dp.errors.InputError: algorithm.rounds: too large (got 10). Fix: take at most 9.
    """
    for row in table:
        if value := row.find(subject):
            raise InputError(f"{row.key}: {row.problem}. Fix: {row.fix}.".format(it=value, of=subject))


def option_error(option: str, problem: str) -> InputError:
    """Return the error for an argument, with its names in Python and on the command line.

    Example:
        >>> refused = option_error("out", ": runs/one already exists. Fix: use another folder.")
        >>> str(refused)[:13], refused.command[:15]
        ('out: runs/one', '--out: runs/one')
    """
    return InputError(f"{option}{problem}", command=f"--{option.replace('_', '-')}{problem}")


class UnplannedReleaseError(RuntimeError):
    """Release that was not planned, which invalidates the planned ε."""


class Stopped(Exception):  # noqa: N818 # an interrupt is not an error
    """Interrupted run or study. The message lists the results that were kept."""


def missing_package(error: BaseException) -> str | None:
    """Describe the optional package that an import error reports as missing, and the extra that installs it.

    Returns:
        A sentence without a full stop; None for other errors.

    Example:
        >>> missing_package(ModuleNotFoundError("No module named 'torch.func'", name="torch.func"))
        'torch is not installed; pip install "decentral_dp[torch]" brings it'
        >>> missing_package(ModuleNotFoundError("No module named 'my_helper'", name="my_helper")) is None
        True
    """
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or name not in _EXTRAS:
        return None
    return f'{name} is not installed; pip install "decentral_dp[{_EXTRAS[name]}]" brings it'


@contextmanager
def needing(purpose: str) -> Iterator[None]:
    """Convert an ImportError of an optional package to InputError.

    Args:
        purpose: key or function that needs the package.

    Raises:
        InputError: an optional package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = missing_package(error)
        if sentence is None:
            raise
        raise InputError(f"{purpose}: {sentence}.") from None


@contextmanager
def converting(
    errors: type[BaseException] | tuple[type[BaseException], ...], sentence: Callable[[Any], str]
) -> Iterator[None]:
    """Convert errors of a library or of custom code to InputError. An InputError is raised unchanged.

    Args:
        errors: types of the converted errors.
        sentence: error → text of the InputError.

    Raises:
        InputError: the code in this context raises one of these errors.

    Example:
        >>> with converting(ZeroDivisionError, lambda error: f"algorithm.x: {error}. Fix: use another number."):
        ...     1 / 0
        Traceback (most recent call last):
        decentral_dp.errors.InputError: algorithm.x: division by zero. Fix: use another number.
    """
    try:
        yield
    except InputError:
        raise
    except errors as error:
        # The text of pydantic quotes the refused value, and the sentence states the rest.
        raise InputError(sentence(error)) from (None if isinstance(error, ValidationError) else error)


@contextmanager
def naming(parameters: Mapping[str, str]) -> Iterator[None]:
    """Make errors of a scenario name the parameters of the Python function that built it.

    Args:
        parameters: key of a scenario → parameter that sets it.

    Example:
        >>> with naming({"privacy.epsilon": "epsilon"}):
        ...     raise InputError("privacy.epsilon: got -1, expected a number above 0.")
        Traceback (most recent call last):
        decentral_dp.errors.InputError: epsilon: got -1, expected a number above 0.
    """
    try:
        yield
    except InputError as error:
        texts = [str(error), error.command]
        # Longer keys first, since they contain others. A key in quotation marks is to be written by the user.
        for key in sorted(parameters, key=len, reverse=True):
            texts = [re.sub(rf"(?<![\w.\"]){re.escape(key)}(?!\w)", parameters[key], text) for text in texts]
        error.args, error.command = (texts[0],), texts[1]
        raise


def warn_caller(text: str, category: type[Warning]) -> None:
    """Issue a warning at the caller's line, which is the innermost line outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "decentral_dp":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def quoted(value: Any) -> str:
    """Write a value as in a scenario, at most 80 characters.

    Example:
        >>> print(quoted("ring"), quoted({"kind": "ring", "agents": 4}))
        "ring" {"kind": "ring", "agents": 4}
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]} …"


def nearest_of(name: str, valid: Iterable[str]) -> str:
    """Return the end of the error for an unknown name: the most similar valid name, or the first 15 of them.

    Example:
        >>> nearest_of("rng", ["ring", "star"]), nearest_of("torus", ["ring", "star"])
        ('; did you mean "ring"?', '. Valid: "ring", "star".')
    """
    names = list(valid)
    if close := difflib.get_close_matches(name, names, n=1, cutoff=0.5):
        return f'; did you mean "{close[0]}"?'
    more = ["…"] if len(names) > _LISTED else []
    return f". Valid: {', '.join([*map(quoted, names[:_LISTED]), *more])}." if names else "."


def quoted_path(path: object) -> str:
    """Write a path in quotation marks; a very long path is truncated at its beginning.

    Example:
        >>> print(quoted_path("data/records.csv"))
        "data/records.csv"
        >>> quoted_path("folder/" * 100 + "records.csv")[:3], len(quoted_path("folder/" * 100 + "records.csv"))
        ('"… ', 304)
    """
    text = str(path)
    return json.dumps(text if len(text) <= _TAIL else f"… {text[-_TAIL:]}", ensure_ascii=False)
