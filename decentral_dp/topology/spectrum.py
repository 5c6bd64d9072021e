"""Second smallest and largest eigenvalues of a weighted graph Laplacian, with an accuracy that is tested.

A dense symmetric solver computes both up to `DENSE` agents. For more agents, one Lanczos run without stored vectors
computes both, because ARPACK also computes eigenvectors, which do not converge for rings and lattices. Lanczos is slow
for a small λ₂, which is computed by inverting the Laplacian: a small gap means small separators, so the sparse
factorisation is cheap. In tests against closed forms at 10⁴ agents, the relative errors are at most 10⁻⁶ for λ₂ and
10⁻⁵ for λ_m.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from decentral_dp.bounded import Array

DENSE = 600
# For directed graphs, for which the iteration is less reliable.
_DENSE_DIRECTED = 1500
# Below this fraction of λ_m, λ₂ is found by a factorisation.
SMALL = 1e-3
MAX_STEPS = 1000
CHECK_EVERY = 40
LANCZOS_ERROR = 1e-5


def laplacian_ends(laplacian: Any) -> tuple[float, float]:
    """Compute the second smallest and the largest eigenvalue of a connected graph's Laplacian.

    Args:
        laplacian: symmetric sparse matrix with zero row sums, (m, m).

    Returns:
        The pair (λ₂, λ_m), with the accuracy stated in the module docstring, or (1, 1) for a single agent.

    Example:
        >>> from scipy.sparse import csr_array
        >>> path = csr_array(np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]))
        >>> [round(v, 6) for v in laplacian_ends(path)]
        [1.0, 3.0]
    """
    agents = laplacian.shape[0]
    if agents == 1:
        return 1.0, 1.0
    if agents <= DENSE:
        values = np.linalg.eigvalsh(laplacian.toarray())
        return float(values[1]), float(values[-1])
    low, high = _lanczos(laplacian)
    return (low if low > SMALL * high else _by_inverse(laplacian)), high


def second_largest(mixing: Any) -> float:
    """Compute |λ₂|, the second largest modulus among the eigenvalues of a column-stochastic matrix.

    Args:
        mixing: sparse matrix A, (m, m).

    Limits:
        Arnoldi iteration is used above 1500 agents. If it does not converge, as on rings, a factorisation computes the
        ten eigenvalues nearest to 1, and the largest is returned.

    Example:
        >>> from scipy.sparse import csr_array
        >>> round(second_largest(csr_array(np.array([[0.5, 0.0, 0.5], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]))), 6)
        0.5
    """
    agents = mixing.shape[0]
    if agents == 1:
        return 0.0
    if agents <= _DENSE_DIRECTED:
        values = np.linalg.eigvals(mixing.toarray())
    else:
        from scipy.sparse.linalg import ArpackNoConvergence, eigs

        start, only = _start(agents), {"return_eigenvectors": False}
        try:
            values = eigs(mixing, k=2, which="LM", v0=start, ncv=40, maxiter=100, **only)
        except ArpackNoConvergence:
            # Slightly off 1, which is an eigenvalue itself.
            values = eigs(mixing.tocsc(), k=10, sigma=1.0 + 1e-6, v0=start, **only)
    return float(np.sort(np.abs(values))[-2])


def _start(agents: int) -> Array:
    """Return a fixed unit vector with mean 0, for reproducibility."""
    vector = np.random.default_rng([agents]).standard_normal(agents)
    vector -= vector.mean()
    return np.asarray(vector / np.linalg.norm(vector))


def _lanczos(laplacian: Any) -> tuple[float, float]:
    """Compute the smallest and largest eigenvalues on vectors with mean 0.

    Without reorthogonalisation, converged eigenvalues repeat and the ends stay correct (Paige, 1980). Both estimates
    converge from inside the spectrum. `low` may be inaccurate if it is below SMALL · high.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    vector = _start(laplacian.shape[0])
    previous = np.zeros_like(vector)
    diagonal: list[float] = []
    off_diagonal: list[float] = [0.0]
    low, high = np.inf, 0.0
    for step in range(1, min(MAX_STEPS, laplacian.shape[0] - 1) + 1):
        following = laplacian @ vector - off_diagonal[-1] * previous
        diagonal.append(float(following @ vector))
        following -= diagonal[-1] * vector
        following -= following.mean()
        off_diagonal.append(float(np.linalg.norm(following)))
        is_exhausted = off_diagonal[-1] <= 1e-13 * max(high, diagonal[0])
        if is_exhausted or step % CHECK_EVERY == 0:
            was_low, was_high = low, high
            ends = [
                eigvalsh_tridiagonal(diagonal, off_diagonal[1:-1], select="i", select_range=(k, k))[0]
                for k in (0, step - 1)
            ]
            low, high = float(ends[0]), float(ends[1])
            is_settled = low < SMALL * high or was_low - low <= 1e-9 * low
            if is_exhausted or (is_settled and high - was_high <= 1e-9 * high):
                break
        previous, vector = vector, following / off_diagonal[-1]
    return low, high


def _by_inverse(laplacian: Any) -> float:
    """Return 1/(largest eigenvalue of the pseudo-inverse), by solves with one agent grounded and the mean removed."""
    from scipy.sparse.linalg import LinearOperator, eigsh, splu

    agents = laplacian.shape[0]
    factor = splu(
        laplacian[:-1, :-1].tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )

    def pseudo_inverse(v: Array) -> Array:
        flat = v.reshape(-1) - v.mean()
        solution = np.append(factor.solve(flat[:-1]), 0.0)
        return np.asarray(solution - solution.mean())

    operator = LinearOperator((agents, agents), matvec=pseudo_inverse, dtype=np.float64)
    value = eigsh(operator, k=1, which="LA", v0=_start(agents), ncv=20, tol=1e-10, return_eigenvectors=False)
    return 1.0 / float(value[0])
