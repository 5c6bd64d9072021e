"""A driver for one round of a trusted coordinator's program."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from decentral_dp.exchange import Ask, Release, Request, Response

Answered = Callable[[Mapping[str, Any]], Any]


def finish_round(running: Generator[Request, Response, Any], ask: Answered, release: Answered) -> Any:
    """Run one round to its end.

    Args:
        running: generator of a program's `step`.
        ask: callback that answers the values of an `Ask`.
        release: callback that answers the values of a `Release`.

    Returns:
        State after the round.
    """
    reply: Any = None
    while True:
        try:
            request: Any = running.send(reply)
        except StopIteration as done:
            return done.value
        if isinstance(request, Ask):
            reply = ask(request.values)
        elif isinstance(request, Release):
            reply = release(request.values)
