"""Searches over everything that constants and sensitivities bound, by the adversary of `papers.counterexamples`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Split
from papers.counterexamples import (
    TARGETS,
    NeighbourPair,
    SearchResult,
    SearchSpace,
    climb,
    minimiser,
    norm,
    search,
)

Measure = Callable[[NeighbourPair], float]


def _slope(f: Callable[[Array], Array], one: Array, other: Array) -> float:
    """‖f(u) − f(u')‖/‖u − u'‖; 0 where the points are so near that float64 has no digits left."""
    distance = norm(one - other)
    return norm(f(one) - f(other)) / distance if distance > 1e-4 else 0.0


def _norm_m(w: NeighbourPair) -> float:
    y = minimiser(w, w.x, 0)
    hessian, jacobian = w.second(w.x, y, 0)
    return norm(np.asarray(np.linalg.solve(hessian, jacobian.T)))


def _swap(f: Callable[[int], Array]) -> float:
    return norm(f(0) - f(1))


# Constant → its value in a data set of one record of each role; "radius" and "m" are of minimisers, in any data set. μ
# is inverted, so that every constant is a largest value.
MEASURES: Mapping[str, Callable[[NeighbourPair], float]] = {
    "mu": lambda w: 1.0 / float(np.linalg.eigvalsh(w.second(w.x, w.y, 0)[0])[0]),
    "l_fx": lambda w: norm(w.terms(w.x, w.y, 0, "upper_grad_x")),
    "l_fy": lambda w: norm(w.terms(w.x, w.y, 0, "upper_grad_y")),
    "l_gy": lambda w: norm(w.lower_gradient(w.x, w.y, 0)),
    "d_fx": lambda w: _swap(lambda i: w.terms(w.x, w.y, i, "upper_grad_x")),
    "d_fy": lambda w: _swap(lambda i: w.terms(w.x, w.y, i, "upper_grad_y")),
    "d_gy": lambda w: _swap(lambda i: w.terms(w.x, w.y, i, "lower_grad_y")),
    "b_fxx": lambda w: _slope(lambda x: w.terms(x, w.y, 0, "upper_grad_x"), w.x, w.x2),
    "b_fxy": lambda w: _slope(lambda y: w.terms(w.x, y, 0, "upper_grad_x"), w.y, w.y2),
    "b_fyy": lambda w: _slope(lambda y: w.terms(w.x, y, 0, "upper_grad_y"), w.y, w.y2),
    "b_gxy": lambda w: norm(w.second(w.x, w.y, 0)[1]),
    "b_gyy": lambda w: norm(w.second(w.x, w.y, 0)[0]),
    "d_hxy": lambda w: _swap(lambda i: w.matrices(w.x, w.y, i)[1]),
    "d_hyy": lambda w: _swap(lambda i: w.matrices(w.x, w.y, i)[0]),
    "c_gxy": lambda w: _slope(lambda y: w.second(w.x, y, 0)[1], w.y, w.y2),
    "c_gyy": lambda w: _slope(lambda y: w.second(w.x, y, 0)[0], w.y, w.y2),
    "m_gxy": lambda w: _slope(lambda x: w.second(x, w.y, 0)[1], w.x, w.x2),
    "m_gyy": lambda w: _slope(lambda x: w.second(x, w.y, 0)[0], w.x, w.x2),
    "radius": lambda w: norm(minimiser(w, w.x, 0) - w.centre),
    "m": _norm_m,
}


def search_all(space: SearchSpace, seed: int, tries: int = 200) -> dict[str, SearchResult]:
    """Search for the worst neighbours of every sensitivity and each role.

    Args:
        space: the public domain.
        seed: of the random instances.
        tries: for each, default 200.

    Returns:
        Names like "minimiser.train" → the worst neighbours found.
    """
    return {f"{target}.{role}": search(space, target, role, seed, tries) for target in TARGETS for role in SPLITS}


def search_constants(
    space: SearchSpace, seed: int, tries: int = 100, names: Collection[str] = tuple(MEASURES)
) -> dict[str, SearchResult]:
    """Search for the largest values of what the constants bound.

    Args:
        space: the public domain.
        seed: of the random instances.
        tries: for each constant, default 100.
        names: fields of `ProblemConstants`, default all that are measured.

    Returns:
        Field → the largest value found, and the constant at that x. For μ: 1/eigenvalue and 1/μ.
    """
    single = replace(space, n_train=1, n_validation=1)
    out = {}
    for at, (name, measure) in enumerate(MEASURES.items()):
        if name not in names:
            continue
        of = space if name in ("radius", "m") else single
        role: Split = "validation" if name in ("d_fx", "d_fy") else "train"
        # If x moves too, the constants are those of the box between the two points.
        both = name in ("b_fxx", "m_gxy", "m_gyy")

        def tried(
            parameters: Array,
            name: str = name,
            of: SearchSpace = of,
            role: Split = role,
            both: bool = both,
            measure: Measure = measure,
        ) -> SearchResult:
            pair = of.pair(parameters, role)
            ends = (np.minimum(pair.x, pair.x2), np.maximum(pair.x, pair.x2)) if both else (pair.x, pair.x)
            known = float(getattr(space.family.constants(*ends), name))
            return SearchResult(measure(pair), 1.0 / known if name == "mu" else known)

        out[name] = climb(tried, space, [seed, len(TARGETS) + at], tries)
    return out
