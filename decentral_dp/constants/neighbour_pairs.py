"""Two neighbouring small datasets, and unclipped through a problem's oracles everything that releases are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.constants.problem_constants import Clips
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import Placed, Problem, Terms
from decentral_dp.problems.records import regulariser_matrices, take

_UNCLIPPED = Clip("l2")
_NEWTON_STEPS, _HALVINGS = 100, 40
_TOLERANCE = 1e-12
_STEP = 1e-5


@dataclass(frozen=True)
class NeighbourPair:
    """Two neighbouring datasets, and points at which to compare them.

    Args:
        problem: the bilevel problem.
        x: (p,) first point.
        x2: (p,) second point.
        centre: (q,) centre of the ball of minimisers.
        y: (q,) first point in the ball.
        y2: (q,) second point in the ball.
        sides: (train, validation) records of each of the two neighbours.
    """

    problem: Problem
    x: Array
    x2: Array
    centre: Array
    y: Array
    y2: Array
    sides: tuple[tuple[Any, Any], tuple[Any, Any]]

    @classmethod
    def of(
        cls,
        problem: Problem,
        points: tuple[Array, Array],
        states: tuple[Array, Array, Array],
        records: Sequence[tuple[Array, Array]],
        counts: tuple[int, int],
        role: Split,
    ) -> NeighbourPair:
        """Make two neighbours from records.

        Args:
            problem: the bilevel problem.
            points: x and x2, (p,) each.
            states: centre, y and y2, (q,) each.
            records: the replaced record and its replacement, other train records, other validation records; (features,
                labels) each.
            counts: of train and validation records; the others are repeated until there are as many.
            role: the kind of the replaced record.
        """
        pair, *others = records
        sides = []
        for which in range(2):
            built = []
            for split, n, (a, b) in zip(SPLITS, counts, others, strict=True):
                index = np.arange(n) % len(a)
                a, b = a[index], b[index]
                if split == role:
                    a[0], b[0] = pair[0][which], pair[1][which]
                built.append(_prepared(problem, a, b, split))
            sides.append((built[0], built[1]))
        return cls(problem, *points, *states, (sides[0], sides[1]))

    def terms(self, x: Array, y: Array, side: int, wanted: str, clip: Clip = _UNCLIPPED) -> Array:
        """Return one mean term over the records of one of the two data sets.

        Args:
            x: (p,).
            y: (q,).
            side: 0 or 1, which data set.
            wanted: the term.
            clip: of each record's contribution; by default none.

        Returns:
            (p,) or (q,); zero where it reads no record.
        """
        out: Terms = self.problem.terms(x, y, np.zeros_like(y), *self.sides[side], clip, (wanted,))
        value = getattr(out, wanted)
        return np.zeros(self.problem.p if wanted.endswith("x") else self.problem.q) if value is None else value

    def matrices(self, x: Array, y: Array, side: int, clip: Clip = _UNCLIPPED) -> tuple[Array, Array]:
        """Return the means over train records of ∇²_yy l and ∇²_xy l.

        Args:
            x: (p,).
            y: (q,).
            side: 0 or 1, which data set.
            clip: of each record's contribution; by default none.

        Returns:
            (q, q) and (p, q); zero where they read no record.
        """
        names = ("lower_hessian", "lower_jacobian")
        out = self.problem.matrices(x, y, None, self.sides[side][0], clip, names)
        p, q = self.problem.p, self.problem.q
        return out.get(names[0], np.zeros((q, q))), out.get(names[1], np.zeros((p, q)))

    def regulariser(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return ∇²_yy R and ∇²_xy R."""
        whole = regulariser_matrices(self.problem, x[None], y[None], None)
        return whole.hessian[0], whole.jacobian[0]

    def second(self, x: Array, y: Array, side: int) -> tuple[Array, Array]:
        """Return ∇²_yy G and ∇²_xy G."""
        of_records, common = self.matrices(x, y, side), self.regulariser(x, y)
        return of_records[0] + common[0], of_records[1] + common[1]

    def lower_gradient(self, x: Array, y: Array, side: int) -> Array:
        """Return ∇_y G, (q,)."""
        common = self.problem.regulariser(x[None], y[None], y[None]).grad_y[0]
        return np.asarray(self.terms(x, y, side, "lower_grad_y") + common)


