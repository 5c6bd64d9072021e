"""The Ray engine, its cluster and its actors: every block of agents is an actor with its records and noise streams.

Messages go from actor to actor by reference: the driver moves object references, never values, and waits only where
something is evaluated (and, so that the queue stays short, for the round before last). Of a block of agents, others get
the messages of those that some other block hears; where a network changes, of those heard in the round, and only blocks
that hear any. Late messages of a changing network are sent whole.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from decentral_dp.bounded import Array
from decentral_dp.engines.arithmetic import machine_of_clients
from decentral_dp.engines.host import Host
from decentral_dp.engines.local import coordinate, drain_blocks, snapshot
from decentral_dp.engines.protocol import (
    UNATTENDED,
    AgentNode,
    BlockLostError,
    Boundary,
    CoordinatorNode,
    Outcome,
    Recovery,
    ReleasedValues,
    RunControl,
    SavedState,
    Snapshot,
    boundaries,
    last_common,
)
from decentral_dp.errors import InputError
from decentral_dp.privacy.recorder import assemble

# Of a resource that says where agents are, as little as Ray counts: it is no capacity.
_TRACE = 1e-4
# The user number of root.
_ROOT = 0


def user_address() -> str | None:
    """Return the address of the Ray cluster that the user's environment names (RAY_ADDRESS); None to start a Ray.

    No file names one: whoever is joined gets the token that is kept here, records and keys of noise.

    Example:
        >>> import os
        >>> os.environ["RAY_ADDRESS"] = "10.0.0.1:6379"
        >>> user_address()
        '10.0.0.1:6379'
        >>> del os.environ["RAY_ADDRESS"]
        >>> user_address() is None
        True
    """
    address = os.environ.get("RAY_ADDRESS")
    # As Ray itself reads it.
    return None if address in (None, "", "local") else address


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Join the Ray at an address, or start one for the length of the block.

    Args:
        address: "auto" or "host:port", which the user has named, and which gets the token that is kept here; None
            starts a Ray.

    Raises:
        InputError: no Ray is reachable there, or none starts.

    Limits:
        An already connected driver is used as it is, and left so.
    """
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # "local": never the cluster of somebody else that happens to run on this machine.
        options |= {"address": "local", "include_dashboard": False}
        _ask_for_token()
    else:
        options["address"] = _check_reachable(address)
        _offer_token()
    try:
        with _kept_handlers():
            ray.init(**options)
    except Exception as error:  # Ray says so of a node that does not start in time.
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        told = (
            f"run.engine: no Ray starts on this machine ({reason.rstrip('.')}). Fix: try again while it is less busy, "
            "join a Ray that runs with RAY_ADDRESS, or use --engine local, which releases the same values."
            if address is None
            else f"RAY_ADDRESS or --address: something answers at {address!r}, and does not let this process in "
            f"({reason.partition('. ')[0].rstrip('.')}). Fix: set RAY_AUTH_TOKEN to the token in "
            "~/.ray/auth_token of the cluster's head, and use the same versions of Ray and Python."
        )
        raise InputError(told) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _kept_handlers() -> Iterator[None]:
    """Have SIGINT and SIGTERM do after the block what they did before: Ray installs its own, which end the process."""
    if threading.current_thread() is not threading.main_thread():
        # Neither Ray nor this function can set one here.
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)


def cluster_cores(address: str | None) -> int:
    """As in `decentral_dp.engines.ray_cores`."""
    if address is None and not ray.is_initialized():
        return os.cpu_count() or 1
    with cluster(address):
        return max(1, int(ray.cluster_resources().get("CPU", 1.0)))  # type: ignore[no-untyped-call] # ray has no types for it


