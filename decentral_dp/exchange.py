"""Exchanges: the only ways out of a participant.

An algorithm's `step` is a generator written from the agents' point of view. It reaches others by yielding an exchange
and continues with the reply:

    own, near = yield Gossip(x=s.x, y=s.y, z=s.z)
    own, near, heard = yield Gossip(each=True, x=s.x, y=s.y, z=s.z)     heard: what every single neighbour released

The engine hands every value to its channel's mechanism (round to a grid, add noise, write the ledger line) before
anything travels. A `Bounded` value is charged with the sensitivity it carries. A plain array is data-independent, by
type: records can be reached only through queries that return `Bounded`; it travels as it is and is listed as free.

Where the agents trust a coordinator, the program is the coordinator's, and there are three exchanges:

    answer = yield Ask(g=Sum("lower_grad_y", x=s.x, y=s.y))     questions at public points; clipped means come back
    pool = yield Pool()                                         the records themselves come
    public = yield Release(gx=answer.g + ...)                   the one way out: noise, once, and the ledger line

What answers and records lead to is `Bounded`, and `Ask` refuses to carry it: to the agents go public values alone.
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


class SelectionMechanism(Protocol):
    """A random choice that is itself the release, such as an exponential mechanism.

    Args:
        mechanism: "exponential", "gaussian" (of a law that is a Gaussian pair) or "uncertified".
        sensitivity: kind → what one replaced record can move, such that the price is sensitivity/scale.
        width: coordinates of what is drawn.
        distortion: how far the log of the law that is drawn from may be from the ideal one.
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
        """Draw (width,) at this scale; at scale 0 the best of all."""
        ...


Value: TypeAlias = Array | Bounded


class Bundle(Mapping[str, Array]):
    """Arrays by channel name, as attributes and as a mapping.

    Args:
        values: channel → array.
        whole: the array whose columns they are, from the first to the last; None where there is none.

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
            # Attributes of its own are found ten times as fast as by `__getattr__`, which is there for the others.
            vars(self).update(self._values)

    def __getitem__(self, channel: str) -> Array:
        return self._values[channel]

    def __getattr__(self, channel: str) -> Array:
        # Python asks for attributes before `__init__` has run, where it copies or unpickles.
        values: Mapping[str, Array] = vars(self).get("_values", {})
        if channel.startswith("_") or channel not in values:
            raise AttributeError(f"no channel {channel!r}; this exchange carried {sorted(values)}")
        return values[channel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> ItemsView[str, Array]:
        """Channels and arrays; asked for every round, and far quicker than what a mapping makes of the above.

        Each array is (b, width).
        """
        return self._values.items()

    def concatenate(self) -> Array:
        """Join all arrays side by side, (b, Σ d); without a copy where they are known to be columns of one array."""
        if self._whole is not None:
            return self._whole
        parts = list(self._values.values())
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


# Channels of these names are reached by their name in brackets alone.
_METHODS = frozenset(dir(Bundle)) | {"_values", "_whole"}


class Gossip:
    """A release of one value per channel, all of them sent to every neighbour in one message.

    The reply is a `Reply`: what this agent itself released, and the weighted sum of what its neighbours released. With
    `each` it is a `FullReply`, which also has what every single neighbour released.

    Args:
        each: whether the reply is to have every neighbour's value, not their sum alone; default False.
        values: channel → (b, d); b agents hosted together, the first axis always agents.

    Example:
        >>> exchange = Gossip(each=True, y=np.zeros((2, 3)))
        >>> exchange.each, list(exchange.values)
        (True, ['y'])
    """

    # `each` may be anything for the type checker, to which a mapping of channels could have it as a key.
    def __init__(self, *, each: Any = False, **values: Value) -> None:
        if not isinstance(each, bool):
            raise ValueError("each is true or false, and no channel; give the channel another name")
        self.each = each
        self.values: dict[str, Value] = values


class ClippedSum(NamedTuple):
    """A question to all agents: the sum over their records of a term, each record's contribution clipped.

    Args:
        term: of `problems.protocol`.
        x: (p,).
        y: (q,).
        along: the term's further argument.
        rate: below 1, of a Poisson sample that is drawn where the records are, one for all questions of an `Ask` with
            this rate and kind of records; default 1.
        times: a public factor on every contribution, before it is clipped; default 1.
    """

    term: str
    x: Array
    y: Array
    along: Array | None = None
    rate: float = 1.0
    times: float = 1.0

    @property
    def payload(self) -> tuple[Any, ...]:
        """Everything that travels to the agents."""
        return (self.x, self.y, self.along)


class ClippedQuery(NamedTuple):
    """A question of a minimax program: the sum over all records of a per-record vector, each record's clipped.

    Args:
        term: of `problems.saddle`.
        x: (p,).
        y: (q,).
        bound: on the l2 norm of every record's vector less `centre`.
        earlier_point: an earlier (x, y); the vector is then its change since there, clipped after subtracting.
        centre: (width,), default 0.
        rate: as of `ClippedSum`.
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
        """Everything that travels to the agents."""
        return (self.x, self.y, *(self.earlier_point or ()), self.centre, self.parameters)


