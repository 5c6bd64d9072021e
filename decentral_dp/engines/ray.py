"""The Ray engine: every block of agents is an actor that holds its data shard and its noise streams.

Messages go from actor to actor by reference: the driver moves object references, never values, and waits only where
something is evaluated (and, so that the queue stays short, for the round before last).
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
from threadpoolctl import threadpool_limits

from decentral_dp.engines.coordinator import coordinate
from decentral_dp.engines.host import Host, View
from decentral_dp.engines.local import snapshot
from decentral_dp.engines.protocol import UNATTENDED, AgentNode, CoordinatorNode, Outcome, RunControl, Saved, Snapshot
from decentral_dp.errors import InputError
from decentral_dp.privacy.recorder import Recorder, assemble

# Rounds whose messages may be under way before the driver waits for the oldest.
_AHEAD = 32
# Seconds after which actors are asked whether they are there, and after which the driver keeps what they would go on
# from; starts after a loss before a run gives up, and the seconds before the first of them, doubled each time up to
# the longest.
_HEARTBEAT, _SAVE_EVERY, _RESTARTS, _PAUSE, _LONGEST_PAUSE = 1.0, 5.0, 3, 0.25, 5.0


class Actor:
    """A `Host` in a process of its own."""

    def __init__(self, node: AgentNode, rounds: int, saved: Mapping[str, Any] | None, keeps_releases: bool) -> None:
        # As in the local engine: one agent's products are too small to share among threads.
        threadpool_limits(limits=1)
        self._host = Host(node, rounds, saved, keeps_releases)
        self._failed: Exception | None = None

    def advance(self, *messages: Any) -> Any:
        try:
            return self._host.advance(*messages)
        except Exception as error:
            # Nobody fetches a message but its neighbours: whoever asks this actor next is told.
            self._failed = error
            raise

    def view(self) -> View:
        return self._sound().view()

    def recorder(self) -> Recorder:
        return self._sound().recorder()

    def save(self) -> dict[str, Any]:
        return self._sound().save()

    def drain(self, ending: bool) -> list[Any]:
        return self._sound().drain(ending)

    def alive(self) -> bool:
        return bool(self._sound())

    def _sound(self) -> Host:
        if self._failed is not None:
            raise self._failed
        return self._host


class ClientActor:
    """A block of agents that answers a trusted coordinator, in a process of its own."""

    def __init__(self, client_block: Any) -> None:
        threadpool_limits(limits=1)
        self._client_block = client_block

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._client_block, method)(*arguments)


class ActorLostError(RuntimeError):
    """An actor ended before its work did."""


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Join the Ray at an address, or start one for the length of the block.

    Args:
        address: "auto" or "host:port"; None starts a Ray.

    Raises:
        InputError: no Ray is reachable there.

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
    else:
        _check_reachable(address)
        _offer_token()
        options["address"] = address
    try:
        ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _unreachable(address, str(error).strip().partition("\n")[0] or type(error).__name__) from error
    try:
        yield
    finally:
        ray.shutdown()


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


def _check_reachable(address: str) -> None:
    """Knock before ray.init does, which would wait for an absent head for minutes."""
    where = address
    if address == "auto":
        # What `ray start` leaves behind for "auto"; without it ray.init says itself that there is nothing.
        note = Path("/tmp/ray/ray_current_cluster")
        where = os.environ.get("RAY_ADDRESS") or (note.read_text().strip() if note.is_file() else "")
        if not where:
            return
    host, _, port = where.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise _unreachable(address, 'wanted "auto" or "host:port"')
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str | None, reason: str) -> InputError:
    return InputError(
        f"run.address: no Ray cluster answers at {address!r} ({reason}). "
        'Start one with "ray start --head", or leave the address out to start one for this run. Where it asks for a '
        "token, set RAY_AUTH_TOKEN to that of its machine, which ~/.ray/auth_token there holds."
    )


@dataclass(frozen=True)
class RayEngine:
    """The Ray engine: one actor for each block of agents.

    Args:
        address: None starts a Ray for this run and ends it; "auto" or "host:port" joins a running one.
    """

    address: str | None = None
    name = "ray"

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run the nodes for a number of rounds; as in `Engine`.

        Where an actor is lost, all go on from where they were last saved, with the same draws: what is released twice
        is one release.

        Raises:
            ActorLostError: actors are lost again and again before a round more is done.

        Limits:
            What an agent raises ends the run when it is next looked at, within seconds.
        """
        kept = _Kept(control.saved, -1 if control.saved is None else control.saved.round - 1)
        with cluster(self.address):
            while True:
                parts = [None] * len(nodes) if kept.saved is None else kept.saved.parts
                given = zip(nodes, parts, strict=True)
                arguments = [(node, rounds, part, control.keeps_releases) for node, part in given]
                try:
                    with _actors(Actor, arguments) as actors:
                        return _drive(actors, nodes, rounds, control, kept)
                except ray.exceptions.RayActorError as error:
                    kept.lost(error)
                except ray.exceptions.RayTaskError as error:
                    raise _cause(error) from None

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program in this process.

        What agents answer comes here, and nothing goes from agent to agent. A lost actor is started again, and asked
        again: its coins are keyed.

        Raises:
            ActorLostError: actors are lost again and again at one question.
        """
        arguments = [(client_block,) for client_block in coordinator_node.client_blocks]
        with cluster(self.address), _actors(ClientActor, arguments) as actors:

            def everywhere(method: str, *given: Any) -> list[Any]:
                kept = _Kept(None, -1)
                while True:
                    # Once into the object store, not once for every actor.
                    shared = [ray.put(a) for a in given]
                    try:
                        return list(ray.get([actor.call.remote(method, *shared) for actor in actors]))
                    except ray.exceptions.RayActorError as error:
                        kept.lost(error)
                        for actor in actors:
                            ray.kill(actor)
                        actors[:] = _start(ClientActor, arguments)

            return coordinate(coordinator_node, rounds, everywhere, control)


def _cause(error: ray.exceptions.RayTaskError) -> BaseException:
    """What an agent raised, without the tracebacks of another process in its sentence."""
    while isinstance(error, ray.exceptions.RayTaskError) and error.cause is not None:
        error = error.cause
    return error


@dataclass
class _Kept:
    """What a driver keeps for the case that an actor is lost. observed: the last round that was."""

    saved: Saved | None
    observed: int
    restarts: int = 0
    at: float = field(default_factory=time.monotonic)

    def keep(self, saved: Saved) -> None:
        self.saved, self.restarts, self.at = saved, 0, time.monotonic()

    def lost(self, error: ray.exceptions.RayActorError) -> None:
        """Allow another start, after a pause, or end the run."""
        self.restarts += 1
        if self.restarts > _RESTARTS:
            raise ActorLostError(
                f"an agent's actor ended {self.restarts} times after round {self.saved.round if self.saved else 0}: "
                f"{str(error).splitlines()[0]}"
            ) from error
        time.sleep(min(_PAUSE * 2.0 ** min(self.restarts, 10), _LONGEST_PAUSE))


@contextmanager
def _actors(kind: type[Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[list[Any]]:
    """One actor for each, for the length of the block."""
    actors = _start(kind, arguments)
    try:
        yield actors
    finally:
        for actor in actors:
            ray.kill(actor)


def _start(kind: type[Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    cores = [n["Resources"].get("CPU", 0.0) for n in ray.nodes() if n["Alive"]]  # type: ignore[no-untyped-call] # ray has no types for it
    share = core_share(cores, len(arguments))
    remote = ray.remote(num_cpus=share, scheduling_strategy="SPREAD", max_restarts=0)(kind)
    return [remote.remote(*given) for given in arguments]


def core_share(cores: Sequence[float], actors: int) -> float:
    """Compute the largest share of a core, at most 1, at which that many actors fit on the machines.

    Args:
        cores: of each machine.
        actors: their number.

    Limits:
        An actor does not span machines: five shares of 0.4 do not fit on two machines of one core, though they add up
        to 2.

    Example:
        >>> core_share([4.0], actors=8), core_share([1.0, 1.0], actors=5)
        (0.5, 0.3333)
    """
    candidates = {1.0, *(int(1e4 * c / k) / 1e4 for c in cores for k in range(1, actors + 1))}
    fitting = [s for s in candidates if s > 0.0 and sum(int(c / s + 1e-9) for c in cores) >= actors and s <= 1.0]
    return max(fitting, default=0.0)


def _drive(
    actors: Sequence[Any],
    nodes: Sequence[AgentNode],
    rounds: int,
    control: RunControl,
    kept: _Kept,
) -> Outcome:
    def look(t: int) -> Snapshot:
        def everywhere(method: str, *given: Any) -> Any:
            return ray.get([getattr(a, method).remote(*given) for a in actors])

        return snapshot(t, everywhere("view"), lambda: everywhere("save"), lambda end: everywhere("drain", end))

    def observe(last: Snapshot) -> bool | None:
        kept.observed = last.round
        return control.observe(last)

    observed = control.observed(rounds)
    first = 0 if kept.saved is None else kept.saved.round
    messages = [a.advance.remote() for a in actors]
    last, alive = look(first), time.monotonic()
    done = first > kept.observed and observed(first) and observe(last)
    for t in range(first + 1, rounds + 1):
        if done:
            break
        for _ in range(nodes[0].program.releases_per_round):
            messages = [
                a.advance.remote(*(messages[j] for j in n.neighbours)) for a, n in zip(actors, nodes, strict=True)
            ]
        if t > kept.observed and observed(t):
            last, alive = look(t), time.monotonic()
            done = observe(last)
        elif t == rounds:
            last = look(t)
        elif t % _AHEAD == 0:
            ray.wait(messages, num_returns=len(messages), fetch_local=False)
            if time.monotonic() - alive > _HEARTBEAT:
                # What is sent to a lost actor waits in the head's memory, until somebody asks.
                ray.get([a.alive.remote() for a in actors])
                alive = time.monotonic()
        if time.monotonic() - kept.at > _SAVE_EVERY:
            # A loss shows here as what it is; a neighbour that missed its message cannot be saved.
            ray.get([a.alive.remote() for a in actors])
            kept.keep(Saved(t, tuple(ray.get([a.save.remote() for a in actors]))))
    recorders = ray.get([a.recorder.remote() for a in actors])
    recorded = [(n.agents, r) for n, r in zip(nodes, recorders, strict=True)]
    return Outcome(last, assemble(recorded, sum(n.agents.size for n in nodes), nodes[0].program.releases_per_round))
