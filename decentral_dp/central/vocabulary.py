"""What a coordinator's algorithm is written in, by one name each, as `algorithms.vocabulary` for gossip."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from decentral_dp.algorithms.entry import AUC, Citation, Entry
from decentral_dp.algorithms.options import internal, option
from decentral_dp.algorithms.protocol import StepSize, check_message
from decentral_dp.bounded import SPLITS, Array, Bounded, Split
from decentral_dp.central.context import CoordinatorContext, MinimaxContext
from decentral_dp.central.declared import release_gradients
from decentral_dp.central.programs import Charge, Coordinated, Part, gaussian_charges
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.exchange import (
    Ask,
    Bundle,
    ClippedQuery,
    ClippedSum,
    Pool,
    Release,
    Released,
    Request,
    Response,
    SelectionMechanism,
    Value,
)

S = TypeVar("S")
# What a coordinator does in a round or a part of it: exchanges are yielded, S is what it ends with.
CoordinatorSteps: TypeAlias = Generator[Request, Response, S]

# How a scenario could give the keys of these problems and of ascent, for examples.
ASCENT = {"y": "{ scale = 0.5 }", "solver": '"ascent"'}
DRO = {"problem": '"dro"', "problem_keys": 'divergence = "chi2"\nstrength = 1.0\ncap = 5.0', "clip": "clip.x = 1.0"}
KL_DRO = {"problem": '"kl_dro"', "problem_keys": "strength = 1.0\nradius = 0.5\ncap = 5.0", "clip": "clip.x = 1.0"}


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
    """T of estimates that differences carry on (`minimax.steps`)."""
    return option(
        "rounds from one anchor, where the gradient is estimated afresh, to the next",
        unit="rounds",
        example="4",
        at_least=1,
    )


def change_smoothness() -> Any:
    """L of the clip on a difference (`minimax.steps`)."""
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
    return option('how the lower level is solved: "dp_gd" or "output_perturbation"', default="dp_gd")


def check_choice(key: str, value: str | None, choices: Sequence[str]) -> None:
    """Refuse a value of algorithm.KEY that is none of these. Raises InputError."""
    if value not in choices:
        raise InputError(f"algorithm.{key}: unknown (got {value!r}). Fix: give {' or '.join(map(repr, choices))}.")


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