class Ask:
    """An exchange between a server and its agents.

    In a program of the agents the values are answers: release one value per channel, and continue with the mean of all
    agents' answers. What the server sends is a public function of earlier answers, so every agent computes it itself:
    the program is written as if each of them were the server. An answer is released where it is made, with that agent's
    own noise; nobody has to trust the server.

    In a program of a trusted coordinator the values are questions, at public points: the program continues with their
    means over all records, which are not public yet.

    Raises:
        ValueError: a point that is not public.
    """

    def __init__(self, **values: Value | ClippedSum | ClippedQuery) -> None:
        for name, value in values.items():
            if not isinstance(value, ClippedSum | ClippedQuery):
                continue
            problem = ""
            if any(part is not None and not isinstance(part, np.ndarray) for part in value.payload):
                problem = "asks the agents at a point that is not public; publish it first"
            elif isinstance(value, ClippedSum) and not 0.0 < value.times < math.inf:
                problem = f"is asked {value.times} times; no clip bounds that"
            elif isinstance(value, ClippedQuery) and not value.bound >= 0.0:
                problem = f"is asked with the clip {value.bound}; no norm is below that"
            if problem:
                raise ValueError(f"{name} {problem}")
        self.values: dict[str, Any] = values


class Pool:
    """A request for all records, which the agents hand to the trusted coordinator, once.

    The reply gives access to them.
    """


class Release:
    """The coordinator's only way out: release one value per channel. The reply is a `Released`."""

    def __init__(self, **values: Value | SelectionMechanism) -> None:
        self.values: dict[str, Value | SelectionMechanism] = values


class Released(NamedTuple):
    """What a coordinator released.

    Args:
        released: (1, d) each, public from now on.
        scale: channel → scale of its noise, public too.
    """

    released: Bundle
    scale: Mapping[str, float]


class Answer(NamedTuple):
    """What the agents answered a server.

    Args:
        released: what this agent answered, public from now on.
        mean: (1/m) Σ_j of all answers, the same for every agent; of those that do not send the answer counts as 0.
    """

    released: Bundle
    mean: Bundle


class Reply(NamedTuple):
    """What one gossip exchange gave.

    Args:
        released: what this agent released, public from now on; of one that did not send, what it released last, and its
            start before that (zeros on a channel that is no variable of the program).
        neighbour_sum: Σ_{j≠i} w_ij · (what neighbour j released), over the neighbours that sent.
    """

    released: Bundle
    neighbour_sum: Bundle


class NeighbourReleases(NamedTuple):
    """What every neighbour sent to the agents of a block: k messages, those of row 0 first, then of row 1, ….

    Args:
        rows: (k,) rows of the block that heard it, ascending.
        agents: (k,) numbers of the agents that sent it, ascending for each row.
        weights: (k,) w_ij.
        values: channel → (k, d), as released.

    Example:
        >>> rows, agents, values = np.array([0, 0, 1]), np.array([1, 2, 0]), Bundle({"y": np.eye(3)})
        >>> heard = NeighbourReleases(rows, agents, np.full(3, 0.25), values)
        >>> one = heard.of_agent(0)
        >>> one.agents.tolist(), one.values.y.tolist()
        ([1, 2], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    """

    rows: NDArray[np.int64]
    agents: NDArray[np.int64]
    weights: Array
    values: Bundle

    def of_agent(self, row: int) -> NeighbourReleases:
        """Return what one agent of the block heard.

        Args:
            row: of the agent.
        """
        first, end = np.searchsorted(self.rows, (row, row + 1))
        return self.select(slice(first, end))

    def select(self, chosen: Any) -> NeighbourReleases:
        """Return some of the messages.

        Args:
            chosen: a slice, numbers (n,) or a mask (k,) of messages.
        """
        values = Bundle({channel: value[chosen] for channel, value in self.values.items()})
        return NeighbourReleases(self.rows[chosen], self.agents[chosen], self.weights[chosen], values)


class FullReply(NamedTuple):
    """What one gossip exchange with `each` gave: `own, near, heard = yield Gossip(each=True, y=s.y)`.

    Args:
        released: as of `Reply`.
        neighbour_sum: as of `Reply`.
        neighbours: what every neighbour sent.
    """

    released: Bundle
    neighbour_sum: Bundle
    neighbours: NeighbourReleases


