"""Ray engine, cluster and actors: every block of agents is an actor with its records and noise streams.

Actors send messages to each other by reference. The driver moves object references, never values, and waits only for
evaluations (and for earlier rounds, to keep the queue short). A block sends the messages of those agents that another
block reads. If the network changes, these are the agents that are read in the round. Late messages are sent completely.
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
from decentral_dp.engines.arithmetic import machine_digest
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
from decentral_dp.errors import InputError, converting
from decentral_dp.privacy.recorder import assemble

# Smallest amount of a resource in Ray, for resources that are places, not capacities.
_TRACE = 1e-4
# The user number of root.
_ROOT = 0


def user_address() -> str | None:
    """Return the address of the Ray cluster in RAY_ADDRESS; None means that a cluster is started.

    A file cannot set it, because the cluster receives the user's token, records and noise keys.

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
    # Ray treats these values as no address.
    return None if address in (None, "", "local") else address


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Join the Ray cluster at an address, or start one for the duration of the context.

    An existing connection is kept.

    Args:
        address: address "auto" or "host:port" from the user, which receives the user's token; None starts a cluster.

    Raises:
        InputError: no Ray cluster is reachable at the address, or Ray does not start.
    """
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # "local" never connects to another user's cluster on this machine.
        options |= {"address": "local", "include_dashboard": False}
        _ask_for_token()
    else:
        options["address"] = _check_reachable(address)
        _offer_token()
    try:
        with _kept_handlers():
            ray.init(**options)
    except Exception as error:  # Ray raises it for a node that does not start in time
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        message = (
            f"run.engine: Ray does not start on this machine ({reason.rstrip('.')}). Fix: try again later, "
            "join a running cluster with RAY_ADDRESS, or use --engine local."
            if address is None
            else f"RAY_ADDRESS or --address: the cluster at {address!r} rejected the connection "
            f"({reason.partition('. ')[0].rstrip('.')}). Fix: set RAY_AUTH_TOKEN to the token in "
            "~/.ray/auth_token of the cluster's head, and use the same versions of Ray and Python."
        )
        raise InputError(message) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _kept_handlers() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM, because Ray installs handlers that end the process."""
    if threading.current_thread() is not threading.main_thread():
        # Handlers can be set in the main thread only.
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
    """Count the cores of the cluster at an address, or of this machine."""
    if address is None and not ray.is_initialized():
        return os.cpu_count() or 1
    with cluster(address):
        return max(1, int(ray.cluster_resources().get("CPU", 1.0)))  # type: ignore[no-untyped-call] # ray has no types for it


def _ask_for_token() -> None:
    """Require a token from clients of the Ray cluster that is started here, since it listens on all interfaces.

    Ray creates a token in ~/.ray/auth_token if there is none. RAY_AUTH_MODE overrides this.

    Raises:
        InputError: this version of Ray has no tokens.
    """
    if "RAY_AUTH_MODE" in os.environ:
        return
    insecure = (
        f"run.engine: ray {ray.__version__} lets any client that reaches this machine run code on it. Fix: install ray "
        '2.52 or later, which requires a token: pip install "ray>=2.52".'
    )
    with converting((ImportError, AttributeError), lambda _: insecure):
        importlib.import_module("ray._private.authentication.authentication_token_setup")
        config = importlib.import_module("ray._raylet").Config
    token = Path.home() / ".ray" / "auth_token"
    os.environ["RAY_AUTH_MODE"] = "token"
    config.initialize("")
    if not token.exists():
        # Ray would create it with the mode of the umask, and reports errors of the file itself.
        with suppress(OSError):
            token.parent.mkdir(mode=0o700, exist_ok=True)
            token.touch(mode=0o600)


def _offer_token() -> None:
    """Send the user's token to the head that this process joins, if there is a token and no other setting.

    `ray start --head` requires the token in RAY_AUTH_TOKEN or ~/.ray/auth_token if there is one. Ray itself sends it to
    heads that it discovers on this machine, but not to a "host:port". Heads without tokens ignore it.
    """
    place = "ray._private.authentication.authentication_token_setup"
    try:
        setup = importlib.import_module(place)
        offer = setup.maybe_enable_token_auth_if_token_available
    except (ImportError, AttributeError):
        # This version of Ray has no tokens.
        return
    # Its warning is about a cluster that is started here.
    logging.getLogger(place).setLevel(logging.ERROR)
    offer(warn_if_disabled=False)


