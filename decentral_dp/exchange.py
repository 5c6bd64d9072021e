"""The only way out of a participant.

An algorithm's `step` is a generator written from the agents' point of view. It reaches others by yielding an exchange
and continues with the reply:

    own, near = yield Gossip(x=s.x, y=s.y, z=s.z)

The engine hands every value to its channel's mechanism (round to a grid, add noise, write the ledger line) before
anything travels. A `Bounded` value is charged with the sensitivity it carries. A plain array is data-independent, by
type: records can be reached only through queries that return `Bounded`; it travels as it is and is listed as free.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from decentral_dp.privacy.sensitivity import Array, Bounded

Value: TypeAlias = Array | Bounded


class Bundle(Mapping[str, Array]):
    """Arrays by channel name, as attributes (`near.y`) and as a mapping (`near["y"]`)."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values = dict(values)

    def __getitem__(self, channel: str) -> Array:
        return self._values[channel]

    def __getattr__(self, channel: str) -> Array:
        if channel.startswith("_"):
            raise AttributeError(channel)
        try:
            return self._values[channel]
        except KeyError:
            raise AttributeError(f"no channel {channel!r}; this exchange carried {sorted(self._values)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Gossip:
    """Release one value per channel and send all of them to every neighbour in one message.

    The reply is a `Reply`: what this agent itself released, and the weighted sum of what its neighbours released.
    Values have shape (b, d): b agents hosted together, the first axis always agents.
    """

    def __init__(self, **values: Value) -> None:
        self.values: dict[str, Value] = values


class Reply(NamedTuple):
    """own: what this agent released (public from now on). near: Σ_{j≠i} w_ij · (what neighbour j released)."""

    own: Bundle
    near: Bundle


Exchange: TypeAlias = Gossip


class Program(Protocol):
    """What participants run, and all that an engine knows of an algorithm.

    channels: what is released at the end. exchanges: how many exchanges one step makes.
    """

    @property
    def channels(self) -> tuple[str, ...]: ...

    @property
    def exchanges(self) -> int: ...

    def init(self, shard: Any) -> Any:
        """The data-independent start."""
        ...

    def step(self, t: int, shard: Any, s: Any) -> Generator[Exchange, Reply, Any]:
        """One round: yields its exchanges, returns the next state."""
        ...
