"""Noise that a graph mixes: eigenvalues compared with the dense matrices of all rounds."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.linalg import toeplitz

from decentral_dp.bounded import Array
from papers.mixed_noise import anti_pgd, error_of, errors, gram, mixing_of, optimum, spectrum, square_root

ROUNDS = 12


def dense(mixing: Array, rounds: int) -> Array:
    """The matrix from all agents' noise of all rounds to their models after each round, agent by agent, (mT, m, T)."""
    m = len(mixing)
    out = np.zeros((rounds, m, m, rounds))
    for t in range(rounds):
        for s in range(t + 1):
            out[t, :, :, s] = np.linalg.matrix_power(mixing, t - s + 1)
    return out.reshape(rounds * m, m, rounds)


@pytest.fixture(params=[nx.florentine_families_graph(), nx.star_graph(4), nx.path_graph(6)])
def mixing(request: pytest.FixtureRequest) -> tuple[Array, Array]:
    graph = nx.convert_node_labels_to_integers(request.param)
    return mixing_of(np.array(graph.edges), len(graph))


def test_the_gram_matrix_is_that_of_all_powers(mixing: tuple[Array, Array]) -> None:
    powers = dense(mixing[0], ROUNDS)
    assert gram(spectrum(*mixing), ROUNDS) == pytest.approx(np.einsum("rms,rmt->st", powers, powers), rel=1e-10)


@pytest.mark.parametrize("column", [square_root(ROUNDS, 4, 1)[0], anti_pgd(ROUNDS, 1)[0]], ids=["root", "anti_pgd"])
def test_errors_are_those_of_the_covariance_of_all_models(mixing: tuple[Array, Array], column: Array) -> None:
    factor = toeplitz(column, np.zeros(ROUNDS))
    computed = errors(spectrum(*mixing), column)
    for rounds in (1, 5, ROUNDS):
        models = dense(mixing[0], rounds) @ factor[:rounds, :rounds]
        assert computed[rounds - 1] == pytest.approx(np.square(models).sum(), rel=1e-10)


def test_the_optimum_of_one_read_is_that_of_its_fixed_point(mixing: tuple[Array, Array]) -> None:
    """For records that are read once, the best X has v = diag((v^{1/2} G v^{1/2})^{1/2}) (Denisov et al. 2022)."""
    gram_matrix = gram(spectrum(*mixing), ROUNDS)
    v = np.ones(ROUNDS)
    for _ in range(3000):
        values, vectors = np.linalg.eigh(np.sqrt(v)[:, None] * gram_matrix * np.sqrt(v))
        v = ((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T).diagonal()
    # At a zero of the gradient, the error is the sum of the multipliers.
    assert error_of(gram_matrix, optimum(gram_matrix, ROUNDS)) == pytest.approx(v.sum(), rel=1e-3)


def test_the_optimum_has_sensitivity_one_and_is_best(mixing: tuple[Array, Array]) -> None:
    gram_matrix, apart = gram(spectrum(*mixing), ROUNDS), 4
    x = optimum(gram_matrix, apart)
    for phase in range(apart):
        read = x[phase::apart, phase::apart]
        assert np.abs(read).sum() == pytest.approx(1.0)
    for column, price in (square_root(ROUNDS, 4, apart), anti_pgd(ROUNDS, apart)):
        factor = np.linalg.inv(toeplitz(column, np.zeros(ROUNDS)))
        shown = max(np.square(factor[:, phase::apart].sum(axis=1)).sum() for phase in range(apart))
        assert price == pytest.approx(shown, rel=1e-12)
        assert error_of(gram_matrix, x) < errors(spectrum(*mixing), column)[-1] * price