def _check_reachable(address: str) -> str:
    """Return the address of a head whose port accepts connections; ray.init would wait minutes for an absent head.

    The address of "auto" is in the file that "ray start" writes. Ray itself would also read the command lines of all
    processes. Other users can write either, and could name a host that receives the token.
    """
    head = (user_address() or "auto") if address == "auto" else address
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"
    problem = ""
    if head == "auto" and not note.is_file():
        problem = f"there is no {note}; use host:port"
    elif head == "auto" and note.stat().st_uid not in (os.geteuid(), _ROOT):
        problem = f"{note} belongs to another user; use host:port"
    elif head == "auto":
        head = note.read_text().strip()
    host, _, port = head.removeprefix("ray://").rpartition(":")
    if not problem and not (host and port.isdigit()):
        problem = 'expected "auto" or "host:port"'
    if not problem:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except (OSError, OverflowError) as error:
            problem = str(error)
    if problem:
        raise InputError(
            f"RAY_ADDRESS or --address: no Ray cluster answers at {address!r} ({problem}). Fix: start one "
            'with "ray start --head", or remove the address.'
        )
    return head


def resources_of(place: str | None, agents: NDArray[Any]) -> dict[str, float]:
    """Return the resources that the machine of some agents must have.

    Args:
        place: name of a resource, with {agent} for the agent number; None for any machine.
        agents: indices of the agents, (b,).

    Example:
        >>> import numpy as np
        >>> sorted(resources_of("site-{agent}", np.arange(2))), resources_of(None, np.arange(2))
        (['site-0', 'site-1'], {})
    """
    if place is None:
        return {}
    return {place.replace("{agent}", str(int(agent))): _TRACE for agent in agents}


def start_actors(kind: type[Any], places: Sequence[Mapping[str, float]]) -> list[Any]:
    """Start one actor per block, on a machine with its resources.

    Args:
        kind: class of the actors, without arguments, because Ray's head keeps arguments in memory.
        places: resources of each actor.

    Raises:
        InputError: no machine has the resources.
    """
    nodes = [n["Resources"] for n in ray.nodes() if n["Alive"]]  # type: ignore[no-untyped-call] # ray has no types for it
    for place in places:
        if not any(all(node.get(name, 0.0) >= least for name, least in place.items()) for node in nodes):
            names = ", ".join(f'"{name}"' for name in place)
            raise InputError(
                f"run.place: no machine of the cluster has {names}. Fix: start one with ray start --resources "
                f"'{{\"{next(iter(place))}\": 1}}', or remove run.place."
            )
    # Actors reserve no core, as by default in Ray. Without task events, the head does not keep kilobytes of each call.
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "enable_task_events": False}
    remote = ray.remote(**options)(kind)
    spread = remote.options(scheduling_strategy="SPREAD")
    return [remote.options(resources=dict(place)).remote() if place else spread.remote() for place in places]


# Number of rounds that the driver submits before it waits for the oldest.
_AHEAD = 32


class Actor:
    """`Host` in a separate process, which keeps its message and sends the rows that other blocks read.

    Call `begin` first. Ray's head keeps the arguments of an actor's constructor in memory, even after the run.
    Therefore noise keys and records are arguments of a call, which is sent from process to process.
    """

    def __init__(self) -> None:
        # Products of one agent are too small for several threads.
        threadpool_limits(limits=1)
        self._failed: Exception | None = None
        self._message: Array | None = None

    def begin(
        self,
        node: AgentNode,
        boundary: Boundary,
        rounds: int,
        saved_state: Mapping[str, Any] | None,
        keeps_releases: bool,
        states: str | None,
    ) -> None:
        """Create the host. The arguments are those of `Host`."""
        self._boundary = boundary
        self._host = Host(node.with_boundary(boundary), rounds, saved_state, keeps_releases, states)

    def advance(self, *messages: Any) -> Any:
        """Receive the rows of other blocks, and return the rows that they read."""
        own_place, host = self._boundary.own_place, self._sound()
        try:
            if self._message is not None:
                if (weights := host.transfer_weights) is not None:
                    messages = tuple(self._boundary.fill(messages, weights, self._message.shape[1]))
                if own_place is not None:
                    messages = (*messages[:own_place], self._message, *messages[own_place:])
            self._message = host.advance(*messages)
            return self._boundary.outgoing(self._message, host.transfer_weights)
        except Exception as error:
            # Only neighbours fetch messages, so the next call raises the error.
            self._failed = error
            raise

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the host."""
        return getattr(self._sound(), method)(*arguments)

    def _sound(self) -> Host:
        if self._failed is not None:
            raise self._failed
        return self._host


class ClientActor:
    """Block of agents that answers a trusted coordinator, in a separate process. Call `begin` first."""

    def __init__(self) -> None:
        threadpool_limits(limits=1)

    def begin(self, client_block: Any) -> None:
        """Set the block of agents."""
        self._client_block = client_block

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the block."""
        if method == "machine":
            return machine_digest(self._client_block)
        return getattr(self._client_block, method)(*arguments)


