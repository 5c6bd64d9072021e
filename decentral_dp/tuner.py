"""Tuning the strength of a regulariser for two arrays of records: a job of one agent and a trusted coordinator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from decentral_dp.algorithms.coordinator_bilevel.regularisation_tuner import RegularisationTuner
from decentral_dp.bounded import Array, Split
from decentral_dp.constants.families import family_of
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import CoordinatorNode, RunControl, Snapshot
from decentral_dp.errors import InputError
from decentral_dp.participants.clients import ClientBlock
from decentral_dp.participants.coordinator_context import CoordinatorContext
from decentral_dp.participants.pooled import PooledBounds
from decentral_dp.privacy.accounting.accountants import Budget, price
from decentral_dp.privacy.accounting.calibration import largest_mu
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms.planned_releaser import PlannedReleaser
from decentral_dp.privacy.randomness import Streams, secret_root, seeded_root
from decentral_dp.problems.bilevel.regularised_losses import logistic_regularisation, ridge_regularisation
from decentral_dp.problems.domain import Domain
from decentral_dp.simulation.jobs.coordinator_plan import planned_line, target_plan
from decentral_dp.tuner_arguments import Arguments, LossName, Method, check_arguments, content, pair, project, statement

# Of a train record's μ²: what the last minimiser takes, which is the model.
MODEL_SHARE = 0.25
# Of the target: what a plan may leave unspent.
_TIGHTNESS = 1e-6
# How far above the range's start the log of a strength is looked for that float64 can serve.
_STEPS = np.arange(0.0, 600.0, 0.1)


@dataclass(frozen=True)
class Tuned:
    """What a tuning run publishes, and what it cost. All of it is covered by `budget`.

    weight: of the regulariser. model: (d,) private minimiser at this weight. ledger: the releases made. budget: what
    they were planned to cost, which bounds what they did. path: the weights in the order in which they were tried.
    statement: the guarantee in words.

    Example:
        >>> import numpy as np, decentral_dp
        >>> a, b = np.eye(4)[np.arange(400) % 4], np.where(np.arange(400) % 4 < 2, 1.0, -1.0)
        >>> tuned = decentral_dp.tune((a, b), (a, b), epsilon=1.0, delta=1e-6, weight_range=(0.1, 1.0), steps=3, seed=1)
        >>> isinstance(tuned, decentral_dp.Tuned), tuned.model.shape, tuned.path.shape
        (True, (4,), (4,))
        >>> bool(tuned.budget.epsilon[0] <= 1.0), float(tuned.budget.delta)
        (True, 1e-06)
    """

    weight: float
    model: Array
    ledger: Ledger
    budget: Budget
    path: Array
    statement: str


def tune(
    train: Any,
    validation: Any,
    *,
    epsilon: float,
    delta: float,
    weight_range: tuple[float, float],
    loss: LossName = "logistic",
    radius: float = 1.0,
    label_bound: float = 1.0,
    method: Method = "ppift",
    steps: int = 15,
    lam: float = 10.0,
    seed: int | None = None,
) -> Tuned:
    """Choose w in `weight_range` to make the validation loss of the w-regularised model small, and train that model.

        minimise over w  F(w) = mean_validation l(θ_w),     θ_w = argmin mean_train l(θ) + (w/2)‖θ‖²
        l = log(1 + exp(−b aᵀθ)), b = ±1     or     ½(aᵀθ − b)², |b| ≤ label_bound

    This is the algorithm `regularisation_tuner` for one agent. The slope of log w with noise of deviation about τ moves
    it by −0.6·log(high/low)·slope/((|slope| + τ)√t) in step t, from released values alone. The last released minimiser
    is the model, projected on the ball that holds every minimiser at its weight.

    Args:
        train, validation: pairs (features (n, d), labels (n,)). Every record is first brought into its bounds by
            itself: features longer than `radius` are shortened to it, labels cut at ±label_bound ("squared") or read
            as +1 above 0 and −1 otherwise ("logistic"), a record with a value that is not finite replaced by zeros.
            There is no intercept; append a constant feature for one.
        method: "ppift" releases in each step the minimiser and the slope of F by implicit differentiation there.
            "penalty" releases the minimisers of g and of g + f/λ, whose norms give the slope (Kornowski, 2024, Section
            7, its sign corrected). "em" draws one of 65 weights, even in log w, by the exponential mechanism, and
            releases the model with Laplace noise: pure ε, whatever δ; `steps` is not used.
        lam: λ of "penalty"; it multiplies the noise, so large is not better.
        seed: makes the noise reproducible, and the result a simulation.

    Returns:
        `Tuned`. (ε, δ)-differential privacy of everything in it, for replacing one record of either role, which keeps
        its role; the counts of both roles and d are public, and no record is in both roles. All constants are analytic
        and the solver's accuracy is certified in advance, so nothing depends on the data being benign. Time, memory
        and logs are not covered.

    Raises:
        InputError: before any value is looked at, for arguments that cannot be used.

    Example:
        >>> import numpy as np, decentral_dp
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=(4000, 5)) / 5
        >>> b = np.sign(a @ np.ones(5) + 0.1 * rng.normal(size=4000))
        >>> found = decentral_dp.tune(
        ...     (a[:2000], b[:2000]), (a[2000:], b[2000:]), epsilon=1.0, delta=1e-6, weight_range=(0.01, 1.0), seed=1
        ... )
        >>> 0.01 <= found.weight <= 1.0 and found.model.shape == (5,) and bool(found.budget.epsilon[0] <= 1.0)
        True
    """
    given = check_arguments(
        Arguments(epsilon, delta, weight_range, loss, radius, label_bound, method, steps, lam, seed)
    )
    roles = pair(train, "train"), pair(validation, "validation")
    (_, d), (_, other) = (a.shape for a, _ in roles)
    if other != d:
        raise InputError(f"tune: train has {d} features and validation {other}; give both the same.")
    program, context = planned_program(given, len(roles[0][1]), len(roles[1][1]), d)
    plan = release_plan(given, program, context)
    records = [
        context.problem.prepare(*project(*role, given.loss, given.radius, given.label_bound), "l2") for role in roles
    ]
    root = secret_root() if given.seed is None else seeded_root(given.seed, content(given, roles))
    one = np.zeros(1, dtype=np.int64)
    split: dict[Split, Any] = {"train": [records[0]], "validation": [records[1]]}
    client = ClientBlock(one, context.problem, split, context.clip, Streams(root, "coins", one))
    node = CoordinatorNode(program, context, partial(PlannedReleaser, plan, root), (client,), 1)
    states: list[Snapshot] = []
    every_round = RunControl(range(1, context.rounds + 1), states.append)
    outcome = LocalEngine().coordinate(node, context.rounds, every_round)
    if not outcome.ledger.costs_within(plan):
        raise ValueError("a release did not cost what was planned")
    low, high = given.weight_range
    path = np.clip(np.exp([float(s.published["x"][0, 0]) for s in states]), low, high)
    budget = price(plan, given.delta)
    model = outcome.last.published["y"][0]
    return Tuned(float(path[-1]), model, outcome.ledger, budget, path, statement(given, budget, context.counts))


def planned_program(given: Arguments, train: int, validation: int, d: int) -> tuple[RegularisationTuner, Any]:
    """Make the coordinator's program and what it knows beforehand.

    Args:
        given: checked arguments of `tune`.
        train: number of train records.
        validation: number of validation records.
        d: number of features.

    Returns:
        The program and its context, defaults filled in.

    Raises:
        InputError: float64 certifies no solution at the smallest weight.
    """
    problem = ridge_regularisation(d) if given.loss == "squared" else logistic_regularisation(d, (-1.0, 1.0))
    low, high = (math.log(w) for w in given.weight_range)
    pure, family = given.method == "em", family_of(problem, given.radius, given.label_bound)
    context = CoordinatorContext(
        problem,
        {"train": train, "validation": validation},
        1,
        Clip("l2"),
        Domain("box", low=low, high=high),
        family,
        1 if pure else given.steps + 1,
        math.inf if pure else largest_mu(given.epsilon, given.delta),
    )
    penalty = given.lam if given.method == "penalty" else None
    program = RegularisationTuner(
        given.method, penalty, last_share=0.0 if pure else MODEL_SHARE, pointwise=given.method == "ppift"
    )
    bounds = PooledBounds(family, train, validation)
    least = next(w for w in low + _STEPS if _certifies(bounds, w, max(w, high), penalty))
    if least > low:
        raise InputError(
            f"tune: weight_range starts at {given.weight_range[0]:g}, but {math.exp(least):.3g} or more is wanted at "
            f"radius {given.radius:g}, so that float64 solves every data set; raise it, or give records a smaller "
            "radius."
        )
    return program.resolve_defaults(context)


def _certifies(bounds: PooledBounds, low: float, high: float, penalty: float | None) -> bool:
    """Whether solutions for all strengths from e^low to e^high are certified: known from public numbers."""
    try:
        bounds.inexactness(np.array([low]), np.array([high]))
        bounds.facts(np.array([low]), penalty)
    except InputError:
        return False
    return True


def release_plan(given: Arguments, program: RegularisationTuner, context: CoordinatorContext) -> Ledger:
    """Every release and its price. Raises InputError for a target that no noise meets."""
    charges = program.planned_releases(context, context.rounds)
    q, releases = context.problem.q, program.releases_per_round
    try:
        return target_plan(
            lambda factor: Ledger(1, tuple(planned_line(c, p, 1.0 / factor) for c, p in charges.items()), releases),
            given.epsilon,
            0.0 if given.method == "em" else given.delta,
            _TIGHTNESS,
        )
    except InputError as error:
        if given.method == "em":
            sentence = f"epsilon = {given.epsilon:g} is too small for float64 noise in {q} coordinates; raise it."
        else:
            sentence = (
                f"no noise brings {2 * given.steps + 1} releases of {q} coordinates to epsilon = {given.epsilon:g} at "
                f"delta = {given.delta:g}; raise epsilon or delta, or take fewer steps."
            )
        raise InputError(f"tune: {sentence}") from error
