"""What a run tells of itself while it goes: one stream of events, for a bar, lines of text, or a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class RunEvent(NamedTuple):
    """A run at one of its evaluations.

    Args:
        round: that is done.
        rounds: in all.
        loss: upper loss, or the lower one where x is not tuned; it reads records. NaN where it was not measured.
        epsilon: spent by the worst agent so far.
        rounds_per_second: since the first event; None at it.
        seconds_left: at that speed; None at the first event.
    """

    round: int
    rounds: int
    loss: float
    epsilon: float
    rounds_per_second: float | None
    seconds_left: float | None


class EventSink(Protocol):
    """Told of every event."""

    def __call__(self, event: RunEvent) -> None: ...


class Events:
    """A progress callback that turns what it is told into events, the same for every sink.

    Args:
        sinks: that are told.
        clock: seconds; by default those of this machine, which no change of its time moves.

    Example:
        >>> seconds, seen = iter([0.0, 2.0]), []
        >>> events = Events([seen.append], clock=lambda: next(seconds))
        >>> events(10, 40, 0.7, 0.5); events(20, 40, 0.6, 1.0)
        >>> seen[1].rounds_per_second, seen[1].seconds_left
        (5.0, 4.0)
    """

    def __init__(self, sinks: Sequence[EventSink], clock: Callable[[], float] = time.monotonic) -> None:
        self._sinks, self._clock = sinks, clock
        self._first: tuple[int, float] | None = None
        self._spent = 0.0

    def __call__(self, done: int, rounds: int, loss: float, epsilon: float) -> None:
        """Tell all sinks; as `ProgressCallback`."""
        now = self._clock()
        # A run that goes on does not begin at round 0.
        first, at = self._first = self._first or (done, now)
        # ε is not priced at every round; the last known one stays.
        self._spent = self._spent if math.isnan(epsilon) else epsilon
        speed = (done - first) / (now - at) if now > at and done > first else None
        left = None if speed is None else (rounds - done) / speed
        for sink in self._sinks:
            sink(RunEvent(done, rounds, loss, self._spent, speed, left))