def norm(value: Array) -> float:
    """Return the l2 norm of a vector, the spectral norm of a matrix.

    Example:
        >>> norm(np.array([3.0, 4.0])), norm(np.diag([1.0, 2.0]))
        (5.0, 2.0)
    """
    return float(np.linalg.norm(value, 2))


def minimiser(pair: NeighbourPair, x: Array, side: int) -> Array:
    """Compute argmin_y G(x, y), (q,), on one side."""
    return _newton(
        lambda y: pair.lower_gradient(x, y, side), lambda y: pair.second(x, y, side)[0], np.zeros(pair.problem.q)
    )


def penalised(pair: NeighbourPair, lam: float, side: int) -> Array:
    """Compute argmin_y G + F/λ at the first x; the Hessian of F by differences."""
    x = pair.x

    def gradient(y: Array) -> Array:
        return pair.lower_gradient(x, y, side) + pair.terms(x, y, side, "upper_grad_y") / lam

    def hessian(y: Array) -> Array:
        rows = [
            (pair.terms(x, y + e, side, "upper_grad_y") - pair.terms(x, y - e, side, "upper_grad_y")) / (2.0 * _STEP)
            for e in _STEP * np.eye(len(y))
        ]
        return pair.second(x, y, side)[0] + np.array(rows) / lam

    return _newton(gradient, hessian, np.zeros(pair.problem.q))


def estimate(pair: NeighbourPair, x: Array, y: Array, side: int) -> Array:
    """Compute ∇_x F − G_xy G_yy⁻¹ ∇_y F at y.

    Args:
        pair: the two data sets and their problem.
        x: (p,).
        y: (q,).
        side: 0 or 1, which data set.

    Returns:
        (p,).
    """
    hessian, jacobian = pair.second(x, y, side)
    solved = np.linalg.solve(hessian, pair.terms(x, y, side, "upper_grad_y"))
    return np.asarray(pair.terms(x, y, side, "upper_grad_x") - jacobian @ solved)


def implicit(pair: NeighbourPair, clips: Clips, side: int) -> Array:
    """Compute a − J H⁻¹ b at the first (x, y), every record's part clipped."""
    x, y = pair.x, pair.y
    a = pair.terms(x, y, side, "upper_grad_x", Clip("l2", x=clips.a))
    b = pair.terms(x, y, side, "upper_grad_y", Clip("l2", z=clips.b))
    hessian, jacobian = pair.matrices(x, y, side, Clip("l2", x=clips.j, z=clips.h))
    common = pair.regulariser(x, y)
    return np.asarray(a - (jacobian + common[1]) @ np.linalg.solve(hessian + common[0], b))


def score(pair: NeighbourPair, x: Array, side: int) -> float:
    """Compute Φ(x) = F(x, y_Z(x)) on one side."""
    validation = pair.sides[side][1]
    n = len(validation[0])
    y = minimiser(pair, x, side)
    return float(pair.problem.losses(x[None], y[None], validation, np.full(n, 1.0 / n))[1][0])


def _prepared(problem: Problem, features: Array, labels: Array, split: Split) -> Any:
    """Records as the oracle reads them; where it matters who holds them, agents hold about as many each, in order."""
    records = problem.prepare(features, labels, "l2")
    if split == "validation" or not isinstance(problem, Placed):
        return records
    agents = int(getattr(problem, "agents", 1))
    shards = [take(records, part) for part in np.array_split(np.arange(len(labels)), agents)]
    placed = [problem.placed(shard, agent) for agent, shard in enumerate(shards) if len(shard[0])]
    return type(placed[0])(*(np.concatenate(column) for column in zip(*placed, strict=True)))


def _newton(gradient: Callable[[Array], Array], hessian: Callable[[Array], Array], start: Array) -> Array:
    """Where the gradient of a strongly convex function vanishes; steps are halved until it shrinks."""
    y, slope = start, gradient(start)
    enough = _TOLERANCE * max(norm(slope), 1.0)
    for _ in range(_NEWTON_STEPS):
        if norm(slope) <= enough:
            break
        step = np.linalg.solve(hessian(y), slope)
        for halving in range(_HALVINGS):
            there = y - 0.5**halving * step
            sensitivity = gradient(there)
            if norm(sensitivity) < norm(slope):
                break
        else:
            break
        y, slope = there, sensitivity
    return y