def _ask_for_token() -> None:
    """Have the Ray that is started here ask whoever comes for a token, as it listens on all interfaces.

    Ray makes one where there is none, in ~/.ray/auth_token. Whoever has set RAY_AUTH_MODE has decided otherwise.

    Raises:
        InputError: this version of Ray knows no tokens.
    """
    if "RAY_AUTH_MODE" in os.environ:
        return
    try:
        importlib.import_module("ray._private.authentication.authentication_token_setup")
        config = importlib.import_module("ray._raylet").Config
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"run.engine: ray {ray.__version__} would let anybody who reaches this machine run code on it. Install "
            'ray 2.52 or later, which asks for a token, with pip install "ray>=2.52".'
        ) from error
    made = Path.home() / ".ray" / "auth_token"
    os.environ["RAY_AUTH_MODE"] = "token"
    config.initialize("")
    if not made.exists():
        # Ray would leave it to the umask who may read it. What cannot be written Ray itself will say.
        with suppress(OSError):
            made.parent.mkdir(mode=0o700, exist_ok=True)
            made.touch(mode=0o600)


def _offer_token() -> None:
    """Have this process show the token that is kept here, if there is one and nothing else was set.

    Where one is kept, in RAY_AUTH_TOKEN or ~/.ray/auth_token, `ray start --head` asks for it. Ray itself shows it to
    heads that it finds on this machine, and to no "host:port". A head that asks for none does not mind.
    """
    place = "ray._private.authentication.authentication_token_setup"
    try:
        setup = importlib.import_module(place)
        offer = setup.maybe_enable_token_auth_if_token_available
    except (ImportError, AttributeError):
        # A Ray whose heads ask for no token.
        return
    # Its warning speaks of a cluster that would be started here.
    logging.getLogger(place).setLevel(logging.ERROR)
    offer(warn_if_disabled=False)


def _check_reachable(address: str) -> str:
    """Return the address of a head whose port takes connections; ray.init would wait for an absent one for minutes.

    The address of "auto" is in the note that "ray start" leaves. Ray itself would also read the command lines of all
    processes. Other users can write either, and so name a host that receives the token.
    """
    where = (user_address() or "auto") if address == "auto" else address
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"
    problem = ""
    if where == "auto" and not note.is_file():
        problem = f"there is no {note}; give host:port"
    elif where == "auto" and note.stat().st_uid not in (os.geteuid(), _ROOT):
        problem = f"{note} is another user's; give host:port"
    elif where == "auto":
        where = note.read_text().strip()
    host, _, port = where.removeprefix("ray://").rpartition(":")
    if not problem and not (host and port.isdigit()):
        problem = 'expected "auto" or "host:port"'
    if not problem:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except (OSError, OverflowError) as error:
            problem = str(error)
    if problem:
        raise InputError(
            f"RAY_ADDRESS or --address: no Ray cluster answers at {address!r} ({problem}). "
            'Fix: start one with "ray start --head", or leave the address out.'
        )
    return where


def resources_of(place: str | None, agents: NDArray[Any]) -> dict[str, float]:
    """The resources that the machine of some agents must have.

    Args:
        place: a name, in which {agent} stands for the agent's number; None for any machine.
        agents: (b,) their numbers.

    Example:
        >>> import numpy as np
        >>> sorted(resources_of("site-{agent}", np.arange(2))), resources_of(None, np.arange(2))
        (['site-0', 'site-1'], {})
    """
    if place is None:
        return {}
    return {place.replace("{agent}", str(int(agent))): _TRACE for agent in agents}


def start_actors(kind: type[Any], places: Sequence[Mapping[str, float]]) -> list[Any]:
    """Start one actor for each, on a machine that has what it wants.

    Args:
        kind: of actor, made without arguments: Ray's head would keep them in memory.
        places: resources that each wants.

    Raises:
        InputError: no machine has them.
    """
    nodes = [n["Resources"] for n in ray.nodes() if n["Alive"]]  # type: ignore[no-untyped-call] # ray has no types for it
    for place in places:
        if not any(all(node.get(name, 0.0) >= least for name, least in place.items()) for node in nodes):
            names = ", ".join(f'"{name}"' for name in place)
            raise InputError(
                f"run.place: no machine of the cluster has {names}. Start one with ray start --resources, such as "
                f"'{{\"{next(iter(place))}\": 1}}', have one actor hold agents of one machine, or leave it out."
            )
    # As by default in Ray, an actor reserves no core. The head would keep kilobytes of each of the last 100 000 calls.
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "enable_task_events": False}
    remote = ray.remote(**options)(kind)
    spread = remote.options(scheduling_strategy="SPREAD")
    return [remote.options(resources=dict(place)).remote() if place else spread.remote() for place in places]


