"""Graph families by name: `GENERATORS` is the registry, `generate` draws from it.

Every entry knows its parameters, so a wrong one is refused before anything is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from decentral_dp.errors import InputError
from decentral_dp.topology import randomised, structured
from decentral_dp.topology.graph import Graph, unknown
from decentral_dp.topology.parameters import Parameter, require_room, resolve, whole, wrong_agents


@dataclass(frozen=True)
class Generator:
    """A graph family.

    Args:
        name: its key in `GENERATORS`.
        summary: one line about it.
        make: (agents, parameters, seed) → Graph.
        least: fewest agents; default 2.
        parameters: those that it takes; default none.
        random: whether the seed matters; default no.
        example: agents and parameters of a small instance.
    """

    name: str
    summary: str
    make: Callable[[int, Mapping[str, Any], int], Graph]
    least: int = 2
    parameters: tuple[Parameter, ...] = ()
    random: bool = False
    example: tuple[int, Mapping[str, Any]] = (10, {})


# What networkx and textbooks call a generator of ours.
_OTHER_NAMES = {
    "watts_strogatz": "small_world",
    "connected_watts_strogatz": "small_world",
    "barabasi_albert": "preferential_attachment",
    "gnp_random": "erdos_renyi",
    "fast_gnp_random": "erdos_renyi",
    "binomial": "erdos_renyi",
    "cycle": "ring",
    "circle": "ring",
    "line": "path",
    "chain": "path",
    "lattice": "grid",
    "grid_2d": "grid",
    "fully_connected": "complete",
    "clique": "complete",
}


def generate(kind: str, agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Generate the graph of a registered family.

    Args:
        kind: a name in `GENERATORS`.
        agents: their number.
        params: parameter → value; defaults where left out.
        seed: at least 0; read by random families only.

    Returns:
        The unweighted graph, connected.

    Raises:
        InputError: an unknown kind or parameter, a value outside its constraint, a number of agents that the family
            does not have, or a random family that stays disconnected.

    Example:
        >>> generate("torus", 9, {"rows": 3}, seed=0).edges.shape
        (18, 2)
    """
    if kind not in GENERATORS:
        meant = _OTHER_NAMES.get(kind.removesuffix("_graph"))
        if meant is not None:
            raise InputError(f'topology.kind: got "{kind}", which is called "{meant}" here; write kind = "{meant}".')
        raise unknown("topology.kind", kind, GENERATORS)
    generator = GENERATORS[kind]
    agents = whole("topology.agents", agents)
    if agents < generator.least:
        hint = ' or kind = "complete" for one agent alone' if agents == 1 else ""
        raise wrong_agents(kind, f"at least {generator.least}", agents, f"use {generator.least} or more{hint}")
    # A connected graph has no fewer.
    require_room(kind, agents - 1)
    if whole("seed", seed) < 0:
        raise InputError(f"seed: got {seed}, wanted a whole number of at least 0.")
    return generator.make(agents, resolve(f'topology (kind "{kind}")', generator.parameters, params), seed)


_ROWS = Parameter("rows", int, "a whole number of at least 2", lambda v: v >= 2, None, True, "agents of a column")
_COLUMNS = _ROWS._replace(name="columns", description="agents of a row")


_NEIGHBOURS = "neighbours of each agent"


def _degree(least: int, default: int | None = None) -> Parameter:
    return Parameter(
        "degree", int, f"a whole number of at least {least}", lambda v: v >= least, default, False, _NEIGHBOURS
    )


_ALL = (
    Generator("ring", "every agent has two neighbours on a circle", structured.ring),
    Generator("path", "a line of agents", structured.path),
    Generator("star", "agent 0 is everybody's only neighbour", structured.star),
    Generator("complete", "everybody is everybody's neighbour; also one agent alone", structured.complete, least=1),
    Generator("grid", "rows × columns without wrapping around", structured.grid, 4, (_ROWS, _COLUMNS)),
    Generator(
        "torus", "rows × columns, wrapping around", structured.torus, 9, (_ROWS, _COLUMNS), example=(12, {"rows": 3})
    ),
    Generator(
        "hypercube", "binary words that differ in one bit; agents a power of two", structured.hypercube, example=(8, {})
    ),
    Generator(
        "random_regular",
        "random graph in which all have the same number of neighbours",
        randomised.random_regular,
        parameters=(_degree(1),),
        random=True,
        example=(10, {"degree": 3}),
    ),
    Generator(
        "erdos_renyi",
        "every pair is linked with the same probability",
        randomised.erdos_renyi,
        parameters=(
            Parameter(
                "probability",
                float,
                "a number above 0 and at most 1",
                lambda v: 0 < v <= 1,
                description="probability of each link",
            ),
        ),
        random=True,
        example=(10, {"probability": 0.4}),
    ),
    Generator(
        "small_world",
        "ring of near neighbours with some links rewired at random (Watts–Strogatz)",
        randomised.small_world,
        least=3,
        parameters=(
            Parameter(
                "degree",
                int,
                "an even whole number of at least 2",
                lambda v: v >= 2 and v % 2 == 0,
                4,
                False,
                _NEIGHBOURS,
            ),
            Parameter(
                "rewire", float, "a number from 0 to 1", lambda v: 0 <= v <= 1, 0.3, False, "share of rewired links"
            ),
        ),
        random=True,
        example=(10, {"degree": 4, "rewire": 0.3}),
    ),
    Generator(
        "preferential_attachment",
        "newcomers link to the well linked: few hubs, many leaves (Barabási–Albert)",
        randomised.preferential_attachment,
        parameters=(
            Parameter("attach", int, "a whole number of at least 1", lambda v: v >= 1, 2, False, "links of a newcomer"),
        ),
        random=True,
        example=(10, {"attach": 2}),
    ),
    Generator(
        "circular_ladder", "two rings joined by rungs (a prism); agents even", structured.circular_ladder, least=6
    ),
    Generator(
        "expander",
        "random regular graph, certified to mix nearly as fast as its degree allows",
        randomised.expander,
        least=4,
        parameters=(_degree(3, 4),),
        random=True,
        example=(10, {"degree": 4}),
    ),
)

GENERATORS: dict[str, Generator] = {g.name: g for g in sorted(_ALL, key=lambda g: g.name)}