# Errors of a lost process or machine: an actor, or a value in the memory of its machine.
_LOSS_ERRORS = (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError, ray.exceptions.NodeDiedError)


@dataclass(frozen=True)
class RayEngine:
    """Ray engine with one actor for each block of agents.

    Args:
        address: address "auto" or "host:port" of a running Ray cluster; None starts a cluster for this run.
        place: resource of the machine of an agent, with {agent} for the agent number; None for any machine.
        recovery: detection and restart of lost actors.
    """

    address: str | None = None
    place: str | None = None
    recovery: Recovery = field(default_factory=Recovery)
    name = "ray"

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run the nodes for a number of rounds. See `Engine`.

        If an actor or its machine is lost, all actors resume from the last saved state with the same draws, so a
        repeated release is one release. An error of an agent ends the run within seconds.

        Raises:
            RuntimeError: actors are lost repeatedly before another round is completed.
            InputError: a lost actor was restarted on a machine that rounds differently.
        """
        driver = _Driver(control.saved_state, -1, self.recovery)
        places, node_boundaries = [resources_of(self.place, node.agents) for node in nodes], boundaries(nodes)
        with cluster(self.address):
            while True:
                parts = [None] * len(nodes) if driver.state is None else driver.state.parts
                arguments = [
                    (node, boundary, rounds, part, control.keeps_releases, control.states)
                    for node, boundary, part in zip(nodes, node_boundaries, parts, strict=True)
                ]
                try:
                    with _actors(Actor, places) as actors:
                        _begin(actors, arguments)
                        return _drive(actors, nodes, rounds, control, driver)
                except BlockLostError as loss:
                    driver.retry_after_loss(loss)

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program in this process.

        Agents send their answers to this process and nothing to each other. A lost actor is restarted and the call is
        repeated with the same keyed Bernoulli draws.

        Raises:
            RuntimeError: actors are lost repeatedly during one call.
            InputError: see `run`.
        """
        arguments = [(client_block,) for client_block in coordinator_node.client_blocks]
        places = [resources_of(self.place, client_block.agents) for client_block in coordinator_node.client_blocks]
        with cluster(self.address), _actors(ClientActor, places) as actors:
            running: list[Any] = []
            machines: list[str] = []

            def call_blocks(method: str, *values: Any) -> list[Any]:
                driver = _Driver(None, -1, self.recovery)
                while True:
                    try:
                        if not running:
                            running.extend(_begin(actors, arguments))
                            machines[:] = _checked_machines(actors, machines, control)
                        return _call_all(actors, method, *values)
                    except BlockLostError as loss:
                        driver.retry_after_loss(loss)
                        running.clear()
                        for actor in actors:
                            ray.kill(actor)
                        actors[:] = start_actors(ClientActor, places)

            return coordinate(coordinator_node, rounds, call_blocks, control)