# Rounds whose messages may be under way before the driver waits for the oldest.
_AHEAD = 32


class Actor:
    """A `Host` in a process of its own, which keeps its own message and sends others what they read.

    `begin` comes first. Ray's head keeps the arguments with which an actor is made in its memory, after the run, too:
    keys of noise and records are none of them. Those of a call go from process to process.
    """

    def __init__(self) -> None:
        # As in the local engine: one agent's products are too small to share among threads.
        threadpool_limits(limits=1)
        self._failed: Exception | None = None
        self._message: Array | None = None

    def begin(
        self,
        node: AgentNode,
        boundary: Boundary,
        rounds: int,
        saved: Mapping[str, Any] | None,
        keeps_releases: bool,
        states: str | None,
    ) -> None:
        self._boundary = boundary
        self._host = Host(node.with_boundary(boundary), rounds, saved, keeps_releases, states)

    def advance(self, *messages: Any) -> Any:
        own, host = self._boundary.own_place, self._sound()
        try:
            if self._message is not None:
                if (heard := host.transfer_weights) is not None:
                    messages = tuple(self._boundary.fill(messages, heard, self._message.shape[1]))
                if own is not None:
                    messages = (*messages[:own], self._message, *messages[own:])
            self._message = host.advance(*messages)
            return self._boundary.outgoing(self._message, host.transfer_weights)
        except Exception as error:
            # Nobody fetches a message but its neighbours: whoever asks this actor next is told.
            self._failed = error
            raise

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._sound(), method)(*arguments)

    def _sound(self) -> Host:
        if self._failed is not None:
            raise self._failed
        return self._host


class ClientActor:
    """A block of agents that answers a trusted coordinator, in a process of its own. `begin` as of `Actor`."""

    def __init__(self) -> None:
        threadpool_limits(limits=1)

    def begin(self, client_block: Any) -> None:
        self._client_block = client_block

    def call(self, method: str, *arguments: Any) -> Any:
        if method == "machine":
            return machine_of_clients(self._client_block)
        return getattr(self._client_block, method)(*arguments)


# What a lost process or machine shows as: the actor is gone, or a value that lay in the memory of its machine.
_LOSS_ERRORS = (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError, ray.exceptions.NodeDiedError)


@dataclass(frozen=True)
class RayEngine:
    """The Ray engine: one actor for each block of agents.

    Args:
        address: None starts a Ray for this run and ends it; "auto" or "host:port" joins a running one.
        place: resource of the machine that an agent is to be on, {agent} its number; None for any machine.
        recovery: what happens where an actor is lost.
    """

    address: str | None = None
    place: str | None = None
    recovery: Recovery = field(default_factory=Recovery)
    name = "ray"

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run the nodes for a number of rounds; as in `Engine`.

        Where an actor or its machine is lost, all go on from where they were last saved, with the same draws: what is
        released twice is one release.

        Raises:
            RuntimeError: actors are lost again and again before another round is done.
            InputError: a lost actor started again on a machine that rounds differently.

        Limits:
            What an agent raises ends the run when it is next looked at, within seconds.
        """
        driver = _Driver(control.saved_state, -1, self.recovery)
        places, cut = [resources_of(self.place, node.agents) for node in nodes], boundaries(nodes)
        with cluster(self.address):
            while True:
                parts = [None] * len(nodes) if driver.state is None else driver.state.parts
                arguments = [
                    (node, boundary, rounds, part, control.keeps_releases, control.states)
                    for node, boundary, part in zip(nodes, cut, parts, strict=True)
                ]
                try:
                    with _actors(Actor, places) as actors:
                        _begin(actors, arguments)
                        return _drive(actors, nodes, rounds, control, driver)
                except BlockLostError as loss:
                    driver.retry_after_loss(loss)

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program in this process.

        What agents answer comes here, and nothing goes from agent to agent. A lost actor is started again, and asked
        again: its coins are keyed.

        Raises:
            RuntimeError: actors are lost again and again at one question.
            InputError: as of `run`.
        """
        arguments = [(client_block,) for client_block in coordinator_node.client_blocks]
        places = [resources_of(self.place, client_block.agents) for client_block in coordinator_node.client_blocks]
        with cluster(self.address), _actors(ClientActor, places) as actors:
            begun: list[Any] = []
            machines: list[str] = []

            def call_blocks(method: str, *values: Any) -> list[Any]:
                driver = _Driver(None, -1, self.recovery)
                while True:
                    try:
                        if not begun:
                            begun.extend(_begin(actors, arguments))
                            machines[:] = _checked_machines(actors, machines, control)
                        return _call_all(actors, method, *values)
                    except BlockLostError as loss:
                        driver.retry_after_loss(loss)
                        begun.clear()
                        for actor in actors:
                            ray.kill(actor)
                        actors[:] = start_actors(ClientActor, places)

            return coordinate(coordinator_node, rounds, call_blocks, control)


