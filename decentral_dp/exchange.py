"""Exchanges: the only ways in which a participant can send values.

The `step` of an algorithm is a generator. It yields an exchange and continues with the reply:

    own, near = yield Gossip(x=s.x, y=s.y, z=s.z)
    own, near, received = yield Gossip(each=True, x=s.x, y=s.y, z=s.z)     received: releases of every neighbour

Before sending, the engine applies the mechanism of the channel to every value: rounding to a grid, noise, ledger entry.
A `Bounded` value is accounted with its sensitivity. A plain array is public by type, since queries on records return
only `Bounded` values: it is sent unchanged, at no privacy cost.

A program of a trusted coordinator has three exchanges:

    answer = yield Ask(g=Sum("lower_grad_y", x=s.x, y=s.y))     questions at public points; replies are clipped means
    pool = yield Pool()                                         the records
    public = yield Release(gx=answer.g + ...)                   the only way out: noise and ledger entry

Answers and functions of records are `Bounded`. `Ask` raises an error for them, since agents receive public values only.
"""

from __future__ import annotations

import math
from collections.abc import Generator, ItemsView, Iterator, Mapping
from itertools import repeat
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Bounded, Split
from decentral_dp.errors import InputError
from decentral_dp.user_code import author_of, convert_failures

_END = object()


