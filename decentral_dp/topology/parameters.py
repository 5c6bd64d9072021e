"""Parameters of generators and weight rules, and the refusal of wrong values."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.topology.graph import MAX_EDGES, unknown

# Keys of every topology with a kind.
SHARED = ("agents", "weights", "seed")


class Parameter(NamedTuple):
    """One parameter of a generator or weight rule.

    Args:
        name: its key.
        type: int or float.
        constraint: the valid values in words.
        valid: value → whether it is valid.
        default: None where the parameter is required, unless `optional`.
        optional: whether it may be absent, and is None then; default no.
        description: a noun.
    """

    name: str
    type: type[int] | type[float]
    constraint: str
    valid: Callable[[Any], bool]
    default: int | float | None = None
    optional: bool = False
    description: str = ""


def resolve(where: str, parameters: tuple[Parameter, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Check given values and fill in defaults.

    Args:
        where: begins the messages.
        parameters: those that may be given.
        given: name → value.

    Returns:
        Name → value of every parameter; an optional one that is absent is None.

    Raises:
        InputError: an unknown name, a required parameter that is missing, or a wrong value.

    Example:
        >>> degree = Parameter("degree", int, "an integer of at least 1", lambda v: v >= 1, default=4)
        >>> resolve("topology", (degree,), {})
        {'degree': 4}
    """
    known = {p.name: p for p in parameters}
    for name in given:
        if name not in known:
            raise unknown(where, name, known)
    return {p.name: _value(where, p, given.get(p.name)) for p in parameters}


def _value(where: str, p: Parameter, got: Any) -> Any:
    if got is None:
        if p.default is None and not p.optional:
            raise InputError(f"{where}: {p.name} is missing; give {p.constraint}.")
        return p.default
    is_number = isinstance(got, (int, np.integer) if p.type is int else (int, float, np.number))
    if isinstance(got, bool) or not is_number or not p.valid(got):
        raise InputError(f"{where}: {p.name} = {got!r}, wanted {p.constraint}.")
    return p.type(got)


def unknown_key(key: str, kind: str, parameters: Iterable[str]) -> InputError:
    """Make the error for a key of a topology that its graph does not take.

    Args:
        key: the unknown one.
        kind: of the graph.
        parameters: what that kind takes beside `SHARED`.

    Returns:
        The error, with the nearest key, and how to replace the graph as a whole.

    Example:
        >>> print(unknown_key("agent", "star", []))
        topology.agent: star takes no such key; did you mean "agents"? It takes agents, weights, seed. To take another \
graph, replace the whole table: topology = {kind = "star", agents = 10}.
    """
    known = [*parameters, *SHARED]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f'did you mean "{near[0]}"? It' if near else "it"
    return InputError(
        f"topology.{key}: {kind} takes no such key; {hint} takes {', '.join(known)}. To take another graph, replace "
        f'the whole table: topology = {{kind = "{kind}", agents = 10}}.'
    )


def whole(where: str, got: Any) -> int:
    """Return a whole number as an int.

    Raises:
        InputError: a fraction, a truth value, or no number.

    Example:
        >>> whole("seed", np.int64(3))
        3
    """
    try:
        value = operator.index(got)
    except TypeError:
        value = None
    if value is None or isinstance(got, bool):
        raise InputError(f"{where}: got {got!r}, wanted a whole number.")
    return value


def wrong_agents(kind: str, wanted: str, got: int, mend: str) -> InputError:
    """Make the error for a number of agents that a family does not have.

    Args:
        kind: name of the family.
        wanted: which numbers it has, in words.
        got: the number of agents.
        mend: what to change.
    """
    return InputError(f'topology.agents: kind "{kind}" needs {wanted} agents, got {got}; {mend}.')


def require_room(kind: str, edges: float) -> None:
    """Refuse a graph of more edges than are built.

    Raises:
        InputError: more than MAX_EDGES edges.
    """
    if edges > MAX_EDGES:
        raise InputError(
            f'topology.agents: kind "{kind}" would have about {edges:.3g} edges, and {MAX_EDGES} is the most that is '
            "built; use fewer agents or a sparser graph."
        )
