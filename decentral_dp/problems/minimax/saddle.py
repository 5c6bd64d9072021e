"""A minimax problem as agents ask their own records about it, who trust nobody.

    min_x max_{y ∈ Y} F(x, y) = (1/m) Σ_i [mean over agent i's train records of f(x, y; ξ)] + r(x, y)

in the terms of bilevel problems, so that whatever asks, plans and prices these has it as it is:

    upper_grad_x = ∇_x f,     lower_grad_y = −grad_y, for y goes along grad_y of `problems.minimax.protocol`.

Every record's ∇_y f is clipped around the centre of the ball that all possible records are known to be in, which is
public and added once; where no ball is known around 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

import numpy as np

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.exchange import ClippedQuery
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.minimax.protocol import Minimax
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem, Regulariser, Terms

# Term of a bilevel problem → of a minimax problem, and its sign.
_TERM_OF = {"upper_grad_x": ("grad_x", 1.0), "lower_grad_y": ("grad_y", -1.0)}


@dataclass(frozen=True)
class Saddle(Problem):
    """minimax: a problem whose ∇_x f and ∇_y f read records, and whose r does not change from round to round."""

    reads_records: ClassVar[Mapping[str, Split]] = MappingProxyType(dict.fromkeys(_TERM_OF, "train"))

    minimax: Minimax

    @property
    def p(self) -> int:
        return self.minimax.p

    @property
    def q(self) -> int:
        return self.minimax.q

    @property
    def start(self) -> Mapping[str, Array]:
        return self.minimax.start

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        return self.minimax.prepare(features, labels, norm)

    def project(self, x: Array, y: Array) -> tuple[Array, Array]:
        """The nearest allowed x (b, p) and y (b, q)."""
        return np.stack([self.minimax.project_x(row) for row in x]), np.stack(
            [self.minimax.project_y(row) for row in y]
        )

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        served = [term for term in _TERM_OF if term in wanted]
        queries = [
            ClippedQuery(_TERM_OF[t][0], x, y, clip.bound(CLIP_OF_TERM[t]), centre=self._centre(_TERM_OF[t][0], x, y))
            for t in served
        ]
        sums = zip(served, self.minimax.sums(train, queries), strict=True) if served else ()
        return Terms(**{term: _TERM_OF[term][1] * total / max(len(train[0]), 1) for term, total in sums})

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        """None: no second derivative is asked for."""
        return {}

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        """What is public of −grad_y: that of r, and the centre of the ball. As of `Problem.regulariser`."""
        return Regulariser(-self._public("grad_y", x, y), np.zeros_like(y), np.zeros_like(x))

    def public_grad_x(self, x: Array, y: Array) -> Array:
        return self._public("grad_x", x, y)

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> NoReturn:
        raise ValueError("a minimax problem is judged by its own scores")

    def regulariser_value(self, x: Array, y: Array) -> NoReturn:
        raise ValueError("a minimax problem is judged by its own scores")

    def _public(self, term: str, x: Array, y: Array) -> Array:
        rows = np.stack([self.minimax.public(term, *point, 0) for point in zip(x, y, strict=True)])
        centres = [self._centre(term, *point) for point in zip(x, y, strict=True)]
        return rows + np.stack([np.zeros(rows.shape[1]) if c is None else c for c in centres])

    def _centre(self, term: str, x: Array, y: Array) -> Array | None:
        known = self.minimax.public_ball(term, x, y)
        return None if known is None else known.centre
