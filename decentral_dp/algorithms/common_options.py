"""Keys that several algorithms share: the same meaning, bounds and description wherever they are taken."""

from __future__ import annotations

from typing import Any

from decentral_dp.algorithms.options import option


def sampling_rate() -> Any:
    """q of a Poisson sample, of a coordinator's round."""
    return option(
        "share of all records in a round's Poisson sample; 1 reads all of them",
        default=1.0,
        example="0.1",
        above=0,
        at_most=1,
    )


def maximiser() -> Any:
    """How a coordinator's minimax program finds y."""
    return option('how y is found: "ascent", by steps, or "closed_form", from a released mean', default="ascent")


def anchor_period() -> Any:
    """T of estimates that differences carry on (`spider_schedule`)."""
    return option(
        "rounds from one anchor, where the gradient is estimated afresh, to the next",
        unit="rounds",
        example="4",
        at_least=1,
    )


def change_smoothness() -> Any:
    """L of the clip on a difference (`spider_schedule`)."""
    return option(
        "L of the clip L·(distance moved) on a record's change of gradient; needed where period > 1",
        default=None,
        example="2.0",
        above=0,
    )


def count_option(description: str, unit: str, example: str) -> Any:
    """A whole number from 1 that is settled where it is left out."""
    return option(description, default=None, unit=unit, example=example, at_least=1)


def lower_solver() -> Any:
    """How a coordinator solves the lower level."""
    return option("how the lower level is solved, a key of lower_solvers.SOLVERS", default="dp_gd")


def solver_steps(symbol: str = "") -> Any:
    """Steps of a coordinator's lower-level solver."""
    return count_option(
        f"{symbol}steps of the lower-level solver; settled by public constants if left out", "steps", "5"
    )


def solver_smoothness(what: str) -> Any:
    """The inverse of the step of "dp_gd"."""
    return option(
        f"{what}, the inverse of the step of dp_gd; settled by public constants if left out",
        default=None,
        example="2.0",
        above=0,
    )


def lower_steps() -> Any:
    """K of a gossip algorithm's inner iterations."""
    return option("K, iterations on y in every round", unit="iterations", at_least=1)


def inverse_iterations() -> Any:
    """N of a gossip algorithm that tracks the inverse of the lower Hessian."""
    return option("N, iterations on the inverse of the lower Hessian in every round", unit="iterations", at_least=1)


def neumann_terms() -> Any:
    """b of a Neumann series."""
    return option("b, terms of the Neumann series for the inverse of the lower Hessian", unit="terms", at_least=1)


def neumann_smoothness() -> Any:
    """L of a Neumann series."""
    return option("L ≥ ‖∇²_yy g‖ of the Neumann series", example="2.0", above=0)
