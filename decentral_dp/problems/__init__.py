"""Problems by name. Each entry builds its problem from the [problem] table and public facts of the data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from decentral_dp.errors import InputError
from decentral_dp.problems.protocol import Problem


class Facts(NamedTuple):
    """What a problem may know of the data before it is built: public numbers and the scenario's own options."""

    n_features: int
    n_classes: int
    intercept: bool
    ridge: float | None
    losses: Path | None


class Entry(NamedTuple):
    """A registered problem: how to build it, one line for the list, its class, and the options it reads."""

    build: Callable[[Facts], Problem]
    summary: str
    home: str
    options: tuple[str, ...] = ()


def _classes(facts: Facts, kind: str, exactly: int | None = None) -> list[float]:
    if facts.n_classes < 2 or (exactly is not None and facts.n_classes != exactly):
        wanted = f"exactly {exactly}" if exactly else "at least 2"
        raise InputError(
            f"problem.kind: {kind} needs {wanted} classes, and the data have {facts.n_classes or 'numeric labels'}. "
            "Choose another problem, or declare problem.classes."
        )
    return [float(c) for c in range(facts.n_classes)]


def _logistic(facts: Facts) -> Problem:
    from decentral_dp.problems.logistic import LogisticHyperparameter

    classes = _classes(facts, "logistic_hyperparameter", 2)
    return LogisticHyperparameter.from_dataset(facts.n_features, classes, intercept=facts.intercept)


def _softmax(facts: Facts) -> Problem:
    from decentral_dp.problems.softmax import SoftmaxHyperparameter

    classes = _classes(facts, "softmax_hyperparameter")
    return SoftmaxHyperparameter.from_dataset(facts.n_features, classes, intercept=facts.intercept)


def _quadratic(facts: Facts) -> Problem:
    from decentral_dp.problems.quadratic import Quadratic

    return Quadratic.from_dataset(facts.n_features, ridge=0.1 if facts.ridge is None else facts.ridge)


def _from_losses(facts: Facts) -> Problem:
    from decentral_dp.problems.losses import load_losses

    if facts.losses is None:
        raise InputError(
            'problem.losses: missing. A "from_losses" problem needs the path of a Python file with upper_loss, '
            "lower_loss, p and q."
        )
    return load_losses(facts.losses)(facts.n_features, facts.n_classes)


PROBLEMS: dict[str, Entry] = {
    "from_losses": Entry(
        _from_losses,
        "two per-record torch functions of your own, from the file problem.losses",
        "decentral_dp.problems.losses:load_losses",
        ("losses",),
    ),
    "logistic_hyperparameter": Entry(
        _logistic,
        "one regularisation strength per feature of a logistic regression",
        "decentral_dp.problems.logistic:LogisticHyperparameter",
        ("intercept",),
    ),
    "quadratic": Entry(
        _quadratic,
        "ridge regression toward the upper variable: every solution in closed form",
        "decentral_dp.problems.quadratic:Quadratic",
        ("ridge",),
    ),
    "softmax_hyperparameter": Entry(
        _softmax,
        "one regularisation strength per feature of a softmax regression",
        "decentral_dp.problems.softmax:SoftmaxHyperparameter",
        ("intercept",),
    ),
}
