"""The host of a block of agents, which advances their program from exchange to exchange, on every engine."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Bounded
from decentral_dp.engines import protocol
from decentral_dp.engines.arithmetic import machine_digest
from decentral_dp.exchange import (
    Answer,
    Ask,
    Bundle,
    Exchange,
    FullReply,
    Gossip,
    NeighbourReleases,
    Reply,
    senders_of,
)
from decentral_dp.privacy.recorder import Recorder
from decentral_dp.topology.compression import Compression
from decentral_dp.topology.over_time import OverTime
from decentral_dp.user_code import (
    USER_ERRORS,
    UserCodeError,
    error_of_round,
    running_step,
    wrong_exchanges,
    wrong_yield,
)

# Numbers of messages from which on they are not laid side by side: new pages of the system each time take longer than
# to call once for each of them.
_MOST_STACKED = 2**18


class RecentValues:
    """The last K values, channel → (b, d), numbered from 0 in the order of their rounds.

    The mean at an evaluation adds up sums of √K consecutive values, each formed once: about 3 √K arrays in place of K.
    These sums begin at multiples of √K, so that a block that goes on from its state adds up in the same order.

    Args:
        length: K.

    Example:
        >>> recent = RecentValues(4)
        >>> for value in range(10):
        ...     recent.append({"y": np.full((1, 1), float(value))})
        >>> recent.mean(9)["y"], recent.values[0]["y"]
        (array([[7.5]]), array([[6.]]))
    """

    def __init__(self, length: int) -> None:
        self.values: deque[Mapping[str, Array]] = deque(maxlen=length)
        self._step = max(1, math.isqrt(length))
        # k → the sum of the values k √K, …, (k + 1) √K − 1.
        self._sums: dict[int, dict[str, Array]] = {}

    def append(self, value: Mapping[str, Array]) -> None:
        """Take the value of the next round; the oldest one goes."""
        self.values.append(value)

    def mean(self, newest: int) -> dict[str, Array]:
        """The mean of what is kept; the start, value 0, counts only where there is nothing else.

        Args:
            newest: number of the newest value.
        """
        values, step = list(self.values), self._step
        # Number of the oldest value kept, and of the first that counts.
        oldest = newest + 1 - len(values)
        first = min(max(1, oldest), newest)
        whole = range(-(-first // step), (newest + 1) // step)
        self._sums = {
            k: self._sums[k] if k in self._sums else _sums(values[k * step - oldest : (k + 1) * step - oldest])
            for k in whole
        }
        parts = values[first - oldest :]
        if whole:
            before, after = values[first - oldest : whole.start * step - oldest], values[whole.stop * step - oldest :]
            parts = [*before, *self._sums.values(), *after]
        return {channel: total / (newest + 1 - first) for channel, total in _sums(parts).items()}


def _sums(values: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    sums = {channel: np.array(value) for channel, value in values[0].items()}
    for other in values[1:]:
        for channel, total in sums.items():
            total += other[channel]
    return sums


class View(NamedTuple):
    """One block's share of a snapshot; channel → (b, ·).

    Args:
        released: the last released values.
        published: the mean of the last released values.
        state: the agents' own state, which nobody else sees; empty where they read records of their own.
        divergence: the first released value that was not finite, or too long; None where none is.
    """

    released: dict[str, Array]
    published: dict[str, Array]
    state: dict[str, Array]
    divergence: protocol.DivergedRelease | None


class Host:
    """One node that runs its program, exchange by exchange.

    Args:
        node: a block of agents with its program and data.
        rounds: T.
        saved: of `save`, to go on from there; by default it starts anew. Where the agents read records of their own, it
            goes on once `resume_after` says from which of its rounds.
        keeps_releases: whether released values are kept until `drain`; default False.
        states: name of the run, under which such agents keep their states; by default they keep none.

    Raises:
        ValueError: the program starts from data, but its start is published as it is.
    """

    def __init__(
        self,
        node: protocol.AgentNode,
        rounds: int,
        saved: Mapping[str, Any] | None = None,
        keeps_releases: bool = False,
        states: str | None = None,
    ) -> None:
        self._node = node
        # Asked for in every round.
        self._per_round, self._central = node.program.releases_per_round, node.program.central
        self._rounds = rounds
        self._round = 0
        self._index = 0
        hosted = protocol.Hosted(node.dataset) if node.read_dataset is None else node.read_dataset()
        self._dataset, self._score, states_of = hosted
        receipts = () if saved is None else saved.get("states", ())
        self._states = None if states is None or states_of is None else states_of(states, receipts)
        self._releaser = node.make_releaser()
        # A data set of a test may know no network.
        network = getattr(self._dataset, "network", None)
        # Rounds are asked for in their order, and late messages are of earlier ones.
        self._senders, self._arriving = senders_of(node.program, network), senders_of(node.program, network)
        # Of programs that publish another value than what they send.
        self._solution: Callable[[Mapping[str, Array]], Mapping[str, Array]] | None = getattr(
            node.program, "solution", None
        )
        # Of the round, of the block and of all, where they change.
        self._weights, self._of_all = node.mixing, None
        # Row of the block and number of the neighbour, for each weight.
        self._heard: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        delay = 0 if node.over_time is None else node.over_time.delay
        # What was heard of the exchanges of the last rounds, the oldest first, where messages are late.
        self._late: deque[Array] | None = deque(maxlen=delay * self._per_round + 1) if delay else None
        # Channel → the replica of it that neighbours have, where what is sent is compressed; now, and one release ago.
        self._replicas: dict[str, Array] = {}
        self._earlier: dict[str, Array] = {}
        # Channel → what each agent released last, where some do not always send.
        self._last: dict[str, Array] = {}
        # The start of some programs knows the weights of the first round.
        if node.over_time is not None:
            self._load_weights(0, node.over_time)
        self._state: Any = _project_state(node.domain, node.program.init(self._dataset))
        self._running: Generator[Exchange, Any, Any] | None = None
        self._open: Exchange | None = None
        self._own: Bundle | None = None
        parts: dict[str, Any] = {c: getattr(self._state, c, None) for c in node.program.channels}
        for channel, value in parts.items():
            if np.ndim(getattr(value, "value", value)) != 2:
                author = type(getattr(node.program, "program", node.program)).__name__
                raise UserCodeError(
                    f"round 1: init of {author} gives no rows of {channel}, which is among its channels. Fix: return a "
                    f"state with a field {channel} of one row for each agent."
                )
        starts = [v for v in parts.values() if isinstance(v, Bounded)]
        if any((s.sensitivity > 0.0).any() for v in starts for s in v.sensitivities.values()):
            raise ValueError("a program starts from data, but its start is published as it is")
        # Data-independent, hence public; what is not sent at once is published as it starts.
        self._latest = {c: v.value if isinstance(v, Bounded) else v for c, v in parts.items()}
        self._recent = RecentValues(node.average)
        # Squares of the lengths above which a released value has diverged; of what is not finite, none is.
        largest, scale = np.finfo(np.float64).max, protocol.MOST_OF_SCALE * node.public_scale
        self._limit = min(scale * scale, float(largest))
        with np.errstate(over="ignore"):
            self._limits = {
                c: np.minimum(np.square(scale + protocol.MOST_OF_SCALE * np.linalg.norm(v, axis=1)), largest)
                for c, v in self._latest.items()
            }
        self._divergence: protocol.DivergedRelease | None = None
        self._undrained: deque[protocol.ReleasedValues] | None = deque() if keeps_releases else None
        if saved is not None and node.read_dataset is None:
            self._restore(saved)

    # Overflow is a result (see `divergence`), not a warning.
    @np.errstate(all="ignore")
    def advance(self, *messages: Array) -> Array:
        """Take the neighbours' messages of the last exchange, and return this block's next one.

        Args:
            messages: one (b, D) array per neighbouring block, all channels of the exchange side by side; none at the
                first call.

        Returns:
            (b, D). After the last round, one more call of the same kind releases the final values.
        """
        try:
            values = self._next_round() if self._own is None else self._reply(messages)
            self._own, message = self._release(values)
        except USER_ERRORS as error:
            raise error_of_round(error, self._round + 1) from error
        # One sum of squares is quicker than a look at each agent, and as long as the longest of them at least.
        if self._divergence is None and not float(np.vdot(message, message)) <= self._limit:
            self._divergence = self._first_too_long(self._own)
        if self._undrained is not None:
            self._undrained.append(protocol.ReleasedValues(self._index, dict(self._own)))
        self._latest = self._latest | {c: v for c, v in self._own.items() if c in self._latest}
        if self._index % self._per_round == 0:
            self._recent.append(self._with_solution(self._latest))
        self._index += 1
        return message

    def _first_too_long(self, released: Bundle) -> protocol.DivergedRelease | None:
        """The first channel on which an agent released what is not finite, or too long for its public scale.

        Agent by agent, so that it does not depend on which agents share a block.
        """
        for channel, value in released.items():
            squares = np.square(value).sum(axis=1)
            if not (squares <= self._limits.get(channel, self._limit)).all():
                at = -(-self._index // self._per_round)
                return protocol.DivergedRelease(at, channel, bool(np.isfinite(value).all()))
        return None

    def _with_solution(self, values: dict[str, Array]) -> dict[str, Array]:
        return values if self._solution is None else {**values, **self._solution(values)}

    def _release(self, values: Mapping[str, Any]) -> tuple[Bundle, Array]:
        """What the agents have released with these values, and their message, zeros where an agent does not send."""
        if self._senders is None:
            own = _project(self._node.domain, self._releaser.release(self._index, values))
            compression = self._node.compression
            return own, own.concatenate() if compression is None else self._update_replicas(own, compression)
        sends = self._senders.mask_of_round(self._index // self._per_round)[self._node.agents]
        sent = _project(self._node.domain, self._releaser.release(self._index, values, sends))
        for channel, value in sent.items():
            before = self._last.get(channel, self._latest.get(channel, np.zeros_like(value)))
            self._last[channel] = np.where(sends[:, None], value, before)
        return Bundle({channel: self._last[channel] for channel in sent}), np.where(
            sends[:, None], sent.concatenate(), 0.0
        )

    def _replica(self, own: Bundle) -> Array:
        return np.concatenate([self._replicas[channel] for channel in own], axis=1)

    def _update_replicas(self, own: Bundle, compression: Compression) -> Array:
        """What neighbours make of a compressed message: the replicas of all its channels, (b, D)."""
        self._earlier = dict(self._replicas)
        for channel, value in own.items():
            replica = self._replicas.get(channel, self._latest.get(channel, np.zeros_like(value)))
            sent = compression(value - replica, channel, self._index, self._node.agents)
            self._replicas[channel] = replica + sent
        return self._replica(own)

    def _next_round(self) -> Mapping[str, Any]:
        """The values of the next exchange; after the last round, those of the final release."""
        if self._round == self._rounds:
            return {c: getattr(self._state, c) for c in self._node.program.channels}
        if self._node.over_time is not None:
            self._load_weights(self._round, self._node.over_time)
        program = self._node.program
        self._running = running_step(program, self._round, self._dataset, self._state)
        try:
            exchange = next(self._running)
        except StopIteration:
            wrong_exchanges(program, self._round + 1, "makes", "0 exchanges")
        return self._open_exchange(exchange)

    def _load_weights(self, t: int, over_time: OverTime) -> None:
        """Take the weights of a round; everybody knows them."""
        agents, columns = self._node.agents, self._node.columns
        self._dataset.kept_weight = over_time.kept_share(t)[agents][:, None]
        heard = over_time.received_weights(t)
        if heard is self._of_all:
            return
        self._of_all = heard
        rows = heard if agents.size == heard.shape[0] else heard[agents]
        in_order = columns is None or (columns.size == rows.shape[1] and bool((np.diff(columns) > 0).all()))
        # Terms of a row stay in the order of agents' numbers, whatever that of the columns.
        self._weights = rows if in_order else sp.csr_array(rows[:, columns])
        self._heard = None
        self._dataset.neighbour_weight = (self._weights @ np.ones(self._weights.shape[1]))[:, None]

    def _reply(self, messages: tuple[Array, ...]) -> Mapping[str, Any]:
        released, running = cast(Bundle, self._own), cast(Generator[Exchange, Any, Any], self._running)
        each = isinstance(self._open, Gossip) and self._open.each
        if len(messages) > 1 and (sum(m.size for m in messages) < _MOST_STACKED or each or self._late is not None):
            messages = (np.concatenate(messages),)
        if self._late is not None:
            self._late.append(messages[0])
            # Before anything has arrived, what was sent first: the same exchange of the first round.
            short = len(self._late) < (self._late.maxlen or 1)
            messages = (self._late[(len(self._late) - 1) % self._per_round if short else 0],)
        mixed = np.asarray(self._weights @ (messages[0] if len(messages) == 1 else np.concatenate(messages)))
        agents = self._node.agents.size
        if len(mixed) != agents:
            # A server answers every agent with the mean of all.
            mixed = np.broadcast_to(mixed, (agents, mixed.shape[1]))
        if self._node.compression is not None:
            weight, replica = self._dataset.neighbour_weight, self._replica(released)
            mixed = weight * released.concatenate() + self._node.compression.consensus * (mixed - weight * replica)
        neighbour_sum, start = {}, 0
        for channel, value in released.items():
            neighbour_sum[channel] = mixed[:, start : start + value.shape[1]]
            start += value.shape[1]
        try:
            if each:
                reply: Any = FullReply(released, Bundle(neighbour_sum), self._neighbours(messages[0], released))
            else:
                reply = (Answer if isinstance(self._open, Ask) else Reply)(released, Bundle(neighbour_sum))
            exchange = running.send(reply)
        except StopIteration as done:
            # Prices and noise go by the index.
            made = self._index - self._round * self._per_round
            if made != self._per_round:
                wrong_exchanges(self._node.program, self._round + 1, "makes", f"{made} exchange{'s' * (made != 1)}")
            self._state = _project_state(self._node.domain, done.value)
            self._round += 1
            return self._next_round()
        made = self._index - self._round * self._per_round
        if made == self._per_round:
            wrong_exchanges(self._node.program, self._round + 1, "makes", f"{made + 1} exchanges or more")
        return self._open_exchange(exchange)

    def _neighbours(self, stacked: Array, released: Bundle) -> NeighbourReleases:
        """What every neighbour sent, in the order of the sums."""
        weights = self._weights
        if self._heard is None:
            rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
            columns = self._node.columns
            # Weights that stay have a column for every agent of the blocks that are read.
            network = self._dataset.network
            near = network.neighbours_of(self._node.agents) if columns is None else columns[weights.indices]
            self._heard = rows, near
        rows, agents = self._heard
        ends = np.cumsum([v.shape[1] for v in released.values()])
        came = stacked[weights.indices]
        if self._node.compression is not None:
            correction = self._node.compression.consensus * (came - self._replica(released)[rows])
            came = released.concatenate()[rows] + correction
        parts = np.split(came, ends[:-1], axis=1)
        heard = NeighbourReleases(rows, agents, weights.data, Bundle(dict(zip(released, parts, strict=True))))
        if self._arriving is None:
            return heard
        delay = 0 if self._node.over_time is None else self._node.over_time.delay
        return heard.select(self._arriving.mask_of_round(max(0, self._round - delay))[agents])

    def _open_exchange(self, exchange: Exchange) -> Mapping[str, Any]:
        if not isinstance(exchange, Ask if self._central else Gossip):
            raise wrong_yield(self._node.program, self._round + 1, f"yields {type(exchange).__name__}")
        agents = self._node.agents.size
        for channel, value in exchange.values.items():
            rows = len(value.value if isinstance(value, Bounded) else value)
            if rows != agents:
                author = type(getattr(self._node.program, "program", self._node.program)).__name__
                raise UserCodeError(
                    f"round {self._round + 1}: step of {author} sends {channel} with {rows} rows (expected {agents}, "
                    "one for each agent of its block). Fix: keep axis 0 of values as it is."
                )
        self._open = exchange
        return exchange.values

    @property
    def transfer_weights(self) -> sp.csr_array | None:
        """(m, m) weights by which the last message is handed over, where they change by round; else None."""
        over_time = self._node.over_time
        return None if over_time is None else over_time.transfer_weights((self._index - 1) // self._per_round)

    def view(self) -> View:
        """Return what the simulator evaluates; it is no part of any message.

        The start (index 0) is never averaged in.
        """
        released = dict(self._recent.values[-1])
        with np.errstate(all="ignore"):
            published = self._recent.mean((self._index - 1) // self._per_round)
            own = () if self._node.read_dataset is not None else self._node.program.channels
            parts = {c: getattr(self._state, c) for c in own}
            state = {c: v.value if isinstance(v, Bounded) else v for c, v in parts.items()}
        return View(released, published, self._with_solution(state) if state else state, self._divergence)

    def score(self, values: Mapping[str, Array]) -> Any:
        """Return what the agents' own records make of values, channel → (m, d); None where agents send no scores."""
        return None if self._score is None else self._score(values)

    def drain(self, ending: bool) -> list[protocol.ReleasedValues]:
        """Return what is kept, and forget it.

        Args:
            ending: whether to return the first release of the next round, too, which is out already. A block that goes
                on from here makes it again.
        """
        end = self._index if ending else self._round * self._per_round
        undrained, out = self._undrained, []
        while undrained and undrained[0].release_index < end:
            out.append(undrained.popleft())
        return out

    def machine(self) -> str:
        """Return a digest of what the last bits of this block's values depend on."""
        return machine_digest(self._dataset)

    def recorder(self) -> Recorder:
        """Return the record of what this block has released."""
        return self._releaser.recorder

    def save(self) -> dict[str, Any]:
        """Return the block as it was when its last round ended.

        The first release of the next round is out already. Its noise is keyed: a host that goes on from here makes the
        same release again, to the bit, and writes its ledger line once.

        Raises:
            TypeError: the state cannot be kept.
        """
        if self._node.read_dataset is not None and self._states is None:
            raise TypeError("the state of agents whose records are their own stays with them")
        first = self._round * self._per_round
        state = {
            "round": self._round,
            "agents": self._node.agents,
            "state": self._state,
            "latest": dict(self._latest),
            "recent": list(self._recent.values)[:-1],
            "divergence": self._divergence,
            "recorded": self._releaser.recorder.lines(before=first),
        }
        if self._senders is not None:
            state["last"] = dict(self._last)
        if self._node.compression is not None:
            # What the first release of the next round moves is moved again with it.
            state["replicas"] = dict(self._earlier)
        if self._late is not None:
            state["late"] = list(self._late)
        return state if self._states is None else {"states": self._states.write(self._round, state)}

    def saved_rounds(self) -> list[int]:
        """Rounds from which this block can go on, because their states lie where its records are."""
        return [] if self._states is None else self._states.saved_rounds()

    def resume_after(self, t: int) -> None:
        """Go on after a round of `saved_rounds`; from the start where it is 0. States of later rounds are void."""
        if self._states is None:
            return
        if t:
            self._restore(self._states.state_after(t))
        self._states.forget(later_than=t)

    def forget(self) -> None:
        """Remove what lies where the records are: the run is done."""
        if self._states is not None:
            self._states.forget()

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self._round = saved["round"]
        self._index = self._round * self._per_round
        self._state = saved["state"]
        self._latest = dict(saved["latest"])
        self._recent.values.extend(saved["recent"])
        self._divergence = saved["divergence"]
        self._last = dict(saved.get("last", {}))
        self._replicas = dict(saved.get("replicas", {}))
        if self._late is not None:
            self._late.extend(saved["late"])
        self._releaser.recorder.load(saved["recorded"], [self._releaser.mechanism])


def _project(domain: protocol.Domain, released: Bundle) -> Bundle:
    """What was released, brought into its domain: a function of public values, which costs nothing."""
    if not domain or domain.keys().isdisjoint(released):
        return released
    return Bundle({c: _clip(v, domain.get(c)) for c, v in released.items()})


def _project_state(domain: protocol.Domain, state: Any) -> Any:
    """A state whose public parts are in their domain. What reads records is brought there once it is released."""
    if not domain:
        return state
    found = {c: (getattr(state, c, None), limits) for c, limits in domain.items()}
    parts = {c: _clip(v, limits) for c, (v, limits) in found.items() if isinstance(v, np.ndarray)}
    if not parts:
        return state
    return state._replace(**parts) if hasattr(state, "_replace") else replace(state, **parts)


def _clip(value: Array, limits: tuple[float, float] | None) -> Array:
    return value if limits is None else np.clip(value, *limits)
