"""Communication graphs, mixing matrices and their spectra.

`GENERATORS` and `WEIGHTS` are the registries of graphs and weight rules. `names()` lists the networks in the package.

Example:
    >>> build_topology("random_regular", 10, {"degree": 3}, "metropolis", seed=7).degrees.tolist()
    [3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    >>> from_file("abilene").n_agents
    11
"""

from decentral_dp.topology.graph_files import find_named, graph_title, names
from decentral_dp.topology.graphs import GENERATORS, Generator
from decentral_dp.topology.topology import (
    Topology,
    build_topology,
    from_edges,
    from_file,
    from_matrix,
    from_networkx,
    in_turn,
    time_varying,
)
from decentral_dp.topology.weights import WEIGHTS, WeightRule
