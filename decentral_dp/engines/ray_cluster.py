"""A Ray cluster: joining one, starting one, and placing actors on its machines."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from numpy.typing import NDArray

from decentral_dp.errors import InputError

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
    """Return the address of a head whose port takes connections; ray.init would wait for an absent one for minutes."""
    where = (user_address() or "auto") if address == "auto" else address
    if where == "auto":
        where = _current_cluster()
    host, _, port = where.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise _unreachable(address, 'wanted "auto" or "host:port"')
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error
    return where


def _current_cluster() -> str:
    """Return the address of the cluster that "ray start" has left a note of.

    Ray itself would also look at the command lines of all processes. Other users can write either, and so name a host
    that is to get the token.
    """
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"
    if note.is_file() and note.stat().st_uid in (os.geteuid(), _ROOT):
        return note.read_text().strip()
    problem = f"{note} is another user's" if note.is_file() else f"there is no {note}"
    raise _unreachable("auto", f"{problem}; give host:port")


def _unreachable(address: str | None, reason: str) -> InputError:
    return InputError(
        f"RAY_ADDRESS or --address: no Ray cluster answers at {address!r} ({reason}). "
        'Fix: start one with "ray start --head", or leave the address out.'
    )


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