class SelectionMechanism(Protocol):
    """Random selection whose outcome is the release, such as an exponential mechanism.

    Args:
        mechanism: kind of mechanism, "exponential", "gaussian" (of a Gaussian pair) or "uncertified".
        sensitivity: split → sensitivity to one replaced record. The privacy cost is sensitivity/scale.
        width: number of coordinates of a draw.
        distortion: bound on the error of the log-density.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def sensitivity(self) -> Mapping[Split, float]: ...

    @property
    def width(self) -> int: ...

    @property
    def distortion(self) -> float: ...

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        """Draw an array (width,) at this scale. At scale 0, return the best candidate."""
        ...


Value: TypeAlias = Array | Bounded


class Bundle(Mapping[str, Array]):
    """Arrays by channel, available both as attributes and as items of a mapping.

    Args:
        values: channel → array.
        whole: array whose consecutive columns are these arrays, or None.

    Example:
        >>> answer = Bundle({"x": np.ones((1, 2)), "y": np.zeros((1, 1))})
        >>> answer.x is answer["x"], list(answer)
        (True, ['x', 'y'])
        >>> answer.concatenate().tolist()
        [[1.0, 1.0, 0.0]]
        >>> len(Bundle({"items": np.ones((1, 2))}).items())
        1
    """

    def __init__(self, values: Mapping[str, Array], whole: Array | None = None) -> None:
        self._values = dict(values)
        self._whole = whole
        if _METHODS.isdisjoint(self._values):
            # Ten times as fast as `__getattr__`.
            vars(self).update(self._values)

    def __getitem__(self, channel: str) -> Array:
        return self._values[channel]

    def __getattr__(self, channel: str) -> Array:
        # Copying and unpickling read attributes before `__init__`.
        values: Mapping[str, Array] = vars(self).get("_values", {})
        if channel.startswith("_") or channel not in values:
            raise AttributeError(f"no channel {channel!r}; this exchange carried {sorted(values)}")
        return values[channel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> ItemsView[str, Array]:
        """Return the channels and their arrays (b, width), faster than the method of `Mapping`."""
        return self._values.items()

    def concatenate(self) -> Array:
        """Concatenate all arrays, (b, Σ d). No copy is made if they are the columns of `whole`."""
        if self._whole is not None:
            return self._whole
        parts = list(self._values.values())
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


# Channels with these names are not attributes.
_METHODS = frozenset(dir(Bundle)) | {"_values", "_whole"}


class Gossip:
    """Release of one value per channel, in one message to every neighbour.

    The reply is a `Reply`, or a `FullReply` if `each` is true.

    Args:
        each: whether the reply contains the value of every neighbour instead of only the sum.
        values: channel → values of the b agents of a host, (b, d).

    Example:
        >>> exchange = Gossip(each=True, y=np.zeros((2, 3)))
        >>> exchange.each, list(exchange.values)
        (True, ['y'])
    """

    # Any, since a mapping of channels could have this key.
    def __init__(self, *, each: Any = False, **values: Value) -> None:
        if not isinstance(each, bool):
            raise ValueError("each is a bool (got a channel of this name). Fix: rename the channel")
        self.each = each
        self.values: dict[str, Value] = values


class ClippedSum(NamedTuple):
    """Query to all agents for the sum of a term over their records, with per-example clipping.

    Args:
        term: name of a term in `problems.protocol`.
        x: upper variable, (p,).
        y: lower variable, (q,).
        along: direction of the term.
        rate: sampling rate of a Poisson sample that each agent draws. Queries of one `Ask` with equal rate and split
            share the sample. 1 (the default) means all records.
        times: public factor that multiplies every contribution before clipping.
        block: pair (k, K), which selects each agent's records with index k modulo K, at rate 1. None (the default)
            selects all records.
    """

    term: str
    x: Array
    y: Array
    along: Array | None = None
    rate: float = 1.0
    times: float = 1.0
    block: tuple[int, int] | None = None

    @property
    def payload(self) -> tuple[Any, ...]:
        """Values that are sent to the agents."""
        return (self.x, self.y, self.along)


class ClippedQuery(NamedTuple):
    """Query of a coordinator for the sum of a vector over all records, with per-example clipping.

    Args:
        term: name of a term of the problem.
        x: upper variable, (p,).
        y: lower variable, (q,).
        bound: clipping norm (l2) of every vector minus `centre`.
        earlier_point: earlier point (x, y). The clipped vector is then the difference from this point.
        centre: public centre, (width,). The default is 0.
        rate: sampling rate of a Poisson sample, as in `ClippedSum`.
        parameters: public parameters of the objective.
    """

    term: str
    x: Array
    y: Array
    bound: float
    earlier_point: tuple[Array, Array] | None = None
    centre: Array | None = None
    rate: float = 1.0
    parameters: Array | None = None

    @property
    def payload(self) -> tuple[Any, ...]:
        """Values that are sent to the agents."""
        return (self.x, self.y, *(self.earlier_point or ()), self.centre, self.parameters)


class Ask:
    """Exchange between a server and its agents.

    In a program of agents, the values are answers. Each agent releases one value per channel with its own noise, and
    the reply contains the mean of all answers. Agents compute the state of the server from earlier answers, which are
    public. The server need not be trusted.

    In a program of a trusted coordinator, the values are questions at public points. The reply contains their means
    over all records, which are not public.

    Raises:
        ValueError: a point is not public.
    """

    def __init__(self, **values: Value | ClippedSum | ClippedQuery) -> None:
        for name, value in values.items():
            if not isinstance(value, ClippedSum | ClippedQuery):
                continue
            problem = ""
            if any(part is not None and not isinstance(part, np.ndarray) for part in value.payload):
                problem = "has a point that is not public. Fix: release it first"
            elif isinstance(value, ClippedSum) and not 0.0 < value.times < math.inf:
                problem = f"has times = {value.times} (expected a finite number above 0)"
            elif isinstance(value, ClippedSum) and value.block is not None and value.rate != 1.0:
                # Terms of a round are amplified as one sample, which blocks would draw apart.
                problem = f"samples a block (got rate = {value.rate}, expected 1). Fix: remove block, or set rate = 1"
            elif isinstance(value, ClippedQuery) and not value.bound >= 0.0:
                problem = f"has the clipping norm {value.bound} (expected at least 0)"
            if problem:
                raise ValueError(f"{name} {problem}")
        self.values: dict[str, Any] = values


class Pool:
    """Request of a trusted coordinator for all records, which it can make once. The reply gives access to them."""


class Release:
    """Release of one value per channel by a coordinator. The reply is a `Released`."""

    def __init__(self, **values: Value | SelectionMechanism) -> None:
        self.values: dict[str, Value | SelectionMechanism] = values


class Released(NamedTuple):
    """Values released by a coordinator.

    Args:
        released: released values, which are public, each (1, d).
        scale: channel → scale of its noise, which is public.
    """

    released: Bundle
    scale: Mapping[str, float]


class Answer(NamedTuple):
    """Reply to an `Ask` of agents.

    Args:
        released: answer of this agent, which is public.
        mean: mean of all answers, (1/m) Σ_j, equal for all agents. A silent agent contributes 0.
    """

    released: Bundle
    mean: Bundle


class Reply(NamedTuple):
    """Reply to a `Gossip`.

    Args:
        released: release of this agent, which is public. For a silent agent it is the previous release, and initially
            its start (zeros for a channel that is not a variable of the program).
        neighbour_sum: weighted sum Σ_{j≠i} w_ij · (release of j) over the neighbours that sent.
    """

    released: Bundle
    neighbour_sum: Bundle


class NeighbourReleases(NamedTuple):
    """The k messages from all neighbours to the agents of a block, ordered by receiving row.

    Args:
        rows: row of the receiving agent in the block, (k,), ascending.
        agents: index of the sending agent, (k,), ascending within each row.
        weights: weights w_ij, (k,).
        values: channel → released values, (k, d).

    Example:
        >>> rows, agents, values = np.array([0, 0, 1]), np.array([1, 2, 0]), Bundle({"y": np.eye(3)})
        >>> received = NeighbourReleases(rows, agents, np.full(3, 0.25), values)
        >>> first = received.of_agent(0)
        >>> first.agents.tolist(), first.values.y.tolist()
        ([1, 2], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    """

    rows: NDArray[np.int64]
    agents: NDArray[np.int64]
    weights: Array
    values: Bundle

    def of_agent(self, row: int) -> NeighbourReleases:
        """Return the messages to one agent of the block.

        Args:
            row: row of the agent.
        """
        first, end = np.searchsorted(self.rows, (row, row + 1))
        return self.select(slice(first, end))

    def select(self, chosen: Any) -> NeighbourReleases:
        """Return some of the messages.

        Args:
            chosen: slice, indices (n,) or mask (k,) of messages.
        """
        values = Bundle({channel: value[chosen] for channel, value in self.values.items()})
        return NeighbourReleases(self.rows[chosen], self.agents[chosen], self.weights[chosen], values)


class FullReply(NamedTuple):
    """Reply to a `Gossip` with `each`, as in `own, near, received = yield Gossip(each=True, y=s.y)`.

    Args:
        released: release of this agent, which is public, as in `Reply`.
        neighbour_sum: weighted sum of the neighbours' releases, as in `Reply`.
        neighbours: messages of all neighbours.
    """

    released: Bundle
    neighbour_sum: Bundle
    neighbours: NeighbourReleases


Exchange: TypeAlias = Gossip | Ask
Request: TypeAlias = Ask | Pool | Release
Response: TypeAlias = Any  # a Reply to Gossip, an Answer to Ask, …


class Program(Protocol):
    """Program that all agents run.

    Args:
        channels: names of the published variables, which are fields of the state.
        releases_per_round: number of exchanges E in one step.
        has_server: whether all exchanges are `Ask` instead of `Gossip`.

    Limits:
        Exchange e of round t has the index t·E + e. The variables in `channels` after the last round T − 1 are released
        with the index T·E. At index 0 no value depends on records. Sending a plain array is not a release.

        A program may have `senders(network)`, which yields the sending agents of rounds 0, 1, …, T (round T is the last
        release; see `Senders`). Without it, or if it returns None, all agents send. It may have `sends(t)`, which
        returns whether messages are sent in round t. In a local round the sums over neighbours are 0.

        It may have `solution(values)`, a function of public values that returns channel → value to publish and
        evaluate.
    """

    @property
    def channels(self) -> tuple[str, ...]: ...

    @property
    def releases_per_round(self) -> int: ...

    @property
    def has_server(self) -> bool: ...

    def init(self, dataset: Any) -> Any:
        """Return the data-independent start."""
        ...

    def step(self, t: int, dataset: Any, s: Any) -> Generator[Exchange, Response, Any]:
        """Perform one round: yield its exchanges, and return the next state."""
        ...


class Senders:
    """Agents that send in each round, as determined by a program's `senders`.

    A silent agent has no release, and therefore no noise, ledger entry or privacy cost. The sending agents are public,
    so they may depend only on the network and on public randomness.

    Args:
        program: program with `senders(network)`, which yields a boolean mask (m,) or indices of agents for each round.
        network: public facts of all agents, with their number `n_agents`.

    Raises:
        InputError: a round yields neither a mask nor indices, or there are too few rounds.

    Example:
        >>> class Turns:
        ...     def senders(self, network):
        ...         for t in range(4):
        ...             yield [t % network.n_agents]
        >>> class Three:
        ...     n_agents = 3
        >>> senders = Senders(Turns(), Three())
        >>> [senders.mask_of_round(t).tolist() for t in (0, 2, 1)]
        [[True, False, False], [False, False, True], [False, True, False]]
    """

    def __init__(self, program: Any, network: Any) -> None:
        self._program, self._network = program, network
        self._rounds: Iterator[Any] | None = None
        self._next = 0
        self._last = np.zeros(0, dtype=bool)

    def mask_of_round(self, t: int) -> NDArray[np.bool_]:
        """Return the mask (m,) of the agents that send in round t. Raises InputError."""
        if self._rounds is None or t < self._next - 1:
            rounds = _rounds_of(self._program, self._network)
            all_agents = np.ones(self._network.n_agents, dtype=bool)
            self._rounds, self._next = repeat(all_agents) if rounds is None else rounds, 0
        online = getattr(self._network, "online", None)
        while self._next <= t:
            with convert_failures(f"algorithm.kind: senders of {author_of(self._program)}"):
                answer = next(self._rounds, _END)
                if answer is _END:
                    raise InputError(
                        f"algorithm.kind: senders of {author_of(self._program)} stops after {self._next} rounds "
                        "(expected one yield for every round). Fix: yield in an endless loop."
                    )
                self._last = self._mask(answer)
            mask = None if online is None else online(self._next)
            if mask is not None:
                self._last = self._last & mask
            self._next += 1
        return self._last

    def _mask(self, answer: Any) -> NDArray[np.bool_]:
        chosen, m = np.asarray(answer), self._network.n_agents
        if chosen.dtype == bool and chosen.shape == (m,):
            return chosen.copy()
        mask = np.zeros(m, dtype=bool)
        if chosen.size:
            whole = chosen.dtype.kind in "iu" and chosen.ndim == 1
            if not whole or chosen.min() < 0 or chosen.max() >= m:
                raise InputError(
                    f"algorithm.kind: senders of {author_of(self._program)} yields {answer!r} for round {self._next} "
                    f"(expected a mask of {m} agents, or agent numbers). Fix: correct its code."
                )
            mask[chosen] = True
        return mask


def _rounds_of(program: Any, network: Any) -> Iterator[Any] | None:
    """Return the senders of rounds 0, 1, …, or None if all agents always send. Raises InputError."""
    with convert_failures(f"algorithm.kind: senders of {author_of(program)}"):
        senders = getattr(program, "senders", None)
        rounds = None if senders is None else senders(network)
        return None if rounds is None else iter(rounds)


def senders_of(program: Any, network: Any) -> Senders | None:
    """Return the agents that send in each round, without offline agents, or None if all agents always send.

    Args:
        program: program of the agents.
        network: public facts of all agents.
    """
    online, has_silent = getattr(network, "online", None), _rounds_of(program, network) is not None
    return Senders(program, network) if has_silent or (online is not None and online(0) is not None) else None


class Coordination(Protocol):
    """Program that a trusted coordinator runs.

    Args:
        releases_per_round: number of `Release` exchanges E in one step. Release e of round t has the index t·E + e + 1.
    """

    @property
    def releases_per_round(self) -> int: ...

    def init(self, context: Any) -> Any:
        """Return the data-independent start.

        Args:
            context: public facts (problem, numbers of records, domain of x).
        """
        ...

    def step(self, t: int, context: Any, s: Any) -> Generator[Request, Response, Any]:
        """Perform one round: yield its exchanges, and return the next state."""
        ...

    def published(self, s: Any) -> Mapping[str, Array]:
        """Return variable → public value (d,) after this round, a function of the releases."""
        ...
