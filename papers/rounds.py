"""One round of a trusted coordinator's program, answered by hand."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from decentral_dp.exchange import Ask, Release, Request, Response

Answered = Callable[[Mapping[str, Any]], Any]


def finish_round(running: Generator[Request, Response, Any], ask: Answered, release: Answered) -> Any:
    """Carry one round out.

    Args:
        running: the generator of a program's `step`.
        ask, release: what an `Ask` and a `Release` with these values are answered by.

    Returns:
        The state after the round.
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
