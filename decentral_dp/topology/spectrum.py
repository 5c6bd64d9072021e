"""Second smallest and largest eigenvalue of a weighted graph Laplacian, to known accuracy at any size.

Up to `DENSE` agents a dense symmetric solver gives both to rounding. Above it Lanczos is used where the spectrum is
well separated (expanders, random graphs); where the gap is small, which is where Lanczos stalls, the graph is sparse
with small separators (rings, grids, trees), and a sparse factorisation inverts the Laplacian cheaply.
Accuracy: the second smallest eigenvalue to 10⁻⁶ relative, the largest to 10⁻⁶ absolute (tested against closed forms).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from decentral_dp.topology.graph import Array

DENSE = 600
# Below this share of the largest eigenvalue the gap is small enough to be worth a factorisation.
SMALL_GAP = 1e-3


def laplacian_ends(laplacian: Any) -> tuple[float, float]:
    """(λ₂, λ_m) of the Laplacian of a connected graph, a symmetric sparse matrix with zero row sums.

    For a single agent, whose Laplacian has no second eigenvalue, (1, 1): averaging is already exact.
    """
    agents = laplacian.shape[0]
    if agents == 1:
        return 1.0, 1.0
    if agents <= DENSE:
        values = np.linalg.eigvalsh(laplacian.toarray())
        return float(values[1]), float(values[-1])
    largest = _largest(laplacian)
    return _second_smallest(laplacian, largest), largest


def _start(agents: int) -> Array:
    """A fixed starting vector without mean: the solver must give the same digits every time."""
    vector = np.random.default_rng([agents]).standard_normal(agents)
    return np.asarray(vector - vector.mean())


def _largest(laplacian: Any) -> float:
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    options = {"k": 1, "v0": _start(laplacian.shape[0]), "return_eigenvectors": False}
    try:
        value = eigsh(laplacian, which="LA", ncv=40, maxiter=50, tol=1e-7, **options)
    except ArpackNoConvergence:
        # Twice the largest diagonal entry bounds every eigenvalue (Gershgorin); invert from just above it.
        bound = 2.0 * float(laplacian.diagonal().max())
        value = eigsh(laplacian.tocsc(), sigma=bound * (1.0 + 1e-6), which="LM", ncv=40, tol=1e-9, **options)
    return float(value[0])


def _second_smallest(laplacian: Any, largest: float) -> float:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    agents = laplacian.shape[0]

    def reflected(v: Array) -> Array:
        flat = v.reshape(-1) - v.mean()
        return np.asarray(largest * flat - laplacian @ flat)

    operator = LinearOperator((agents, agents), matvec=reflected, dtype=np.float64)
    try:
        value = eigsh(
            operator, k=1, which="LA", v0=_start(agents), ncv=40, maxiter=20, tol=1e-9, return_eigenvectors=False
        )
    except ArpackNoConvergence:
        return _by_inverse(laplacian)
    gap = largest - float(value[0])
    return gap if gap > SMALL_GAP * largest else _by_inverse(laplacian)


def _by_inverse(laplacian: Any) -> float:
    """1 / the largest eigenvalue of the pseudo-inverse: solve with one agent grounded, then remove the mean."""
    from scipy.sparse.linalg import LinearOperator, eigsh, splu

    agents = laplacian.shape[0]
    factor = splu(
        laplacian[:-1, :-1].tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )

    def pseudo_inverse(v: Array) -> Array:
        flat = v.reshape(-1) - v.mean()
        solved = np.append(factor.solve(flat[:-1]), 0.0)
        return np.asarray(solved - solved.mean())

    operator = LinearOperator((agents, agents), matvec=pseudo_inverse, dtype=np.float64)
    value = eigsh(operator, k=1, which="LA", v0=_start(agents), ncv=20, tol=1e-10, return_eigenvectors=False)
    return 1.0 / float(value[0])
