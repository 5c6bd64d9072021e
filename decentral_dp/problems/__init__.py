"""Problems by name. Each entry builds its problem from the [problem] table and public facts of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from decentral_dp.errors import InputError
from decentral_dp.problems.protocol import Problem


class Facts(NamedTuple):
    """What a problem may know of the data before it is built: public numbers and the scenario's own options.

    image: (height, width, channels) where records are pictures; `record.reshape(channels, height, width)` is one.
    groups, corrupt, tasks, ways, width: as the scenario gives them. seed: public, for what a problem draws.
    """

    n_features: int
    n_classes: int
    intercept: bool
    ridge: float | None
    losses: Path | None
    image: tuple[int, int, int] | None = None
    agents: int = 1
    groups: int | None = None
    corrupt: float | None = None
    tasks: int | Sequence[Sequence[int]] | None = None
    ways: int | None = None
    width: int | None = None
    seed: int = 0


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
    from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter

    classes = _classes(facts, "logistic_hyperparameter", 2)
    return LogisticHyperparameter.from_dataset(facts.n_features, classes, intercept=facts.intercept)


def _softmax(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter

    classes = _classes(facts, "softmax_hyperparameter")
    return SoftmaxHyperparameter.from_dataset(facts.n_features, classes, intercept=facts.intercept)


def _quadratic(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.quadratic import Quadratic

    return Quadratic.from_dataset(facts.n_features, ridge=0.1 if facts.ridge is None else facts.ridge)


def _mean_estimation(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.mean_estimation import MeanEstimation

    return MeanEstimation.from_dataset(facts.n_features, ridge=0.1 if facts.ridge is None else facts.ridge)


def _meta_learning(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.meta_learning import MetaLearning

    return MetaLearning.from_dataset(
        facts.n_features,
        len(_classes(facts, "meta_learning")),
        image=facts.image,
        tasks=facts.tasks,
        ways=facts.ways,
        width=facts.width,
        ridge=facts.ridge,
        seed=facts.seed,
    )


def _biased(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.regularised_losses import biased_regularisation

    classes = _classes(facts, "biased_regularisation")
    ridge = 0.1 if facts.ridge is None else facts.ridge
    return biased_regularisation(facts.n_features, classes, ridge, facts.intercept)


def _ridge(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.regularised_losses import ridge_hyperparameter

    return ridge_hyperparameter(facts.n_features)


def _logistic_shared(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.regularised_losses import logistic_regularisation

    classes = _classes(facts, "logistic_regularisation", 2)
    return logistic_regularisation(facts.n_features, classes, facts.intercept)


def _ridge_shared(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.regularised_losses import ridge_regularisation

    return ridge_regularisation(facts.n_features)


def _mean_lower_bound(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.mean_lower_bound import MeanLowerBound

    return MeanLowerBound.from_dataset(facts.n_features, ridge=1.0 if facts.ridge is None else facts.ridge)


def _hyper_cleaning(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning

    return HyperCleaning.from_dataset(
        facts.n_features,
        _classes(facts, "hyper_cleaning"),
        facts.agents,
        groups=facts.groups or 1,
        ridge=0.01 if facts.ridge is None else facts.ridge,
        corrupt=facts.corrupt or 0.0,
        seed=facts.seed,
        intercept=facts.intercept,
    )


def _from_losses(facts: Facts) -> Problem:
    from decentral_dp.problems.bilevel.losses import load_losses

    if facts.losses is None:
        raise InputError(
            'problem.losses: missing. A "from_losses" problem needs the path of a Python file with upper_loss, '
            "lower_loss, p and q."
        )
    return load_losses(facts.losses)(facts.n_features, facts.n_classes)


PROBLEMS: dict[str, Entry] = {
    "biased_regularisation": Entry(
        _biased,
        "the point toward which a logistic or softmax regression is pulled",
        "decentral_dp.problems.bilevel.regularised_losses:biased_regularisation",
        ("ridge", "intercept"),
    ),
    "from_losses": Entry(
        _from_losses,
        "two per-record torch functions of your own, from the file problem.losses",
        "decentral_dp.problems.bilevel.losses:load_losses",
        ("losses",),
    ),
    "hyper_cleaning": Entry(
        _hyper_cleaning,
        "one weight per group of train records, some of which have their labels replaced",
        "decentral_dp.problems.bilevel.hyper_cleaning:HyperCleaning",
        ("groups", "corrupt", "ridge", "intercept"),
    ),
    "logistic_hyperparameter": Entry(
        _logistic,
        "one regularisation strength per feature of a logistic regression",
        "decentral_dp.problems.bilevel.logistic:LogisticHyperparameter",
        ("intercept",),
    ),
    "logistic_regularisation": Entry(
        _logistic_shared,
        "one regularisation strength for all features of a logistic regression: x is one number",
        "decentral_dp.problems.bilevel.regularised_losses:logistic_regularisation",
        ("intercept",),
    ),
    "mean_estimation": Entry(
        _mean_estimation,
        "the mean of all records, pulled toward the upper variable: gradients that ignore the state",
        "decentral_dp.problems.bilevel.mean_estimation:MeanEstimation",
        ("ridge",),
    ),
    "mean_lower_bound": Entry(
        _mean_lower_bound,
        "the mean of validation records, felt through the lower level: the instance of the lower bounds",
        "decentral_dp.problems.bilevel.mean_lower_bound:MeanLowerBound",
        ("ridge",),
    ),
    "meta_learning": Entry(
        _meta_learning,
        "a small network that all tasks share, and a last layer for each task: which classes a task has is public",
        "decentral_dp.problems.bilevel.meta_learning:MetaLearning",
        ("ridge", "tasks", "ways", "width"),
    ),
    "quadratic": Entry(
        _quadratic,
        "ridge regression toward the upper variable: every solution in closed form",
        "decentral_dp.problems.bilevel.quadratic:Quadratic",
        ("ridge",),
    ),
    "ridge_hyperparameter": Entry(
        _ridge,
        "one regularisation strength per feature of a least-squares regression",
        "decentral_dp.problems.bilevel.regularised_losses:ridge_hyperparameter",
    ),
    "ridge_regularisation": Entry(
        _ridge_shared,
        "one regularisation strength for all features of a least-squares regression: x is one number",
        "decentral_dp.problems.bilevel.regularised_losses:ridge_regularisation",
    ),
    "softmax_hyperparameter": Entry(
        _softmax,
        "one regularisation strength per feature of a softmax regression",
        "decentral_dp.problems.bilevel.softmax:SoftmaxHyperparameter",
        ("intercept",),
    ),
}
