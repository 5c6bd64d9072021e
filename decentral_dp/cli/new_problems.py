"""Which problem a new scenario has: one for the labels that there are, and for the algorithm."""

from __future__ import annotations

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.errors import InputError, quoted
from decentral_dp.problems import PROBLEMS
from decentral_dp.problems.minimax import MINIMAX

# Problems that predict classes, and those that predict numbers in the same way; others predict classes only.
_REGRESSIONS = {
    "biased_regularisation": "quadratic",
    "logistic_hyperparameter": "ridge_hyperparameter",
    "logistic_regularisation": "ridge_regularisation",
    "softmax_hyperparameter": "ridge_hyperparameter",
}
_CLASSIFIES = ("auc_maximisation", "hyper_cleaning", "meta_learning")
# Problems of two classes, and what of the same kind tells more of them apart.
_OF_MORE_CLASSES = {
    "auc_maximisation": "group_dro",
    "logistic_hyperparameter": "softmax_hyperparameter",
    "logistic_regularisation": "softmax_hyperparameter",
}
# Algorithms that send matrices: of many strengths, whose x is a logarithm, their noise made runs at ε = 1 diverge on
# iris and wine. A point that the lower level is pulled toward moves it no further than x moves.
_OF_A_POINT = ("dsbo_jhip", "gbdsbo")
# Algorithms that tune one number, or look at all points of a grid.
_OF_ONE_STRENGTH = (
    "exponential_mechanism",
    "gradient_norm_exponential_mechanism",
    "grid_walk",
    "regularisation_tuner",
    "warm_start",
)


def problem_of_numbers(kind: str, algorithm: str | None, wanted: bool) -> str:
    """Choose the problem whose labels are numbers to predict.

    Args:
        kind: of problem, that the algorithm's own scenario has, or that was asked for.
        algorithm: its name.
        wanted: whether the problem was asked for, so that no other is chosen.

    Returns:
        A kind of problem.

    Raises:
        InputError: it predicts classes.

    Example:
        >>> problem_of_numbers("logistic_regularisation", "ma_dsbo", wanted=False)
        'ridge_regularisation'
    """
    if not wanted:
        kind = "ridge_regularisation" if algorithm in _OF_ONE_STRENGTH else _REGRESSIONS.get(kind, kind)
        kind = "quadratic" if algorithm in _OF_A_POINT else kind
    if kind in _REGRESSIONS or kind in _CLASSIFIES:
        mend = "--algorithm double_spider" if kind == "auc_maximisation" else "--problem ridge_hyperparameter"
        raise InputError(f"--label-range: {kind} predicts classes. Take {mend}, or leave the range out.")
    return kind


def problem_of_classes(kind: str, algorithm: str | None, classes: int, wanted: bool) -> str:
    """Choose the problem that tells so many classes apart.

    Args:
        kind: of problem, that the algorithm's own scenario has, or that was asked for.
        algorithm: its name.
        classes: their number.
        wanted: whether the problem was asked for, so that no other is chosen.

    Returns:
        A kind of problem.

    Raises:
        InputError: there is none, or the one that was asked for is of two classes.

    Example:
        >>> problem_of_classes("logistic_regularisation", "ma_dsbo", 3, wanted=False)
        'softmax_hyperparameter'
    """
    if algorithm in _OF_ONE_STRENGTH and not wanted:
        if classes > 2:
            raise InputError(
                f"--classes: {algorithm} looks for one strength, and no problem of {classes} classes has just one. "
                "Take --algorithm second_order_dp_bilevel, or another."
            )
        return "logistic_regularisation"
    if classes > 2 and kind in _OF_MORE_CLASSES:
        if wanted:
            raise InputError(
                f"--classes: {kind} tells two classes apart, and got {classes}. Take --problem "
                f"{_OF_MORE_CLASSES[kind]}, or another."
            )
        return "biased_regularisation" if algorithm in _OF_A_POINT else _OF_MORE_CLASSES[kind]
    return kind


def predicts_numbers(kind: str) -> bool:
    """Whether the labels of the problem are numbers, and no classes."""
    return kind in _REGRESSIONS.values()


def require_solved(algorithm: str, kind: str) -> None:
    """Raises InputError where the algorithm is for problems of the other kind, bilevel or minimax."""
    solves = ALGORITHMS[algorithm].solves
    if solves != ("minimax" if kind in MINIMAX else "bilevel"):
        fit = ", ".join(sorted(MINIMAX if solves == "minimax" else PROBLEMS))
        raise InputError(
            f"--problem: {quoted(algorithm)} is for {solves} problems, and {quoted(kind)} is none. Take {fit}."
        )
