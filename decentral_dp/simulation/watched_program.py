"""A program in a rehearsal: the line of each of its exchanges is known, and what is no exchange is refused by name."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

from decentral_dp.errors import InputError, quoted
from decentral_dp.exchange import Ask, Gossip, Pool, Release
from decentral_dp.files.source_lines import place_in_class

_PACKAGE = str(Path(__file__).parent.parent) + "/"


class Places(Protocol):
    """Where a program is. place: as ", in line 3 of file.py", or ""; round: of it."""

    place: str
    round: int


class WatchedProgram:
    """A program that tells where it is.

    name: of the component, for refusals.
    """

    def __init__(self, program: Any, places: Places, name: str) -> None:
        self._program = program
        self._places = places
        self._name = name
        self._author = getattr(program, "program", program)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def init(self, known: Any) -> Any:
        """The start. Raises InputError where its state lacks a channel."""
        self._places.place = self._place_of("init")
        state = self._program.init(known)
        for channel in getattr(self._program, "channels", ()):
            if not hasattr(state, channel):
                at = place_in_class(type(self._author), "channels") or self._places.place
                fields = ", ".join(getattr(state, "_fields", ())) or "none"
                raise InputError(
                    f"{self._name}: channels names {quoted(channel)}{at}, wanted a field of the state that init "
                    f"returns: {fields}; nothing was run. Name one of these, or add {channel} to the state."
                )
        return state

    def step(self, t: int, known: Any, s: Any) -> Generator[Any, Any, Any]:
        """One round. Raises InputError where something is yielded that is no exchange, or a round has none."""
        self._places.round = t
        running, reply, made = self._program.step(t, known, s), None, 0
        if not isinstance(running, Generator):
            raise self._no_exchange(f"returns {type(running).__name__} and never yields", self._place_of("step"))
        while True:
            try:
                request = running.send(reply)
            except StopIteration as done:
                if not made and self._gossips:
                    raise self._no_exchange("returns without a yield", self._place_of("step")) from None
                return done.value
            place = _where(running)
            if not isinstance(request, Gossip | Ask | Pool | Release):
                raise self._no_exchange(f"yields {type(request).__name__}", place or self._place_of("step"))
            self._places.place, made = place, made + 1
            if self._gossips and made > (stated := self._program.releases_per_round):
                raise InputError(
                    f"{self._name}: step makes {made} exchanges{place}, wanted {stated} a round; nothing was run. Send "
                    "all channels in one Gossip(x=…, y=…). Several a round are for a class that plans its releases "
                    "itself: with releases_per_round, releases and planned_releases in the place of RELEASES."
                )
            reply = yield request

    @property
    def _gossips(self) -> bool:
        return hasattr(self._program, "channels")

    def _no_exchange(self, what: str, place: str) -> InputError:
        if self._gossips:
            wanted, mend = "one Gossip a round", "own, near = yield Gossip(y=s.y)"
        else:
            wanted, mend = "questions and releases", "g = yield from release_gradients(…)"
        return InputError(
            f"{self._name}: step {what}{place}, wanted {wanted}; nothing was run. Write for example {mend}."
        )

    def _place_of(self, method: str) -> str:
        code = getattr(getattr(self._author, method), "__code__", None)
        return _place(code.co_filename, code.co_firstlineno) if code is not None else ""


def _where(running: Any) -> str:
    """The innermost line of a waiting generator that is not this package's."""
    place = ""
    while running is not None:
        frame = getattr(running, "gi_frame", None)
        if frame is not None:
            place = _place(frame.f_code.co_filename, frame.f_lineno) or place
        running = getattr(running, "gi_yieldfrom", None)
    return place


def _place(file: str, line: int) -> str:
    return "" if file.startswith((_PACKAGE, "<")) else f", in line {line} of {file}"
