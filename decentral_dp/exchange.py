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

import numpy as np

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

    def beside(self) -> Array:
        """All arrays side by side, (b, Σ d); without a copy where they are the columns of one array already."""
        parts = list(self._values.values())
        whole = parts[0].base
        if (
            whole is not None
            and all(p.base is whole for p in parts)
            and whole.shape[1:] == (sum(p.shape[1] for p in parts),)
        ):
            starts = np.cumsum([0, *(p.shape[1] for p in parts[:-1])]) * whole.strides[1]
            if all(p.ctypes.data == whole.ctypes.data + s for p, s in zip(parts, starts, strict=True)):
                return whole
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class Gossip:
    """Release one value per channel and send all of them to every neighbour in one message.

    The reply is a `Reply`: what this agent itself released, and the weighted sum of what its neighbours released.
    Values have shape (b, d): b agents hosted together, the first axis always agents.
    """

    def __init__(self, **values: Value) -> None:
        self.values: dict[str, Value] = values


class Ask:
    """Answer a server: release one value per channel, and continue with the mean of all agents' answers.

    What the server sends is a public function of earlier answers, so every agent computes it itself: the program is
    written as if each of them were the server. An answer is released where it is made, with that agent's own noise;
    nobody has to trust the server.
    """

    def __init__(self, **values: Value) -> None:
        self.values: dict[str, Value] = values


class Answer(NamedTuple):
    """own: what this agent answered (public from now on). mean: (1/m) Σ_j of all answers, the same for every agent."""

    own: Bundle
    mean: Bundle


class Reply(NamedTuple):
    """own: what this agent released (public from now on). near: Σ_{j≠i} w_ij · (what neighbour j released)."""

    own: Bundle
    near: Bundle


Exchange: TypeAlias = Gossip | Ask
Response: TypeAlias = Any  # Reply to Gossip, Answer to Ask; a generator's type cannot say which follows which.


class Program(Protocol):
    """What participants run, and all that an engine knows of an algorithm.

    channels: the variables that are published, fields of its state. exchanges: how many exchanges one step makes.
    central: whether these are `Ask`, all of them, or `Gossip`.

    The releases of a run are numbered: exchange e of round t has the index t·exchanges + e, and what `channels` hold
    after the last round T − 1 is released with the index T·exchanges. At index 0 nothing has met a record yet. A value
    that is an array, like one's own released value, is public already; passing it on is no release.
    """

    @property
    def channels(self) -> tuple[str, ...]: ...

    @property
    def exchanges(self) -> int: ...

    @property
    def central(self) -> bool: ...

    def init(self, shard: Any) -> Any:
        """The data-independent start."""
        ...

    def step(self, t: int, shard: Any, s: Any) -> Generator[Exchange, Response, Any]:
        """One round: yields its exchanges, returns the next state."""
        ...
