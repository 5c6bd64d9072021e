"""Noise correlated over rounds and mixed over a graph: Figure 3 of Bellet et al. 2025 (MAFALDA-SGD).

Every agent adds n = C⁻¹ n° to its gradients and averages, x_{t+1} = W(x_t − η(g_t + n_t)). All messages are released,
so the privacy cost is that of one agent's rounds and does not depend on the graph: μ² is proportional to sens²(C), the
largest ‖C u‖² over the indicators u of the rounds that read one record. The noise in all models of all rounds is, per
agent and coordinate,

    E = (1/m) Σ_{s,s'} G_{s,s'} (C⁻¹C⁻ᵀ)_{s,s'},      G_{s,s'} = Σ_t tr(W^{t−s+1} (W^{t−s'+1})ᵀ),

and factors are compared by E · sens²(C), at equal μ. The official code (github.com/dimiarbre/MFDL, commit c852929)
builds the mT × mT matrix of all W^{t−s+1} for G, about 200 GB according to its documentation. The abstract and the
introduction of the paper were read, but not its figures. Here W is reversible, π_i w_ij = π_j w_ji. With the
eigenvalues λ and eigenvectors U of the symmetric Π^{1/2} W Π^{−1/2},

    tr(W^a (W^b)ᵀ) = Σ_{k,l} λ_k^a K_kl λ_l^b,      K = (Uᵀ Π U) ∘ (Uᵀ Π⁻¹ U),

so G takes O(m³ + m²T + mT²) operations and O(m² + T²) floats. For a Toeplitz factor, the recursion
h_t = λ (h_{t−1} + a_t) for each eigenvalue, with a the first column of C⁻¹, gives E after every round. It takes O(m²T)
operations, or O(mT) if W is symmetric, and no T × T matrix.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.linalg
import scipy.optimize

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon, largest_mu
from decentral_dp.privacy.time_factors import banded_square_root
from decentral_dp.topology import build_topology, from_file
from papers.findings import Check, Row, exactly, values

# Number of batches in an epoch of the official script. A record is read in every sixteenth round.
APART = 16
EPOCHS, QUICK_EPOCHS = (1, 2, 4, 10, 20), (1, 2, 4)
DELTA, EPSILON = 1e-6, 10.0
FRESH, ANTI = "independent noise", "AntiPGD"
GRAPH, CENTRAL = "optimal for the graph (MAFALDA)", "optimal for one model"
ROOT = "banded square root"
# The paper's graphs of 148, 271 and 919 agents are not available. Preferential attachment replaces them.
GRAPHS: Mapping[str, Any] = {
    "florentine families, 15 agents": lambda: from_file("florentine_families"),
    "hypercube, 64": lambda: build_topology("hypercube", 64),
    "path, 128": lambda: build_topology("path", 128),
    "preferential attachment, 148": lambda: build_topology("preferential_attachment", 148, {"attach": 2}, seed=1),
    "preferential attachment, 271": lambda: build_topology("preferential_attachment", 271, {"attach": 2}, seed=1),
    "preferential attachment, 919": lambda: build_topology("preferential_attachment", 919, {"attach": 2}, seed=1),
}
SAME, MEMORY, TIME = f"ε with the error of independent noise at ε = {EPSILON:g}", "memory for G", "time for G"
ERROR, AT_END = "error relative to independent noise", "ε after the last round"


class Spectrum(NamedTuple):
    """Spectrum of W.

    Attributes:
        values: eigenvalues λ, (m,).
        kernel: K, (m, m).
    """

    values: Array
    kernel: Array


def mixing_of(edges: Any, agents: int) -> tuple[Array, Array]:
    """Form W of the official code, the mean over an agent and its neighbours.

    Args:
        edges: edges (E, 2).
        agents: m.

    Returns:
        W, (m, m), with row sums 1, and π, (m,), the number of agents in each mean.
    """
    adjacency = np.eye(agents)
    adjacency[edges[:, 0], edges[:, 1]] = adjacency[edges[:, 1], edges[:, 0]] = 1.0
    degrees = adjacency.sum(axis=1)
    return adjacency / degrees[:, None], degrees


def spectrum(mixing: Array, stationary: Array) -> Spectrum:
    """Diagonalise a W that is reversible with respect to π.

    Args:
        mixing: W, (m, m).
        stationary: π, (m,), positive, up to a factor.

    Raises:
        numpy.linalg.LinAlgError: the eigenvalues do not converge.
    """
    root = np.sqrt(stationary)
    eigenvalues, vectors = np.linalg.eigh(root[:, None] * mixing / root)
    return Spectrum(eigenvalues, (vectors.T * stationary) @ vectors * ((vectors.T / stationary) @ vectors))


def gram(graph: Spectrum, rounds: int) -> Array:
    """Compute G of m E = tr(G X⁻¹).

    Args:
        graph: spectrum of W.
        rounds: T.

    Returns:
        G, (T, T).
    """
    powers = graph.values[:, None] ** np.arange(1, rounds + 1)
    out = (powers.T @ graph.kernel @ powers)[::-1, ::-1].copy()
    for s in range(rounds - 2, -1, -1):
        out[s, :-1] += out[s + 1, 1:]
    return out


def square_root(rounds: int, bands: int, apart: int) -> tuple[Array, float]:
    """Compute the first column of C⁻¹ and sens²(C) of a banded square root.

    Args:
        rounds: T.
        bands: number of coefficients of C.
        apart: number of rounds between reads of a record.

    Returns:
        a, (T,), the coefficients of the draw of round 0 in the noise of each round, and sens².
    """
    factor = banded_square_root(rounds, bands, apart)
    series = np.zeros(rounds)
    series[: factor.noise_weights.size + 1] = [1.0, *factor.noise_weights]
    column = scipy.linalg.solve_toeplitz((series, np.eye(1, rounds)[0]), np.eye(1, rounds)[0])
    return column, float(np.square(factor.row_sums).sum())


def anti_pgd(rounds: int, apart: int) -> tuple[Array, float]:
    """Compute the first column of C⁻¹ and sens²(C) of AntiPGD (Orvieto et al. 2022), which subtracts the last draw.

    Args:
        rounds: T, at least 2.
        apart: number of rounds between reads of a record.

    Returns:
        a, (T,), and sens². C is the lower triangular matrix of ones, so round t counts the reads up to t.
    """
    column = np.zeros(rounds)
    column[:2] = 1.0, -1.0
    return column, float(np.square(np.arange(rounds) // apart + 1.0).sum())


def errors(graph: Spectrum, column: Array) -> Array:
    """Compute the noise in all models of a factor with a Toeplitz matrix C⁻¹.

    Args:
        graph: spectrum of W.
        column: first column of C⁻¹, (T,).

    Returns:
        m E after 1, …, T rounds, (T,), for draws of variance 1.
    """
    h, shares = np.zeros(graph.values.size), np.zeros(column.size)
    for t, a in enumerate(column):
        h = graph.values * (h + a)
        shares[t] = h @ graph.kernel @ h
    return np.cumsum(np.cumsum(shares))


def optimum(gram_matrix: Array, apart: int) -> Array:
    """Find X = CᵀC of sensitivity 1 with the smallest m E = tr(G X⁻¹).

    Entries of X between different rounds that read the same record are 0. sens² is then the largest sum of X's diagonal
    over the rounds that read a record (Choquette-Choo et al. 2023, as in the official code). The optimiser takes at
    most 300 steps, and stops at an improvement below 10⁻⁶.

    Args:
        gram_matrix: G, (T, T).
        apart: number of rounds between reads of a record.

    Returns:
        X, (T, T).
    """
    rounds = len(gram_matrix)
    phase = np.arange(rounds) % apart
    free = np.nonzero(np.tril(phase[:, None] != phase, -1))
    scale = np.trace(gram_matrix)

    def gram_of(z: Array) -> tuple[Array, Array]:
        shares = np.exp(z[free[0].size :])
        shares = shares / np.bincount(phase, shares)[phase]
        x = np.diag(shares)
        x[free] = x.T[free] = z[: free[0].size]
        return x, shares

    def loss(z: Array) -> tuple[float, Array]:
        x, shares = gram_of(z)
        try:
            root = scipy.linalg.cho_factor(x)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(z)
        solved = scipy.linalg.cho_solve(root, gram_matrix) / scale
        gradient = -scipy.linalg.cho_solve(root, solved.T)
        diagonal = gradient.diagonal()
        by_shares = shares * (diagonal - np.bincount(phase, shares * diagonal)[phase])
        return float(np.trace(solved)), np.concatenate([2.0 * gradient[free], by_shares])

    start = np.zeros(free[0].size + rounds)
    options = {"maxiter": 300, "maxfun": 900, "ftol": 1e-6}
    solution = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return gram_of(solution.x)[0]


def error_of(gram_matrix: Array, x: Array) -> float:
    """Compute m E = tr(G X⁻¹).

    Args:
        gram_matrix: G, (T, T).
        x: X = CᵀC, (T, T), positive definite.

    Raises:
        numpy.linalg.LinAlgError: X is singular.
    """
    return float(np.trace(scipy.linalg.solve(x, gram_matrix, assume_a="pos")))


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    epochs = QUICK_EPOCHS if quick else EPOCHS
    longest = APART * epochs[-1]
    one = spectrum(np.ones((1, 1)), np.ones(1))
    central = {k: optimum(gram(one, APART * k), APART) for k in epochs}
    for place, made in GRAPHS.items():
        topology, start = made(), perf_counter()
        agents = topology.n_agents
        tracemalloc.start()
        graph = spectrum(*mixing_of(topology.edges, agents))
        gram_matrix = gram(graph, longest)
        peak, seconds = tracemalloc.get_traced_memory()[1], perf_counter() - start
        tracemalloc.stop()
        for k in epochs:
            rounds = APART * k
            independent = k * errors(graph, np.eye(1, rounds)[0])[-1]
            relative = {FRESH: 1.0}
            for name, (column, squared_sensitivity) in (
                (ROOT, square_root(rounds, APART, APART)),
                (ANTI, anti_pgd(rounds, APART)),
            ):
                relative[name] = errors(graph, column)[-1] * squared_sensitivity / independent
            # G of fewer rounds is the lower right corner of G of more rounds.
            corner = gram_matrix[-rounds:, -rounds:]
            relative[CENTRAL] = error_of(corner, central[k]) / independent
            relative[GRAPH] = error_of(corner, optimum(corner, APART)) / independent
            curves = {name: (ANTI, place) if name == ANTI else (place, name) for name in relative}
            rows += [Row(*curves[name], "rounds", rounds, ERROR, 0, value) for name, value in relative.items()]
        mu = largest_mu(EPSILON, DELTA)
        for name in (GRAPH, CENTRAL, ROOT):
            value = float(gaussian_epsilon(mu * math.sqrt(relative[name]), DELTA))
            rows.append(Row(SAME, name, "agents", agents, AT_END, 0, value))
        sizes = {"eigenvalues": float(peak), "matrix of all powers": 8.0 * (agents * longest) ** 2}
        rows += [Row(MEMORY, name, "agents", agents, "bytes", 0, value) for name, value in sizes.items()]
        rows.append(Row(TIME, "eigenvalues", "agents", agents, "seconds", 0, seconds))
    return sorted(rows, key=lambda row: [*GRAPHS, SAME, ANTI, MEMORY, TIME].index(row.panel))


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    longest = int(rows[rows["axis"] == "rounds"]["point"].max())
    best = max(
        float(value / min(values(rows, place, other, at)[0] for other in (FRESH, CENTRAL, ROOT)))
        for place in GRAPHS
        for at, value in rows[(rows["panel"] == place) & (rows["series"] == GRAPH)][["point", "value"]].to_numpy()
    )
    statement = "error of the optimal factor of the graph over the smallest other error: largest ratio of all graphs"
    largest = [*GRAPHS][-1]

    def at_end(place: str, name: str) -> float:
        return float(values(rows, place, name, longest)[0])

    ends = [(place, at_end(place, GRAPH), at_end(place, CENTRAL)) for place in GRAPHS]
    peak, matrix = (rows[rows["series"] == name]["value"].max() for name in ("eigenvalues", "matrix of all powers"))
    seconds = rows[rows["panel"] == TIME]["value"].max()
    ratios = "; ".join(f"{place}: {graph:.2f} and {one:.2f}" for place, graph, one in ends)
    worst = rows[rows["panel"] == ANTI]["value"].max()
    return [Check(statement, exactly(best), (0.0, 1.0))], [
        f"Error after {longest} rounds relative to independent noise at equal μ, for the optimal factor of the graph "
        f"and the optimal factor of one model: {ratios}. Averages over hundreds of agents cancel most noise within a "
        "few rounds, so a factor that ignores the graph cancels little more.",
        f"The error of AntiPGD is up to {worst:.0f} times that of independent noise, because a record is read "
        f"{longest // APART} times.",
        f"G of {largest} takes {peak / 1e6:.3g} MB and {seconds:.2g} s. The matrix of all powers would take "
        f"{matrix / 1e9:.3g} GB.",
    ]
