"""Problems by name. Each entry builds its problem from the [problem] table and public facts of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from decentral_dp.errors import InputError
from decentral_dp.problems.protocol import Problem


class Facts(NamedTuple):
    """What a problem may know of the data before it is built: public numbers and the scenario's own options.

    image: (height, width, channels) where records are pictures; `record.reshape(channels, height, width)` is one.
    groups, corrupt, corruption, tasks, ways, width: as the scenario gives them. seed: public, for what a problem draws.
    device: "cpu" or "cuda", where a problem that has a field of this name computes.
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
    corruption: str | None = None
    tasks: int | Sequence[Sequence[int]] | None = None
    ways: int | None = None
    width: int | None = None
    seed: int = 0
    device: str = "cpu"


class Entry(NamedTuple):
    """A registered problem.

    Args:
        home: "module:name" of what makes it, imported when it is built.
        summary: one line for the list.
        make: what makes it, and the facts → the problem.
        options: keys of the [problem] table that it reads.
        in_torch: whether it computes in torch, and so on any device.
    """

    home: str
    summary: str
    make: Callable[[Any, Facts], Problem]
    options: tuple[str, ...] = ()
    in_torch: bool = False

    def build(self, facts: Facts) -> Problem:
        """Make the problem of these data. Raises InputError for data or options that it cannot have."""
        module, _, name = self.home.partition(":")
        return self.make(getattr(import_module(module), name), facts)


def _classes(facts: Facts, kind: str, exactly: int | None = None) -> list[float]:
    if facts.n_classes < 2 or (exactly is not None and facts.n_classes != exactly):
        wanted = f"exactly {exactly}" if exactly else "at least 2"
        raise InputError(
            f"problem.kind: {kind} needs {wanted} classes, and the data have {facts.n_classes or 'numeric labels'}. "
            "Choose another problem, or declare problem.classes."
        )
    return [float(c) for c in range(facts.n_classes)]


def _ridge(facts: Facts, usual: float = 0.1) -> float:
    return usual if facts.ridge is None else facts.ridge


def _losses(facts: Facts) -> Path:
    if facts.losses is None:
        raise InputError(
            'problem.losses: missing. A "from_losses" problem needs the path of a Python file with upper_loss, '
            "lower_loss, p and q."
        )
    return facts.losses


def _meta_learning(made: Any, facts: Facts) -> Any:
    return made.from_dataset(
        facts.n_features,
        len(_classes(facts, "meta_learning")),
        image=facts.image,
        tasks=facts.tasks,
        ways=facts.ways,
        width=facts.width,
        ridge=facts.ridge,
        seed=facts.seed,
    )


def _hyper_cleaning(made: Any, facts: Facts) -> Any:
    return made.from_dataset(
        facts.n_features,
        _classes(facts, "hyper_cleaning"),
        facts.agents,
        groups=facts.groups or 1,
        ridge=_ridge(facts, 0.01),
        corrupt=facts.corrupt or 0.0,
        corruption=facts.corruption or "random",
        seed=facts.seed,
        intercept=facts.intercept,
    )


PROBLEMS: dict[str, Entry] = {
    "biased_regularisation": Entry(
        "decentral_dp.problems.bilevel.regularised_losses:biased_regularisation",
        "the point toward which a logistic or softmax regression is pulled",
        lambda made, f: made(f.n_features, _classes(f, "biased_regularisation"), _ridge(f), f.intercept),
        ("ridge", "intercept"),
    ),
    "from_losses": Entry(
        "decentral_dp.problems.bilevel.losses:load_losses",
        "two per-record torch functions of your own, from the file problem.losses",
        lambda made, f: made(_losses(f))(f.n_features, f.n_classes),
        ("losses", "start"),
        in_torch=True,
    ),
    "hyper_cleaning": Entry(
        "decentral_dp.problems.bilevel.hyper_cleaning:HyperCleaning",
        "one weight per group of train records, some of which have their labels replaced",
        _hyper_cleaning,
        ("groups", "corrupt", "corruption", "ridge", "intercept"),
    ),
    "logistic_hyperparameter": Entry(
        "decentral_dp.problems.bilevel.logistic:LogisticHyperparameter",
        "one regularisation strength per feature of a logistic regression",
        lambda made, f: made.from_dataset(f.n_features, _classes(f, "logistic_hyperparameter", 2), f.intercept),
        ("intercept",),
    ),
    "logistic_regularisation": Entry(
        "decentral_dp.problems.bilevel.regularised_losses:logistic_regularisation",
        "one regularisation strength for all features of a logistic regression: x is one number",
        lambda made, f: made(f.n_features, _classes(f, "logistic_regularisation", 2), f.intercept),
        ("intercept",),
    ),
    "mean_estimation": Entry(
        "decentral_dp.problems.bilevel.mean_estimation:MeanEstimation",
        "the mean of all records, pulled toward the upper variable: gradients that ignore the state",
        lambda made, f: made(f.n_features, _ridge(f)),
        ("ridge",),
    ),
    "mean_lower_bound": Entry(
        "decentral_dp.problems.bilevel.mean_lower_bound:MeanLowerBound",
        "the mean of validation records, felt through the lower level: the instance of the lower bounds",
        lambda made, f: made(f.n_features, _ridge(f, 1.0)),
        ("ridge",),
    ),
    "meta_learning": Entry(
        "decentral_dp.problems.bilevel.meta_learning:MetaLearning",
        "a small network that all tasks share, and a last layer for each task: which classes a task has is public",
        _meta_learning,
        ("ridge", "tasks", "ways", "width"),
    ),
    "quadratic": Entry(
        "decentral_dp.problems.bilevel.quadratic:Quadratic",
        "ridge regression toward the upper variable: every solution in closed form",
        lambda made, f: made(f.n_features, _ridge(f), f.intercept),
        ("ridge", "intercept"),
    ),
    "ridge_hyperparameter": Entry(
        "decentral_dp.problems.bilevel.regularised_losses:ridge_hyperparameter",
        "one regularisation strength per feature of a least-squares regression",
        lambda made, f: made(f.n_features, f.intercept),
        ("intercept",),
    ),
    "ridge_regularisation": Entry(
        "decentral_dp.problems.bilevel.regularised_losses:ridge_regularisation",
        "one regularisation strength for all features of a least-squares regression: x is one number",
        lambda made, f: made(f.n_features, f.intercept),
        ("intercept",),
    ),
    "softmax_hyperparameter": Entry(
        "decentral_dp.problems.bilevel.softmax:SoftmaxHyperparameter",
        "one regularisation strength per feature of a softmax regression",
        lambda made, f: made.from_dataset(f.n_features, _classes(f, "softmax_hyperparameter"), f.intercept),
        ("intercept",),
    ),
}
