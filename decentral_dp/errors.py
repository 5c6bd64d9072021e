"""Errors that a user can cause, in one sentence."""

from __future__ import annotations

import json
from typing import Any


class InputError(ValueError):
    """A scenario, file or argument that cannot be used.

    The message is one sentence: what, what was got, what is wanted, and how to mend it.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.load("quadratic", ["algorithm.rounds=0"])
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(":")[0])
        algorithm.rounds
    """


class Stopped(Exception):  # noqa: N818 # an interrupt is no error
    """A study that was interrupted; the message says what is kept."""


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
