"""Minimax problems by name. Each entry builds its problem from the [problem] table and public facts of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from decentral_dp.errors import InputError
from decentral_dp.problems.minimax.protocol import Minimax
from decentral_dp.problems.models.protocol import Model


class MinimaxFacts(NamedTuple):
    """What a minimax problem may know of the data before it is built: public numbers and the scenario's own options.

    options: key of the [problem] table → value, of those that the entry reads and the scenario gives. shares: of the
    classes in the data as they were made, where a construction declares them. device: "cpu" or "cuda". seed: public,
    for weights that are drawn. root: where relative paths start.
    """

    n_features: int
    n_classes: int
    options: Mapping[str, Any]
    image: tuple[int, int, int] | None = None
    seed: int = 0
    device: str = "cpu"
    root: Path = Path()


class MinimaxEntry(NamedTuple):
    """A registered minimax problem: how to build it, one line for the list, its description, the options it reads.

    needed: those that have no default.
    """

    build: Callable[[MinimaxFacts], Minimax]
    summary: str
    home: str
    options: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


def model_of(facts: MinimaxFacts, outputs: int) -> Model:
    """The model that problem.model names: linear where it names none."""
    from decentral_dp.problems.models.build import build_model

    return build_model(facts.options.get("model"), facts.n_features, outputs, facts.image, facts.seed, facts.device)


def _auc(facts: MinimaxFacts) -> Minimax:
    from decentral_dp.problems.minimax.auc import AucObjective
    from decentral_dp.problems.minimax.composite import Composite

    if facts.n_classes != 2:
        raise InputError(
            f"problem.kind: auc_maximisation needs exactly 2 classes, and the data have {facts.n_classes or 'numbers'}"
            ". Say which classes are positive, for example construction = { positive = [5, 6, 7, 8, 9] }."
        )
    return Composite(model_of(facts, 1), AucObjective(facts.options["positive_share"]))


MINIMAX: dict[str, MinimaxEntry] = {
    "auc_maximisation": MinimaxEntry(
        _auc,
        "a classifier of two classes that ranks positive records first, by a least-squares surrogate of the AUC",
        "decentral_dp.problems.minimax.auc",
        ("positive_share", "model"),
        ("positive_share",),
    ),
}