def _begin(actors: Sequence[Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Hand each actor what it hosts. Raises as `_fetch`."""
    return _fetch([actor.begin.remote(*own) for actor, own in zip(actors, arguments, strict=True)])


def _checked_machines(actors: Sequence[Any], before: Sequence[str], control: RunControl) -> list[str]:
    """The machines that the actors run on. before: where they ran until they were lost; empty at the start.

    Raises:
        InputError: one rounds differently, so that repeated rounds would be a second release under the same noise.
    """
    machines: list[str] = _call_all(actors, "machine")
    if before and (moved := sum(a != b for a, b in zip(before, machines, strict=True))):
        raise InputError(
            f"run.engine: {moved} of {len(machines)} blocks of agents started again on a machine with another "
            'processor or other versions, where last bits differ. Fix: "resume" on machines like the first ones.'
        )
    if control.check_machines is not None:
        control.check_machines(machines)
    return machines


def _call_all(actors: Sequence[Any], method: str, *values: Any) -> list[Any]:
    """What the actors answer to a call of this method, in their order. Raises as `_fetch`."""
    # Once into the object store, not once for every actor.
    shared = [ray.put(a) for a in values]
    return _fetch([actor.call.remote(method, *shared) for actor in actors])


def _fetch(answers: Sequence[Any]) -> list[Any]:
    """What actors answered. Raises BlockLostError where one is lost, and what an agent raised."""
    try:
        return list(ray.get(answers))
    except _LOSS_ERRORS as error:
        raise BlockLostError(str(error)) from error
    except ray.exceptions.RayTaskError as error:
        # What an agent raised, without the tracebacks of another process in its sentence.
        cause: BaseException = error
        while isinstance(cause, ray.exceptions.RayTaskError) and cause.cause is not None:
            cause = cause.cause
        raise cause from None


@dataclass
class _Driver:
    """What a driver keeps for the case that an actor is lost. observed_round: the last round that was.

    undrained: values that were released before the state, which actors
    do not release again. machines: of the actors.
    """

    state: SavedState | None
    observed_round: int
    recovery: Recovery
    restarts: int = 0
    saved_at: float = field(default_factory=time.monotonic)
    undrained: list[ReleasedValues] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)

    def set_state(self, saved: SavedState, released: Sequence[ReleasedValues] = ()) -> None:
        """Move the state that actors would go on from. released: what the actors have released before it."""
        self.state, self.restarts, self.saved_at = saved, 0, time.monotonic()
        self.undrained += released

    def retry_after_loss(self, loss: BlockLostError) -> None:
        """Allow another start, after a pause, or end the run."""
        self.restarts += 1
        if self.restarts > self.recovery.restarts:
            reason = " ".join(line.strip() for line in str(loss).splitlines()[:2])
            after = self.state.round if self.state else 0
            raise RuntimeError(
                f"run.engine: actors ended {self.restarts} times after round {after} without another round: {reason}"
            ) from loss
        time.sleep(self.recovery.wait(self.restarts))


@contextlib.contextmanager
def _actors(kind: type[Any], places: Sequence[Mapping[str, float]]) -> Iterator[list[Any]]:
    """One actor for each, for the length of the block."""
    actors = start_actors(kind, places)
    try:
        yield actors
    finally:
        for actor in actors:
            ray.kill(actor)


def _drive(
    actors: Sequence[Any], nodes: Sequence[AgentNode], rounds: int, control: RunControl, driver: _Driver
) -> Outcome:
    call_blocks, agents = partial(_call_all, actors), [n.agents for n in nodes]

    def take_snapshot(t: int) -> Snapshot:
        def save() -> SavedState:
            saved = SavedState(t, tuple(call_blocks("save")))
            if own_records:
                # States lie with the agents, which have the last two: what others would keep in between is not asked.
                driver.set_state(saved)
            return saved

        def drain(ending: bool) -> list[ReleasedValues]:
            # Where an actor is lost here, nothing was drained: those before the state are still with the driver.
            fresh = drain_blocks(call_blocks, agents, ending)
            released, driver.undrained = [*driver.undrained, *fresh], []
            return released

        return snapshot(t, call_blocks, agents)._replace(save=save, drain=drain)

    def observe(last: Snapshot) -> bool | None:
        done = control.observe(last)
        driver.observed_round = last.round
        return done

    observed = control.observes(rounds)
    own_records = any(n.read_dataset is not None for n in nodes)
    first = 0 if driver.state is None else driver.state.round
    driver.machines = _checked_machines(actors, driver.machines, control)
    if own_records:
        # Nothing is released before every agent has its records.
        first = last_common(call_blocks("saved_rounds"))
        call_blocks("resume_after", first)
    messages = [a.advance.remote() for a in actors]
    read_from = [[j for j in n.neighbours if j != k] for k, n in enumerate(nodes)]
    over_time = nodes[0].over_time
    cut = boundaries(nodes) if over_time is not None else []
    last, alive = take_snapshot(first), time.monotonic()
    done = first > driver.observed_round and observed(first) and observe(last)
    for t in range(first + 1, rounds + 1):
        if done:
            break
        near = read_from
        if cut and over_time is not None:
            hears = [b.blocks_heard(over_time.transfer_weights(t - 1)) for b in cut]
            near = [list(itertools.compress(*both)) for both in zip(read_from, hears, strict=True)]
        for _ in range(nodes[0].program.releases_per_round):
            messages = [a.advance.remote(*(messages[j] for j in some)) for a, some in zip(actors, near, strict=True)]
        if t > driver.observed_round and observed(t):
            last, alive = take_snapshot(t), time.monotonic()
            done = observe(last)
        elif t == rounds:
            last = take_snapshot(t)
        elif t % _AHEAD == 0:
            ray.wait(messages, num_returns=len(messages), fetch_local=False)
            if time.monotonic() - alive > driver.recovery.heartbeat:
                # What is sent to a lost actor waits in the head's memory, until somebody asks, whatever it is.
                call_blocks("saved_rounds")
                alive = time.monotonic()
        if time.monotonic() - driver.saved_at > driver.recovery.save_every and not own_records:
            # A loss shows here as what it is; a neighbour that missed its message cannot be saved.
            call_blocks("saved_rounds")
            saved = SavedState(t, tuple(call_blocks("save")))
            # In one step: what was released before the state is not released again.
            driver.set_state(saved, drain_blocks(call_blocks, agents, False))
    recorders = call_blocks("recorder")
    with contextlib.suppress(BlockLostError):
        # All is released, and a loss now is none.
        call_blocks("forget")
    recorded = [(n.agents, r) for n, r in zip(nodes, recorders, strict=True)]
    return Outcome(last, assemble(recorded, sum(n.agents.size for n in nodes), nodes[0].program.releases_per_round))