def _begin(actors: Sequence[Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send each actor its block. Raises the errors of `_fetch`."""
    return _fetch([actor.begin.remote(*block) for actor, block in zip(actors, arguments, strict=True)])


def _checked_machines(actors: Sequence[Any], before: Sequence[str], control: RunControl) -> list[str]:
    """Return the digests of the actors' machines.

    Args:
        actors: actors of all blocks.
        before: digests before a loss; empty at the start.
        control: control of the run.

    Raises:
        InputError: a machine rounds differently, so that repeated rounds would be a second release under the same
            noise.
    """
    machines: list[str] = _call_all(actors, "machine")
    if before and (n_moved := sum(a != b for a, b in zip(before, machines, strict=True))):
        raise InputError(
            f"run.engine: {n_moved} of {len(machines)} blocks of agents restarted on machines with another "
            "processor or other versions, where rounding differs. Fix: resume on machines like the original "
            "ones."
        )
    if control.check_machines is not None:
        control.check_machines(machines)
    return machines


def _call_all(actors: Sequence[Any], method: str, *values: Any) -> list[Any]:
    """Call a method of all actors, and return their results in order. Raises the errors of `_fetch`."""
    # One copy in the object store, not one per actor.
    shared = [ray.put(a) for a in values]
    return _fetch([actor.call.remote(method, *shared) for actor in actors])


def _fetch(answers: Sequence[Any]) -> list[Any]:
    """Fetch results of actors. Raises BlockLostError if an actor is lost, and errors of agents."""
    try:
        return list(ray.get(answers))
    except _LOSS_ERRORS as error:
        raise BlockLostError(str(error)) from error
    except ray.exceptions.RayTaskError as error:
        # The agent's error, without the traceback of another process in its message.
        cause: BaseException = error
        while isinstance(cause, ray.exceptions.RayTaskError) and cause.cause is not None:
            cause = cause.cause
        raise cause from None


@dataclass
class _Driver:
    """Data of a driver for recovery from lost actors.

    Attributes:
        state: last saved state.
        observed_round: last observed round.
        recovery: detection and restart of lost actors.
        restarts: number of restarts since the last saved state.
        saved_at: time of the last saved state.
        undrained: released values before the saved state, which actors do not repeat.
        machines: digests of the actors' machines.
    """

    state: SavedState | None
    observed_round: int
    recovery: Recovery
    restarts: int = 0
    saved_at: float = field(default_factory=time.monotonic)
    undrained: list[ReleasedValues] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)

    def set_state(self, saved_state: SavedState, released: Sequence[ReleasedValues] = ()) -> None:
        """Set the state from which to resume.

        Args:
            saved_state: state from which to resume.
            released: values that actors have released before that state, default none.
        """
        self.state, self.restarts, self.saved_at = saved_state, 0, time.monotonic()
        self.undrained += released

    def retry_after_loss(self, loss: BlockLostError) -> None:
        """Pause before another start, or end the run."""
        self.restarts += 1
        if self.restarts > self.recovery.restarts:
            reason = " ".join(line.strip() for line in str(loss).splitlines()[:2])
            after = self.state.round if self.state else 0
            raise RuntimeError(
                f"run.engine: actors failed {self.restarts} times after round {after}, without completing "
                f"another round: {reason}"
            ) from loss
        time.sleep(self.recovery.wait(self.restarts))


@contextlib.contextmanager
def _actors(kind: type[Any], places: Sequence[Mapping[str, float]]) -> Iterator[list[Any]]:
    """Start one actor per block for the duration of the context."""
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
            saved_state = SavedState(t, tuple(call_blocks("save")))
            if own_records:
                # Agents keep their last two states: states between them are not needed.
                driver.set_state(saved_state)
            return saved_state

        def drain(ending: bool) -> list[ReleasedValues]:
            # If an actor is lost here, nothing was drained: the driver still has the values before the state.
            fresh = drain_blocks(call_blocks, agents, ending)
            released, driver.undrained = [*driver.undrained, *fresh], []
            return released

        return snapshot(t, call_blocks, agents)._replace(save=save, drain=drain)

    def observe(last: Snapshot) -> bool | None:
        stops = control.observe(last)
        driver.observed_round = last.round
        return stops

    is_observed = control.observes(rounds)
    own_records = any(n.read_dataset is not None for n in nodes)
    first = 0 if driver.state is None else driver.state.round
    driver.machines = _checked_machines(actors, driver.machines, control)
    if own_records:
        # All records are read before the first release.
        first = last_common(call_blocks("saved_rounds"))
        call_blocks("resume_after", first)
    messages = [a.advance.remote() for a in actors]
    read_from = [[j for j in n.neighbours if j != k] for k, n in enumerate(nodes)]
    over_time = nodes[0].over_time
    node_boundaries = boundaries(nodes) if over_time is not None else []
    last, alive = take_snapshot(first), time.monotonic()
    stops = first > driver.observed_round and is_observed(first) and observe(last)
    for t in range(first + 1, rounds + 1):
        if stops:
            break
        near = read_from
        if node_boundaries and over_time is not None:
            is_read = [b.blocks_read(over_time.transfer_weights(t - 1)) for b in node_boundaries]
            near = [list(itertools.compress(*pair)) for pair in zip(read_from, is_read, strict=True)]
        for _ in range(nodes[0].program.releases_per_round):
            messages = [a.advance.remote(*(messages[j] for j in some)) for a, some in zip(actors, near, strict=True)]
        if t > driver.observed_round and is_observed(t):
            last, alive = take_snapshot(t), time.monotonic()
            stops = observe(last)
        elif t == rounds:
            last = take_snapshot(t)
        elif t % _AHEAD == 0:
            ray.wait(messages, num_returns=len(messages), fetch_local=False)
            if time.monotonic() - alive > driver.recovery.heartbeat:
                # Messages to a lost actor stay in the head's memory until any call detects the loss.
                call_blocks("saved_rounds")
                alive = time.monotonic()
        if time.monotonic() - driver.saved_at > driver.recovery.save_every and not own_records:
            # Detect a loss first: a neighbour that missed a message cannot be saved.
            call_blocks("saved_rounds")
            saved_state = SavedState(t, tuple(call_blocks("save")))
            # In one step: releases before the state are not repeated.
            driver.set_state(saved_state, drain_blocks(call_blocks, agents, False))
    recorders = call_blocks("recorder")
    with contextlib.suppress(BlockLostError):
        # All values are released: a loss no longer matters.
        call_blocks("forget")
    recorder_of_agents = [(n.agents, r) for n, r in zip(nodes, recorders, strict=True)]
    return Outcome(
        last, assemble(recorder_of_agents, sum(n.agents.size for n in nodes), nodes[0].program.releases_per_round)
    )