Exchange: TypeAlias = Gossip | Ask
Request: TypeAlias = Ask | Pool | Release
Response: TypeAlias = Any  # Reply to Gossip, Answer to Ask, …; a generator's type cannot say which follows which.


class Program(Protocol):
    """What participants run, and all that an engine knows of an algorithm.

    Args:
        channels: the variables that are published, fields of its state.
        releases_per_round: E, exchanges of one step.
        central: whether these are `Ask`, all of them, or `Gossip`.

    Limits:
        The releases of a run are numbered: exchange e of round t has the index t·E + e. What `channels` hold after the
        last round T − 1 is released with the index T·E. At index 0 nothing has met a record yet. A value that is an
        array, like one's own released value, is public already; passing it on is no release.

        A program may also have `senders(network)`, which yields for round 0, 1, …, T who sends in the exchanges of that
        round (round T: the release at the end); see `Senders`. Without it, or where it returns None, everybody sends.

        It may have `solution(values)`, a function of public values alone: channel → what is published and scored in the
        place of what was sent.
    """

    @property
    def channels(self) -> tuple[str, ...]: ...

    @property
    def releases_per_round(self) -> int: ...

    @property
    def central(self) -> bool: ...

    def init(self, dataset: Any) -> Any:
        """Return the data-independent start."""
        ...

    def step(self, t: int, dataset: Any, s: Any) -> Generator[Exchange, Response, Any]:
        """Perform one round: yield its exchanges, return the next state."""
        ...


class Senders:
    """Who sends in which round: what a program's `senders` yields, asked for one round after the other.

    An agent that does not send in a round releases nothing: no noise, no line of the ledger, no price. Who sends is
    public, so it must follow from the network and from public coins alone.

    Args:
        program: has `senders(network)`, which yields for each round a mask (m,) of bool or the numbers of the agents.
        network: what is public of all agents, with its number `n_agents`.

    Raises:
        InputError: what is yielded is neither, or there are fewer rounds than are run.

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
        """Return (m,) who sends in round t; rounds in their order are found one by one.

        Raises InputError: the algorithm's `senders` ends, or gives what are no agents.
        """
        if self._rounds is None or t < self._next - 1:
            stated = getattr(self._program, "senders", None)
            rounds = None if stated is None else stated(self._network)
            everybody = np.ones(self._network.n_agents, dtype=bool)
            self._rounds, self._next = repeat(everybody) if rounds is None else iter(rounds), 0
        online = getattr(self._network, "online", None)
        while self._next <= t:
            try:
                self._last = self._mask(next(self._rounds))
            except StopIteration:
                raise InputError(
                    f"algorithm.kind: senders yields {self._next} rounds, and who sends in the next is asked. Let it "
                    "yield without end."
                ) from None
            mask = None if online is None else online(self._next)
            if mask is not None:
                self._last = self._last & mask
            self._next += 1
        return self._last

    def _mask(self, yielded: Any) -> NDArray[np.bool_]:
        chosen, m = np.asarray(yielded), self._network.n_agents
        if chosen.dtype == bool and chosen.shape == (m,):
            return chosen.copy()
        mask = np.zeros(m, dtype=bool)
        if chosen.size:
            whole = chosen.dtype.kind in "iu" and chosen.ndim == 1
            if not whole or chosen.min() < 0 or chosen.max() >= m:
                raise InputError(
                    f"algorithm.kind: senders yields {yielded!r} for round {self._next}, wanted a mask of {m} agents "
                    "or numbers of them. Mend it."
                )
            mask[chosen] = True
        return mask


def senders_of(program: Any, network: Any) -> Senders | None:
    """Return who sends in which round; None where everybody always does. Who is away does not.

    Args:
        program: of the agents.
        network: what is public of all agents.
    """
    stated, away = getattr(program, "senders", None), getattr(network, "online", None)
    silent = stated is not None and stated(network) is not None
    return Senders(program, network) if silent or (away is not None and away(0) is not None) else None


class Coordination(Protocol):
    """What a trusted coordinator runs, and all that an engine knows of it.

    Args:
        releases_per_round: E, how many `Release` one step makes. Release e of round t has the index t·E + e + 1.
    """

    @property
    def releases_per_round(self) -> int: ...

    def init(self, context: Any) -> Any:
        """Return the data-independent start.

        Args:
            context: what the coordinator knows beforehand, such as the problem, the public counts, the domain of x.
        """
        ...

    def step(self, t: int, context: Any, s: Any) -> Generator[Request, Response, Any]:
        """Perform one round: yield its exchanges, return the next state."""
        ...

    def published(self, s: Any) -> Mapping[str, Array]:
        """Return variable → (d,): what the public knows after this round, a function of what was released."""
        ...
