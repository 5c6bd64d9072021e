"""What a coordinator's algorithm is written in, by one name each, as `algorithms.vocabulary` for gossip."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.options import (
    anchor_period,
    change_smoothness,
    count_option,
    internal,
    lower_solver,
    maximiser,
    option,
    sampling_rate,
    solver_smoothness,
    solver_steps,
)
from decentral_dp.algorithms.protocol import (
    Charge,
    Coordinated,
    Part,
    StepSize,
    check_message,
    gaussian_charges,
)
from decentral_dp.algorithms.references import ASCENT, AUC, DRO, KL_DRO, Citation
from decentral_dp.bounded import SPLITS, Array, Bounded, Split
from decentral_dp.central.context import CoordinatorContext, MinimaxContext
from decentral_dp.central.declared import release_gradients
from decentral_dp.errors import InputError
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
