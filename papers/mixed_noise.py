"""Noise correlated in time, mixed over a graph: Figure 3 of Bellet et al. 2025 (MAFALDA-SGD) without its matrices.

Every agent adds n = C⁻¹ n° to its steps and averages, x_{t+1} = W(x_t − η(g_t + n_t)). Every message is released, so
that the privacy cost is that of one agent's rounds, for every graph: μ² is proportional to sens²(C), the largest ‖C u‖²
over the rounds u that read one record. The noise in all models of all rounds is, per agent and coordinate,

    E = (1/m) Σ_{s,s'} G_{s,s'} (C⁻¹C⁻ᵀ)_{s,s'},      G_{s,s'} = Σ_t tr(W^{t−s+1} (W^{t−s'+1})ᵀ),

and factors are compared by E · sens²(C), at equal μ. The official code (github.com/dimiarbre/MFDL, its README and code
of c852929; of the paper its abstract and introduction were read, and not its figures) builds the mT × mT matrix of all
W^{t−s+1} for G, about 200 GB by its documentation. Here W is reversible, π_i w_ij = π_j w_ji,
with eigenvalues λ and eigenvectors U of the symmetric Π^{1/2} W Π^{−1/2}:

    tr(W^a (W^b)ᵀ) = Σ_{k,l} λ_k^a K_kl λ_l^b,      K = (Uᵀ Π U) ∘ (Uᵀ Π⁻¹ U),

so that G takes O(m³ + m²T + mT²) operations and O(m² + T²) floats. For a factor that is constant over rounds,
h_t = λ (h_{t−1} + a_t) per eigenvalue, with a the first column of C⁻¹, gives E of all numbers of rounds at once:
O(m²T), or O(mT) where W is symmetric, and no T × T matrix at all.
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
from decentral_dp.simulation.statistics import exactly
from decentral_dp.topology import build_topology, from_file
from papers.findings import Check, Row, values

# Batches of an epoch, as the official script has them: a record is read in every sixteenth round.
APART = 16
EPOCHS, QUICK_EPOCHS = (1, 2, 4, 10, 20), (1, 2, 4)
DELTA, EPSILON = 1e-6, 10.0
FRESH, ANTI = "fresh noise", "AntiPGD"
GRAPH, CENTRAL = "optimal for the graph (MAFALDA)", "optimal for one model"
ROOT = "banded square root"
# The paper's graphs of 148, 271 and 919 agents are unavailable files; preferential attachment replaces them.
GRAPHS: Mapping[str, Any] = {
    "florentine families, 15 agents": lambda: from_file("florentine_families"),
    "hypercube, 64": lambda: build_topology("hypercube", 64),
    "path, 128": lambda: build_topology("path", 128),
    "preferential attachment, 148": lambda: build_topology("preferential_attachment", 148, {"attach": 2}, seed=1),
    "preferential attachment, 271": lambda: build_topology("preferential_attachment", 271, {"attach": 2}, seed=1),
    "preferential attachment, 919": lambda: build_topology("preferential_attachment", 919, {"attach": 2}, seed=1),
}
SAME, MEMORY, TIME = "the same noise at less ε, after the most rounds", "memory for G", "seconds for G"
ERROR, AT_EPSILON = "noise in all models, over that of fresh noise", f"ε that takes as little noise as ε = {EPSILON:g}"


class Spectrum(NamedTuple):
    """The spectrum of W: eigenvalues λ, (m,), and K, (m, m), the kernel of m E in powers of λ."""

    values: Array
    kernel: Array


def mixing_of(edges: Any, agents: int) -> tuple[Array, Array]:
    """Form the W of the official code, the mean over an agent and its neighbours.

    Args:
        edges: (E, 2) links.
        agents: m.

    Returns:
        W, (m, m), whose rows add up to 1; and π, (m,), how many each mean is over.
    """
    near = np.eye(agents)
    near[edges[:, 0], edges[:, 1]] = near[edges[:, 1], edges[:, 0]] = 1.0
    law = near.sum(axis=1)
    return near / law[:, None], law


def spectrum(mixing: Array, law: Array) -> Spectrum:
    """Diagonalise a W that is reversible with respect to π.

    Args:
        mixing: W, (m, m).
        law: π, (m,), above 0; it need not add up to 1.

    Raises:
        numpy.linalg.LinAlgError: its eigenvalues do not converge.
    """
    root = np.sqrt(law)
    eigenvalues, vectors = np.linalg.eigh(root[:, None] * mixing / root)
    return Spectrum(eigenvalues, (vectors.T * law) @ vectors * ((vectors.T / law) @ vectors))


def gram(graph: Spectrum, rounds: int) -> Array:
    """Compute the G with m E = tr(G X⁻¹).

    Args:
        graph: the spectrum of W.
        rounds: T.

    Returns:
        (T, T).
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
        bands: coefficients of C.
        apart: number of rounds between reads of a record.

    Returns:
        a, (T,): what a draw of round 0 adds to the noise of each round; and sens².
    """
    factor = banded_square_root(rounds, bands, apart)
    series = np.zeros(rounds)
    series[: factor.noise_weights.size + 1] = [1.0, *factor.noise_weights]
    column = scipy.linalg.solve_toeplitz((series, np.eye(1, rounds)[0]), np.eye(1, rounds)[0])
    return column, float(np.square(factor.row_sums).sum())


def anti_pgd(rounds: int, apart: int) -> tuple[Array, float]:
    """Compute the same of AntiPGD (Orvieto et al. 2022): C⁻¹ = 1 − x, each round subtracts the draw before.

    Args:
        rounds: T, at least 2.
        apart: number of rounds between reads of a record.

    Returns:
        a, (T,), and sens². The entries of C are 1, so the reads up to round t show their number.
    """
    column = np.zeros(rounds)
    column[:2] = 1.0, -1.0
    return column, float(np.square(np.arange(rounds) // apart + 1.0).sum())


def errors(graph: Spectrum, column: Array) -> Array:
    """Compute the noise in all models, of a factor whose C⁻¹ is a Toeplitz matrix.

    Args:
        graph: the spectrum of W.
        column: (T,), the first of C⁻¹.

    Returns:
        (T,) m E after 1, …, T rounds, in the square of a draw's unit.
    """
    h, shares = np.zeros(graph.values.size), np.zeros(column.size)
    for t, a in enumerate(column):
        h = graph.values * (h + a)
        shares[t] = h @ graph.kernel @ h
    return np.cumsum(np.cumsum(shares))


def optimum(whole: Array, apart: int) -> Array:
    """Find the X = CᵀC of sens 1, without entries between rounds that read one record, of least m E = tr(G X⁻¹).

    Without such entries sens² is the largest sum of X's diagonal over the rounds that read a record (Choquette-Choo et
    al. 2023, whose program the official code follows). At most 300 steps, that stop where 10⁻⁶ is gained.

    Args:
        whole: G, (T, T).
        apart: number of rounds between reads of a record.

    Returns:
        X, (T, T).
    """
    rounds = len(whole)
    phase = np.arange(rounds) % apart
    at = np.nonzero(np.tril(phase[:, None] != phase, -1))
    scale = np.trace(whole)

    def gram_of(z: Array) -> tuple[Array, Array]:
        shares = np.exp(z[at[0].size :])
        shares = shares / np.bincount(phase, shares)[phase]
        x = np.diag(shares)
        x[at] = x.T[at] = z[: at[0].size]
        return x, shares

    def loss(z: Array) -> tuple[float, Array]:
        x, shares = gram_of(z)
        try:
            root = scipy.linalg.cho_factor(x)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(z)
        solved = scipy.linalg.cho_solve(root, whole) / scale
        slope = -scipy.linalg.cho_solve(root, solved.T)
        diagonal = slope.diagonal()
        along = shares * (diagonal - np.bincount(phase, shares * diagonal)[phase])
        return float(np.trace(solved)), np.concatenate([2.0 * slope[at], along])

    start = np.zeros(at[0].size + rounds)
    options = {"maxiter": 300, "maxfun": 900, "ftol": 1e-6}
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return gram_of(found.x)[0]


def error_of(whole: Array, x: Array) -> float:
    """Compute m E = tr(G X⁻¹).

    Args:
        whole: G, (T, T).
        x: X = CᵀC, (T, T), positive definite.

    Raises:
        numpy.linalg.LinAlgError: X is singular.
    """
    return float(np.trace(scipy.linalg.solve(x, whole, assume_a="pos")))


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure every point of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether there are fewer points and repetitions, in seconds.

    Returns:
        A row for each measured number, with the columns `findings.COLUMNS`.
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
        whole = gram(graph, longest)
        held, seconds = tracemalloc.get_traced_memory()[1], perf_counter() - start
        tracemalloc.stop()
        for k in epochs:
            rounds = APART * k
            fresh = k * errors(graph, np.eye(1, rounds)[0])[-1]
            found = {FRESH: 1.0}
            for name, (column, price) in (
                (ROOT, square_root(rounds, APART, APART)),
                (ANTI, anti_pgd(rounds, APART)),
            ):
                found[name] = errors(graph, column)[-1] * price / fresh
            # G of fewer rounds is the lower right corner of that of more.
            here = whole[-rounds:, -rounds:]
            found[CENTRAL] = error_of(here, central[k]) / fresh
            found[GRAPH] = error_of(here, optimum(here, APART)) / fresh
            of = {name: (ANTI, place) if name == ANTI else (place, name) for name in found}
            rows += [Row(*of[name], "rounds", rounds, ERROR, 0, value) for name, value in found.items()]
        worth = largest_mu(EPSILON, DELTA)
        for name in (GRAPH, CENTRAL, ROOT):
            value = float(gaussian_epsilon(worth * math.sqrt(found[name]), DELTA))
            rows.append(Row(SAME, name, "agents", agents, AT_EPSILON, 0, value))
        sizes = {"eigenvalues": float(held), "the matrix of all powers": 8.0 * (agents * longest) ** 2}
        rows += [Row(MEMORY, name, "agents", agents, "bytes", 0, value) for name, value in sizes.items()]
        rows.append(Row(TIME, "eigenvalues", "agents", agents, "seconds", 0, seconds))
    return sorted(rows, key=lambda row: [*GRAPHS, SAME, ANTI, MEMORY, TIME].index(row.panel))


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Hold the claims against what was measured.

    Args:
        rows: table of measured numbers, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the numbers.
    """
    longest = int(rows[rows["axis"] == "rounds"]["at"].max())
    best = max(
        float(value / min(values(rows, place, other, at)[0] for other in (FRESH, CENTRAL, ROOT)))
        for place in GRAPHS
        for at, value in rows[(rows["panel"] == place) & (rows["series"] == GRAPH)][["at", "value"]].to_numpy()
    )
    statement = "The graph's own factor adds less noise than every other, on every graph: the largest ratio"
    largest = [*GRAPHS][-1]

    def at_end(place: str, name: str) -> float:
        return float(values(rows, place, name, longest)[0])

    ends = [(place, at_end(place, GRAPH), at_end(place, CENTRAL)) for place in GRAPHS]
    held, matrix = (rows[rows["series"] == name]["value"].max() for name in ("eigenvalues", "the matrix of all powers"))
    slow = rows[rows["panel"] == TIME]["value"].max()
    ratios = "; ".join(f"{place}: {own:.2f} and {one:.2f}" for place, own, one in ends)
    worst = rows[rows["panel"] == ANTI]["value"].max()
    return [Check(statement, exactly(best), (0.0, 1.0))], [
        f"Noise after {longest} rounds over that of fresh draws at equal μ, for the factor of the graph and the "
        f"best one for a single model: {ratios}. Averages over hundreds of agents cancel most noise in a few rounds, "
        "and a factor that ignores the graph has little left to cancel.",
        f"AntiPGD adds up to {worst:.0f} times as much as fresh noise: a record is read {longest // APART} times.",
        f"G of {largest} takes {held / 1e6:.3g} MB and {slow:.2g} s here; the matrix of all powers would take "
        f"{matrix / 1e9:.3g} GB.",
    ]
