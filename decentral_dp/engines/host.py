"""Host of a block of agents, which advances their program from exchange to exchange on any engine."""

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
    Senders,
    senders_of,
)
from decentral_dp.privacy.recorder import Recorder
from decentral_dp.topology.compression import Compression
from decentral_dp.topology.over_time import OverTime
from decentral_dp.user_code import (
    USER_ERRORS,
    UserCodeError,
    author_of,
    raise_in_round,
    running_step,
    wrong_exchanges,
    wrong_yield,
)

# From this number of floats on, messages are not joined: new pages of the system each time take longer than one call
# per message.
_MOST_STACKED = 2**18
# Agents of a complete graph with equal weights from which one sum of all messages replaces the sums of all agents.
LEAST_SUMMED = 256


class RecentValues:
    """Last K values, channel → (b, d), numbered from 0 in the order of their rounds.

    The mean adds sums of √K consecutive values, each computed once, so about 3 √K arrays are stored instead of K. These
    sums begin at multiples of √K, so a block that resumes adds in the same order.

    Args:
        length: number K of values.

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
        """Append the value of the next round and drop the oldest value."""
        self.values.append(value)

    def mean(self, newest: int) -> dict[str, Array]:
        """Compute the mean of the values, without the start (value 0) unless it is the only value.

        Args:
            newest: index of the newest value.
        """
        values, step = list(self.values), self._step
        # Number of the oldest value, and of the first value of the mean.
        oldest = newest + 1 - len(values)
        first = min(max(1, oldest), newest)
        blocks = range(-(-first // step), (newest + 1) // step)
        self._sums = {
            k: self._sums[k] if k in self._sums else _sums(values[k * step - oldest : (k + 1) * step - oldest])
            for k in blocks
        }
        parts = values[first - oldest :]
        if blocks:
            before, after = values[first - oldest : blocks.start * step - oldest], values[blocks.stop * step - oldest :]
            parts = [*before, *self._sums.values(), *after]
        return {channel: total / (newest + 1 - first) for channel, total in _sums(parts).items()}


def _sums(values: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    sums = {channel: np.array(value) for channel, value in values[0].items()}
    for value in values[1:]:
        for channel, total in sums.items():
            total += value[channel]
    return sums


class View(NamedTuple):
    """Part of a snapshot that belongs to one block, as maps channel → (b, ·).

    Args:
        released: last released values.
        published: mean of the last released values.
        state: private states; empty if agents hold their records.
        divergence: first released value that is not finite or is too long; None if there is none.
    """

    released: dict[str, Array]
    published: dict[str, Array]
    state: dict[str, Array]
    divergence: protocol.DivergedRelease | None


class Host:
    """Host of one block, which runs its program exchange by exchange.

    Args:
        node: block of agents.
        rounds: number of rounds T.
        saved: state of `save` to resume from; None (the default) starts a new run. If agents hold their records,
            `resume_after` sets the round.
        keeps_releases: whether released values are kept until `drain`, default False.
        states: name of the run, under which agents that hold their records keep their states, default None.

    Raises:
        ValueError: the start of the program depends on records, but is published without noise.
    """

    def __init__(
        self,
        node: protocol.AgentNode,
        rounds: int,
        saved_state: Mapping[str, Any] | None = None,
        keeps_releases: bool = False,
        states: str | None = None,
    ) -> None:
        self._node = node
        # Read in every round.
        self._per_round, self._has_server = node.program.releases_per_round, node.program.has_server
        self._rounds = rounds
        self._round = 0
        self._index = 0
        hosted_records = protocol.Hosted(node.dataset) if node.read_dataset is None else node.read_dataset()
        self._dataset, self._score, states_of = hosted_records
        receipts = () if saved_state is None else saved_state.get("states", ())
        self._states = None if states is None or states_of is None else states_of(states, receipts)
        self._releaser = node.make_releaser()
        # Data sets in tests may have no network.
        network = getattr(self._dataset, "network", None)
        # Rounds are drawn in order, and late messages are of earlier rounds.
        self._senders, self._arriving = senders_of(node.program, network), senders_of(node.program, network)
        chosen = getattr(node.program, "senders", None)
        self._has_silent = chosen is not None and chosen(network) is not None
        # Some programs publish another value than their messages.
        self._solution: Callable[[Mapping[str, Array]], Mapping[str, Array]] | None = getattr(
            node.program, "solution", None
        )
        # Without it, every round sends messages.
        self._sends: Callable[[int], bool] | None = getattr(node.program, "sends", None)
        # Weights of the block, and of all agents if they change by round.
        self._weights, self._all_weights = node.mixing, None
        self._equal_weight = _equal_weight(node, network) if self._senders is None else None
        # Row of the block and number of the neighbour, for each weight.
        self._neighbour_rows: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        delay = 0 if node.over_time is None else node.over_time.delay
        # Messages of the last rounds, oldest first, if messages are late.
        self._late: deque[Array] | None = deque(maxlen=delay * self._per_round + 1) if delay else None
        # Channel → the neighbours' replica, if messages are compressed; now, and one release ago.
        self._replicas: dict[str, Array] = {}
        self._earlier: dict[str, Array] = {}
        # Channel → the last release of each agent, if agents do not send in every round.
        self._last: dict[str, Array] = {}
        # The start of some programs depends on the weights of the first round.
        if node.over_time is not None:
            self._load_weights(0, node.over_time)
        self._state: Any = _project_state(node.domain, node.program.init(self._dataset))
        self._running: Generator[Exchange, Any, Any] | None = None
        self._open: Exchange | None = None
        self._own: Bundle | None = None
        parts: dict[str, Any] = {c: getattr(self._state, c, None) for c in node.program.channels}
        for channel, value in parts.items():
            if np.ndim(getattr(value, "value", value)) != 2:
                raise UserCodeError(
                    f"round 1: init of {author_of(node.program)} returns no rows of its channel {channel}. "
                    f"Fix: return a state with a field {channel} that has one row for each agent."
                )
        starts = [v for v in parts.values() if isinstance(v, Bounded)]
        if any((s.sensitivity > 0.0).any() for v in starts for s in v.sensitivities.values()):
            raise ValueError("init of the program reads records, but its result is published without noise")
        # Data-independent, hence public. Values that are not sent yet are published as they start.
        self._latest = {c: v.value if isinstance(v, Bounded) else v for c, v in parts.items()}
        self._recent = RecentValues(node.average)
        # Squared lengths above which a released value has diverged.
        largest, scale = np.finfo(np.float64).max, protocol.MOST_OF_SCALE * np.asarray(node.public_scale)
        with np.errstate(over="ignore"):
            self._limit = np.minimum(scale * scale, largest)
            self._least_limit = float(self._limit.min())
            self._limits = {
                c: np.minimum(np.square(scale + protocol.MOST_OF_SCALE * np.linalg.norm(v, axis=1)), largest)
                for c, v in self._latest.items()
            }
        self._divergence: protocol.DivergedRelease | None = None
        self._undrained: deque[protocol.ReleasedValues] | None = deque() if keeps_releases else None
        if saved_state is not None and node.read_dataset is None:
            self._restore(saved_state)

    # Overflow is divergence, not a warning.
    @np.errstate(all="ignore")
    def advance(self, *messages: Array) -> Array:
        """Receive the neighbours' messages of the last exchange, and return the next message of the block.

        Args:
            messages: message of each neighbouring block, (b, D), with the channels of the exchange concatenated; none
                at the first call.

        Returns:
            The message, (b, D). After the last round, one more call releases the final values.
        """
        try:
            values = self._next_round() if self._own is None else self._reply(messages)
            self._own, message = self._release(values)
        except USER_ERRORS as error:
            raise_in_round(error, self._round + 1)
        # The sum of squares of the block bounds that of each agent, and is faster.
        if self._divergence is None and not float(np.vdot(message, message)) <= self._least_limit:
            self._divergence = self._first_too_long(self._own)
        if self._undrained is not None:
            self._undrained.append(protocol.ReleasedValues(self._index, dict(self._own)))
        self._latest = self._latest | {c: v for c, v in self._own.items() if c in self._latest}
        if self._index % self._per_round == 0:
            self._recent.append(self._with_solution(self._latest))
        self._index += 1
        return message

    def _first_too_long(self, released: Bundle) -> protocol.DivergedRelease | None:
        """Return the first channel with a value that is not finite or is too large for its public scale.

        Each agent's length is tested separately, so the result does not depend on the blocks.
        """
        for channel, value in released.items():
            squares = np.square(value).sum(axis=1)
            if not (squares <= self._limits.get(channel, self._limit)).all():
                t = -(-self._index // self._per_round)
                return protocol.DivergedRelease(t, channel, bool(np.isfinite(value).all()))
        return None

    def _with_solution(self, values: dict[str, Array]) -> dict[str, Array]:
        return values if self._solution is None else {**values, **self._solution(values)}

    def _release(self, values: Mapping[str, Any]) -> tuple[Bundle, Array]:
        """Release values, and return the last releases and the message, with zeros for agents that do not send."""
        if self._senders is None:
            released = _project(self._node.domain, self._releaser.release(self._index, values))
            compression = self._node.compression
            message = released.concatenate() if compression is None else self._update_replicas(released, compression)
            return released, message
        sends = self._senders.mask_of_round(self._index // self._per_round)[self._node.agents]
        released = _project(self._node.domain, self._releaser.release(self._index, values, sends))
        for channel, value in released.items():
            before = self._last.get(channel, self._latest.get(channel, np.zeros_like(value)))
            self._last[channel] = np.where(sends[:, None], value, before)
        return Bundle({channel: self._last[channel] for channel in released}), np.where(
            sends[:, None], released.concatenate(), 0.0
        )

    def _replica(self, released: Bundle) -> Array:
        return np.concatenate([self._replicas[channel] for channel in released], axis=1)

    def _update_replicas(self, released: Bundle, compression: Compression) -> Array:
        """Update the replicas of all channels by a compressed message, and return them, (b, D)."""
        self._earlier = dict(self._replicas)
        for channel, value in released.items():
            replica = self._replicas.get(channel, self._latest.get(channel, np.zeros_like(value)))
            change = compression(value - replica, channel, self._index, self._node.agents)
            self._replicas[channel] = replica + change
        return self._replica(released)

    def _next_round(self) -> Mapping[str, Any]:
        """Return the values of the next exchange, or of the final release after the last round."""
        if self._round == self._rounds:
            return {c: getattr(self._state, c) for c in self._node.program.channels}
        if self._node.over_time is not None:
            self._load_weights(self._round, self._node.over_time)
        if self._has_silent:
            # A silent neighbour has no term in the sums, so its weight is ignored.
            rows, near = self._neighbour_index()
            weights = np.where(self._arriving_mask()[near], self._weights.data, 0.0)
            self._dataset.neighbour_weight = np.bincount(rows, weights, minlength=self._node.agents.size)[:, None]
        program = self._node.program
        self._running = running_step(program, self._round, self._dataset, self._state)
        try:
            exchange = next(self._running)
        except StopIteration:
            wrong_exchanges(program, self._round + 1, "makes", "0 exchanges")
        return self._open_exchange(exchange)

    def _load_weights(self, t: int, over_time: OverTime) -> None:
        """Load the public weights of a round."""
        agents, columns = self._node.agents, self._node.columns
        self._dataset.kept_weight = over_time.kept_share(t)[agents][:, None]
        weights = over_time.received_weights(t)
        if weights is self._all_weights:
            return
        self._all_weights = weights
        rows = weights if agents.size == weights.shape[0] else weights[agents]
        in_order = columns is None or (columns.size == rows.shape[1] and bool((np.diff(columns) > 0).all()))
        # Terms of a row are in the order of agents' numbers, not of the columns.
        self._weights = rows if in_order else sp.csr_array(rows[:, columns])
        self._neighbour_rows = None
        self._dataset.neighbour_weight = (self._weights @ np.ones(self._weights.shape[1]))[:, None]

    def _reply(self, messages: tuple[Array, ...]) -> Mapping[str, Any]:
        released, running = cast(Bundle, self._own), cast(Generator[Exchange, Any, Any], self._running)
        lists_neighbours = isinstance(self._open, Gossip) and self._open.each
        if len(messages) > 1 and (
            sum(m.size for m in messages) < _MOST_STACKED or lists_neighbours or self._late is not None
        ):
            messages = (np.concatenate(messages),)
        if self._late is not None:
            self._late.append(messages[0])
            # Before a message has arrived, the same exchange of the first round.
            short = len(self._late) < (self._late.maxlen or 1)
            messages = (self._late[(len(self._late) - 1) % self._per_round if short else 0],)
        if self._node.attack is not None:
            messages = (self._node.attack(messages[0], self._index),)
        weighted_values = self._mix(released, messages[0] if len(messages) == 1 else np.concatenate(messages))
        agents = self._node.agents.size
        if len(weighted_values) != agents:
            # A server sends the mean of all answers to every agent.
            weighted_values = np.broadcast_to(weighted_values, (agents, weighted_values.shape[1]))
        if self._node.compression is not None:
            weight, replica = self._dataset.neighbour_weight, self._replica(released)
            weighted_values = weight * released.concatenate() + self._node.compression.consensus * (
                weighted_values - weight * replica
            )
        neighbour_sum, start = {}, 0
        for channel, value in released.items():
            neighbour_sum[channel] = weighted_values[:, start : start + value.shape[1]]
            start += value.shape[1]
        try:
            if lists_neighbours:
                reply: Any = FullReply(released, Bundle(neighbour_sum), self._neighbours(messages[0], released))
            else:
                reply = (Answer if isinstance(self._open, Ask) else Reply)(released, Bundle(neighbour_sum))
            exchange = running.send(reply)
        except StopIteration as done:
            # Noise and ledger entries depend on the index.
            count = self._index - self._round * self._per_round
            if count != self._per_round:
                wrong_exchanges(self._node.program, self._round + 1, "makes", f"{count} exchange{'s' * (count != 1)}")
            self._state = _project_state(self._node.domain, done.value)
            self._round += 1
            return self._next_round()
        count = self._index - self._round * self._per_round
        if count == self._per_round:
            wrong_exchanges(self._node.program, self._round + 1, "makes", f"{count + 1} exchanges or more")
        return self._open_exchange(exchange)

    @property
    def _is_local(self) -> bool:
        """Whether this round sends no messages."""
        return self._sends is not None and not self._sends(self._round)

    def _mix(self, released: Bundle, messages: Array) -> Array:
        """Return Σ_j w_ij u_j, (b, D), of the messages u (n, D) of the blocks that are read."""
        if self._is_local:
            return np.zeros((self._node.agents.size, messages.shape[1]))
        own, weights = released.concatenate(), self._weights
        if self._equal_weight is not None:
            # All messages in the order of agents, so that the sum does not depend on the blocks.
            agents, columns = self._node.agents, weights.indices[: weights.indptr[1]]
            everything = np.empty((columns.size + 1, own.shape[1]))
            everything[np.delete(np.arange(len(everything)), agents[0])] = messages[columns]
            everything[agents] = own
            return np.asarray(self._equal_weight * (everything.sum(axis=0) - own))
        if self._node.aggregation is None:
            return np.asarray(weights @ messages)
        if self._arriving is not None:
            rows, near = self._neighbour_index()
            arrives = self._arriving_mask()[near]
            weights = sp.csr_array((weights.data[arrives], (rows[arrives], near[arrives])), shape=weights.shape)
        # Programs add the own value times its weight.
        mixed = self._node.aggregation(own, messages, weights)
        return np.asarray(mixed - (1.0 - self._dataset.neighbour_weight) * own)

    def _neighbours(self, stacked_values: Array, released: Bundle) -> NeighbourReleases:
        """Return the releases of every neighbour, in the order of the sums."""
        weights = self._weights
        rows, agents = self._neighbour_index()
        ends = np.cumsum([v.shape[1] for v in released.values()])
        messages = stacked_values[weights.indices]
        if self._node.compression is not None:
            correction = self._node.compression.consensus * (messages - self._replica(released)[rows])
            messages = released.concatenate()[rows] + correction
        parts = np.split(messages, ends[:-1], axis=1)
        releases = NeighbourReleases(rows, agents, weights.data, Bundle(dict(zip(released, parts, strict=True))))
        if self._is_local:
            return releases.select(slice(0))
        return releases if self._arriving is None else releases.select(self._arriving_mask()[agents])

    def _neighbour_index(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return, for each weight, its row of the block and the number of the neighbour."""
        if self._neighbour_rows is None:
            weights, columns = self._weights, self._node.columns
            rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
            # Constant weights have a column for every agent of the blocks that are read.
            network = self._dataset.network
            near = network.neighbours_of(self._node.agents) if columns is None else columns[weights.indices]
            self._neighbour_rows = rows, near
        return self._neighbour_rows

    def _arriving_mask(self) -> NDArray[np.bool_]:
        """Return the mask (m,) of the agents whose messages arrive in this round."""
        delay = 0 if self._node.over_time is None else self._node.over_time.delay
        return cast(Senders, self._arriving).mask_of_round(max(0, self._round - delay))

    def _open_exchange(self, exchange: Exchange) -> Mapping[str, Any]:
        if not isinstance(exchange, Ask if self._has_server else Gossip):
            raise wrong_yield(self._node.program, self._round + 1, f"yields {type(exchange).__name__}")
        agents = self._node.agents.size
        for channel, value in exchange.values.items():
            shape = np.shape(value.value if isinstance(value, Bounded) else value)
            if shape[:1] != (agents,):
                raise UserCodeError(
                    f"round {self._round + 1}: step of {author_of(self._node.program)} sends {channel} of shape "
                    f"{shape} (expected {agents} rows, one for each agent of its block). Fix: keep axis 0 of values."
                )
        self._open = exchange
        return exchange.values

    @property
    def transfer_weights(self) -> sp.csr_array | None:
        """Weights (m, m) of the last message if they change by round; None otherwise."""
        over_time = self._node.over_time
        return None if over_time is None else over_time.transfer_weights((self._index - 1) // self._per_round)

    def view(self) -> View:
        """Return the values for evaluation, which are not part of a message.

        The mean does not include the start (index 0).
        """
        released = dict(self._recent.values[-1])
        with np.errstate(all="ignore"):
            published = self._recent.mean((self._index - 1) // self._per_round)
            channels = () if self._node.read_dataset is not None else self._node.program.channels
            parts = {c: getattr(self._state, c) for c in channels}
            state = {c: v.value if isinstance(v, Bounded) else v for c, v in parts.items()}
        return View(released, published, self._with_solution(state) if state else state, self._divergence)

    def score(self, values: Mapping[str, Array]) -> Any:
        """Score values of all agents, channel → (m, d), on the block's records; None if agents send no scores."""
        return None if self._score is None else self._score(values)

    def drain(self, ending: bool) -> list[protocol.ReleasedValues]:
        """Return the released values since the last call.

        Args:
            ending: whether to include the first release of the next round, which was already sent. A block that resumes
                from here repeats it.
        """
        end = self._index if ending else self._round * self._per_round
        pending, out = self._undrained, []
        while pending and pending[0].release_index < end:
            out.append(pending.popleft())
        return out

    def machine(self) -> str:
        """Return a digest of the libraries and the processor of this block."""
        return machine_digest(self._dataset)

    def recorder(self) -> Recorder:
        """Return the recorder of this block's releases."""
        return self._releaser.recorder

    def save(self) -> dict[str, Any]:
        """Return the state at the end of the last round.

        The first release of the next round was already sent. Its noise is keyed, so a host that resumes from this state
        repeats the release bitwise and writes its ledger entry once.

        Raises:
            TypeError: the state cannot be saved.
        """
        if self._node.read_dataset is not None and self._states is None:
            raise TypeError("agents that hold their records keep their states")
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
            # The first release of the next round updates the replicas, and is repeated.
            state["replicas"] = dict(self._earlier)
        if self._late is not None:
            state["late"] = list(self._late)
        return state if self._states is None else {"states": self._states.write(self._round, state)}

    def saved_rounds(self) -> list[int]:
        """List the rounds whose states are next to the block's records."""
        return [] if self._states is None else self._states.saved_rounds()

    def resume_after(self, t: int) -> None:
        """Resume after a round of `saved_rounds`, or from the start if it is 0, and remove states of later rounds."""
        if self._states is None:
            return
        if t:
            self._restore(self._states.state_after(t))
        self._states.forget(later_than=t)

    def forget(self) -> None:
        """Remove the states next to the block's records, at the end of a run."""
        if self._states is not None:
            self._states.forget()

    def _restore(self, saved_state: Mapping[str, Any]) -> None:
        self._round = saved_state["round"]
        self._index = self._round * self._per_round
        self._state = saved_state["state"]
        self._latest = dict(saved_state["latest"])
        self._recent.values.extend(saved_state["recent"])
        self._divergence = saved_state["divergence"]
        self._last = dict(saved_state.get("last", {}))
        self._replicas = dict(saved_state.get("replicas", {}))
        if self._late is not None:
            self._late.extend(saved_state["late"])
        self._releaser.recorder.load(saved_state["recorded"], [self._releaser.mechanism])


def _equal_weight(node: protocol.AgentNode, network: Any) -> float | None:
    """Return the weight of all messages of a large complete graph; None for other graphs or if messages change."""
    m, weights = 0 if network is None else int(network.n_agents), node.mixing
    changes = (node.over_time, node.compression, node.attack, node.aggregation)
    if m < LEAST_SUMMED or node.program.has_server or any(part is not None for part in changes):
        return None
    is_equal = (np.diff(weights.indptr) == m - 1).all() and (weights.data == weights.data[0]).all()
    return float(weights.data[0]) if is_equal else None


def _project(domain: protocol.Domain, released: Bundle) -> Bundle:
    """Project released values onto their domain, which is post-processing and has no privacy cost."""
    if not domain or domain.keys().isdisjoint(released):
        return released
    return Bundle({c: _clip(v, domain.get(c)) for c, v in released.items()})


def _project_state(domain: protocol.Domain, state: Any) -> Any:
    """Project the public parts of a state onto their domain. Private parts are projected after their release."""
    if not domain:
        return state
    fields = {c: (getattr(state, c, None), limits) for c, limits in domain.items()}
    parts = {c: _clip(v, limits) for c, (v, limits) in fields.items() if isinstance(v, np.ndarray)}
    if not parts:
        return state
    return state._replace(**parts) if hasattr(state, "_replace") else replace(state, **parts)


def _clip(value: Array, limits: tuple[float, float] | None) -> Array:
    return value if limits is None else np.clip(value, *limits)
