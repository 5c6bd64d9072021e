"""What the linear classifiers share: their declaration, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol, Self

from decentral_dp.bounded import Split
from decentral_dp.files.tables import Key
from decentral_dp.problems.protocol import LOSS_OF_Y, StackedProblem

Intercept = Annotated[bool, Key("Whether a constant feature 1 is appended.")]


@dataclass(frozen=True)
class LinearClassifier(StackedProblem, Protocol):
    """A problem whose loss is one of a linear classifier in both levels, and of y alone.

    Args:
        n_features: columns of the records.
        classes: the declared labels, in their order.
        intercept: whether a constant feature 1 is appended, regularised like the others; default no.
    """

    name: ClassVar[str]
    reads_records: ClassVar[Mapping[str, Split]] = LOSS_OF_Y

    n_features: int
    classes: tuple[float, ...] = (-1.0, 1.0)
    intercept: Intercept = False

    @classmethod
    def from_dataset(cls, n_features: int, classes: Sequence[float], intercept: bool = False) -> Self:
        """Make it for labels of any numbers."""
        return cls(n_features, tuple(float(c) for c in classes), intercept)

    @property
    def p(self) -> int:
        return self.n_features + self.intercept
