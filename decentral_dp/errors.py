"""Errors that a user can cause."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

# Letters of a refusal, and of a word in it that is no path and of one that is, at most.
_LONGEST, _WORD, _PATH = 2000, 160, 400
# Letters of a path that is quoted.
_TAIL = 300
# Packages that are installed on request, each by an extra of its own name.
_EXTRAS = ("ray", "torch")
# Characters that turn the direction of writing.
_DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def printable(text: str, lines: bool = True) -> str:
    r"""The text with control characters written out: none of them reaches a terminal, which would obey it.

    Args:
        text: from a scenario, a file, or a file's name.
        lines: whether ends of lines and tabulators stay.

    Example:
        >>> print(printable("a ring\x1b[2J"))
        a ring\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(c if lines and c in "\n\t" else _escape(c) for c in text)


def _escape(c: str) -> str:
    # Cc: control characters; Cs: halves of a pair; Zl, Zp: ends of lines.
    obeyed = unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(c) in _DIRECTIONS
    return c.encode("unicode_escape").decode("ascii") if obeyed else c


def readable(message: str, lines: bool = True) -> str:
    """A message that a terminal may print, and that quotes no more of what was given than one can read.

    Args:
        message: a sentence.
        lines: whether ends of lines and tabulators stay.
    """

    def shorten_word(word: re.Match[str]) -> str:
        most = _PATH if "/" in word[0] else _WORD
        return word[0] if len(word[0]) <= most else f"{word[0][:76]} …"

    short = re.sub(rf"\S{{{_WORD},}}", shorten_word, printable(message, lines))
    return short if len(short) <= _LONGEST else f"{short[: _LONGEST - 2]} …"


class InputError(ValueError):
    """A scenario, file or argument that cannot be used.

    The message is one sentence: what, what was got, what is wanted, and how to mend it.

    Args:
        message: the sentence.
        command: the same as the command line says it, where its options mend it.

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
    """A row of a table of refusals.

    In the texts `{it}` is the value that `find` returned, and `{of}` the subject.

    Args:
        find: subject → the offending value; anything false if the subject may pass.
        key: of the scenario.
        problem: why it is refused.
        fix: how to change the scenario.
    """

    find: Callable[[Subject], Any]
    key: str
    problem: str
    fix: str


def refuse(subject: Subject, table: Iterable[Refusal[Subject]]) -> None:
    """Raise the first refusal of a table that is true of a subject.

    Args:
        subject: to be checked.
        table: in order of precedence; a row may rely on all rows before it.

    Raises:
        InputError: the refusal.

    Example:
        >>> table = [Refusal(lambda rounds: rounds > 9, "algorithm.rounds", "too large (got {of})", "take at most 9")]
        >>> refuse(9, table)
        >>> refuse(10, table)
        Traceback (most recent call last):
        decentral_dp.errors.InputError: algorithm.rounds: too large (got 10). Fix: take at most 9.
    """
    for row in table:
        if it := row.find(subject):
            raise InputError(f"{row.key}: {row.problem}. Fix: {row.fix}.".format(it=it, of=subject))


def option_error(option: str, rest: str) -> InputError:
    """The refusal of an argument that is an option of the command line, too: named as each of them writes it.

    Example:
        >>> refused = option_error("out", ": runs/one exists already. Give another folder.")
        >>> str(refused)[:13], refused.command[:15]
        ('out: runs/one', '--out: runs/one')
    """
    return InputError(f"{option}{rest}", command=f"--{option.replace('_', '-')}{rest}")


class UnplannedReleaseError(RuntimeError):
    """A run released something else than planned, so that ε of its plan does not hold."""


class Stopped(Exception):  # noqa: N818 # an interrupt is no error
    """A study that was interrupted; the message says what is kept."""


def lacks_memory(error: BaseException) -> bool:
    """Whether an error is most likely for want of memory.

    Libraries in C report it as a SystemError, or cannot be loaded; a module that is not installed is another matter.

    Example:
        >>> lacks_memory(SystemError("error return without exception set")), lacks_memory(ModuleNotFoundError("torch"))
        (True, False)
    """
    loading = isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError)
    return loading or isinstance(error, MemoryError | SystemError)


def missing_package(error: BaseException) -> str | None:
    """Say which optional package an import has missed, and what installs it.

    Returns:
        A sentence without its full stop; None for any other error.

    Example:
        >>> missing_package(ModuleNotFoundError("No module named 'torch.func'", name="torch.func"))
        'torch is not installed; pip install "decentral_dp[torch]" brings it'
        >>> missing_package(ModuleNotFoundError("No module named 'my_helper'", name="my_helper")) is None
        True
    """
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or name not in _EXTRAS:
        return None
    return f'{name} is not installed; pip install "decentral_dp[{name}]" brings it'


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Turn the lack of an optional package into a refusal.

    Args:
        what: that needs it, as a scenario or a caller names it.

    Raises:
        InputError: where an optional package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = missing_package(error)
        if sentence is None:
            raise
        raise InputError(f"{what}: {sentence}.") from None


def quoted(value: Any) -> str:
    """Print a value as it would stand in a scenario, cut off after 76 characters where it has more than 80.

    Example:
        >>> print(quoted("ring"), quoted({"kind": "ring", "agents": 4}))
        "ring" {"kind": "ring", "agents": 4}
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]} …"


def quoted_path(path: object) -> str:
    """Print a path in quotation marks; of a very long one its end, which tells the file.

    Example:
        >>> print(quoted_path("data/records.csv"))
        "data/records.csv"
        >>> quoted_path("folder/" * 100 + "records.csv")[:3], len(quoted_path("folder/" * 100 + "records.csv"))
        ('"… ', 304)
    """
    text = str(path)
    return json.dumps(text if len(text) <= _TAIL else f"… {text[-_TAIL:]}", ensure_ascii=False)
