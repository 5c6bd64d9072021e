"""Private tuning of a regularisation strength for two arrays of records, with one agent and a trusted coordinator.

Only public shapes can raise errors. No value of a record raises, and records are processed separately.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from decentral_dp.bounded import Array, Split
from decentral_dp.central.bilevel.regularisation_tuner import RegularisationTuner
from decentral_dp.central.context import CoordinatorContext, Domain
from decentral_dp.central.jobs import fit_plan, make_ledger_line
from decentral_dp.config.loading import expected_text
from decentral_dp.constants import family_of
from decentral_dp.data.dataset import real_array
from decentral_dp.data.scaling import normalise
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import CoordinatorNode, RunControl, Snapshot
from decentral_dp.errors import InputError, Refusal, converting, refuse
from decentral_dp.files.tables import Positive
from decentral_dp.participants import ClientBlock
from decentral_dp.privacy.accounting.accountants import AgentCosts, account, largest_mu
from decentral_dp.privacy.clipping import Clip, row_norms
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import Streams, secret_root, seeded_root
from decentral_dp.privacy.releasers import PlannedReleaser
from decentral_dp.problems.bilevel.linear import logistic_regularisation, ridge_regularisation
from decentral_dp.simulation.events import Callback, Reporter, join_callbacks

LossName: TypeAlias = Literal["logistic", "squared"]
Method: TypeAlias = Literal["ppift", "penalty", "em"]

# The solver computes a Hessian and its Cholesky factor.
MOST_FEATURES = 2000
# Share of a train record's μ² for the last minimiser, which is the model.
MODEL_SHARE = 0.25
# Share of the target that a plan may leave unspent.
_TIGHTNESS = 1e-6


class Arguments(NamedTuple):
    """Arguments of one call of `decentral_dp.tune`, by name."""

    epsilon: Positive
    delta: Annotated[float, Field(ge=0.0, lt=1.0)]
    weight_range: tuple[Positive, Positive]
    loss: LossName
    radius: Positive
    label_bound: Positive
    method: Method
    steps: Annotated[int, Field(ge=1, le=10_000)]
    lam: Positive
    seed: int | None


@dataclass(frozen=True)
class Tuned:
    """Result of a tuning run. `budget` covers the whole result.

    Args:
        weight: weight w of the regulariser.
        model: private minimiser at this weight, (d,).
        ledger: ledger of the releases.
        budget: planned ε and δ, upper bounds on the ledger's ε and δ.
        path: weights in the order of the iterates, (steps + 1,).
        statement: guarantee in words.

    Example:
        >>> import numpy as np, decentral_dp
        >>> a, b = np.eye(4)[np.arange(400) % 4], np.where(np.arange(400) % 4 < 2, 1.0, -1.0)
        >>> asked = {"epsilon": 1.0, "delta": 1e-6, "weight_range": (0.1, 1.0), "steps": 3, "seed": 1}
        >>> tuned = decentral_dp.tune(train=(a, b), validation=(a, b), **asked)
        >>> type(tuned).__name__, tuned.model.shape, tuned.path.shape
        ('Tuned', (4,), (4,))
        >>> bool(tuned.budget.epsilon[0] <= 1.0), float(tuned.budget.delta)
        (True, 1e-06)
    """

    weight: float
    model: Array
    ledger: Ledger
    budget: AgentCosts
    path: Array
    statement: str


def tune(
    *,
    train: Any,
    validation: Any,
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
    callbacks: Sequence[Callback] = (),
) -> Tuned:
    """Choose w in `weight_range` to minimise the validation loss of the w-regularised model, and train that model.

        minimise over w  F(w) = mean_validation l(θ_w),     θ_w = argmin mean_train l(θ) + (w/2)‖θ‖²
        l = log(1 + exp(−b aᵀθ)), b = ±1     or     ½(aᵀθ − b)², |b| ≤ label_bound

    This is the algorithm `regularisation_tuner` for one agent. A slope of log w with noise of standard deviation about
    τ changes log w by −0.6·log(high/low)·slope/((|slope| + τ)√t) in step t. The model is the last released minimiser,
    projected onto the ball that contains every minimiser at its weight.

    Args:
        train, validation: pairs (features (n, d), labels (n,)). Every record is first projected separately: features
            are scaled down to norm `radius`, labels are clipped to ±label_bound ("squared") or read as +1 above 0 and
            −1 otherwise ("logistic"), and a record with a value that is not finite becomes zeros. There is no
            intercept: append a constant feature to add one.
        epsilon, delta: target ε and δ for one replaced record.
        weight_range: smallest and largest w.
        loss: "logistic" or "squared".
        radius: bound on the norm of features.
        label_bound: bound on the labels of "squared".
        method: "ppift" releases in each step the minimiser and the slope of F by implicit differentiation there.
            "penalty" releases the minimisers of g and of g + f/λ, whose norms give the slope (Kornowski, 2024, Section
            7, with its sign corrected). "em" draws one of 65 weights, evenly spaced in log w, by the exponential
            mechanism, and releases the model with Laplace noise. Its ε is pure for any δ, and `steps` is not used.
        steps: number of steps.
        lam: λ of "penalty", which multiplies the noise.
        seed: seed that makes the noise reproducible, and the result a simulation.
        callbacks: callbacks that receive a `Progress` for "steps", default none.

    Returns:
        A `Tuned` result, with (ε, δ)-differential privacy for replacing one train or validation record by another of
        the same split. The numbers of records and d are public, and no record is in both splits. All constants are
        analytic and the solver's accuracy is certified in advance, so the guarantee holds for all data. Time, memory
        and logs are not covered.

    Raises:
        InputError: an argument is invalid. It is raised before any value is read.

    Example:
        >>> import numpy as np, decentral_dp
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=(4000, 5)) / 5
        >>> b = np.sign(a @ np.ones(5) + 0.1 * rng.normal(size=4000))
        >>> train, validation = (a[:2000], b[:2000]), (a[2000:], b[2000:])
        >>> asked = {"epsilon": 1.0, "delta": 1e-6, "weight_range": (0.01, 1.0), "seed": 1}
        >>> tuned = decentral_dp.tune(train=train, validation=validation, **asked)
        >>> 0.01 <= tuned.weight <= 1.0 and tuned.model.shape == (5,) and bool(tuned.budget.epsilon[0] <= 1.0)
        True
    """
    arguments = check_arguments(
        Arguments(epsilon, delta, weight_range, loss, radius, label_bound, method, steps, lam, seed)
    )
    train_records = convert_split(train, "train")
    d = train_records[0].shape[1]
    roles = train_records, convert_split(validation, "validation", d)
    program, context = plan_program(arguments, len(roles[0][1]), len(roles[1][1]), d)
    plan = release_plan(arguments, program, context)
    records = [
        context.problem.prepare(*project(*role, arguments.loss, arguments.radius, arguments.label_bound), "l2")
        for role in roles
    ]
    root = secret_root() if arguments.seed is None else seeded_root(arguments.seed, digest_input(arguments, roles))
    agents = np.zeros(1, dtype=np.int64)
    split: dict[Split, Any] = {"train": [records[0]], "validation": [records[1]]}
    client = ClientBlock(agents, context.problem, split, context.clip, Streams(root, "coins", agents))
    node = CoordinatorNode(program, context, partial(PlannedReleaser, plan, root), (client,), 1)
    states: list[Snapshot] = []
    report = Reporter(join_callbacks(callbacks), "steps")

    def observe(state: Snapshot) -> None:
        states.append(state)
        report(state.round, context.rounds)

    every_round = RunControl(range(1, context.rounds + 1), observe)
    outcome = LocalEngine().coordinate(node, context.rounds, every_round)
    if not outcome.ledger.costs_within(plan):
        raise ValueError("a release cost more than planned")
    low, high = arguments.weight_range
    path = np.clip(np.exp([float(s.published["x"][0, 0]) for s in states]), low, high)
    budget = account(plan, arguments.delta)
    model = outcome.last_snapshot.published["y"][0]
    return Tuned(
        float(path[-1]), model, outcome.ledger, budget, path, tuning_statement(arguments, budget, context.counts)
    )


def plan_program(arguments: Arguments, train: int, validation: int, d: int) -> tuple[RegularisationTuner, Any]:
    """Return the coordinator's program and its context, with defaults filled in.

    Args:
        arguments: checked arguments of `tune`.
        train: number of train records.
        validation: number of validation records.
        d: number of features.

    Raises:
        InputError: float64 allows no certified solution at the smallest weight.
    """
    problem = ridge_regularisation(d) if arguments.loss == "squared" else logistic_regularisation(d, (-1.0, 1.0))
    low, high = (math.log(w) for w in arguments.weight_range)
    pure, family = arguments.method == "em", family_of(problem, arguments.radius, arguments.label_bound)
    context = CoordinatorContext(
        problem,
        {"train": train, "validation": validation},
        1,
        Clip("l2"),
        Domain(low, high),
        family,
        1 if pure else arguments.steps + 1,
        math.inf if pure else largest_mu(arguments.epsilon, arguments.delta),
    )
    penalty = arguments.lam if arguments.method == "penalty" else None
    program = RegularisationTuner(
        arguments.method, penalty, last_share=0.0 if pure else MODEL_SHARE, pointwise=arguments.method == "ppift"
    )
    return program.resolve_defaults(context)


def release_plan(arguments: Arguments, program: RegularisationTuner, context: CoordinatorContext) -> Ledger:
    """Plan every release. Raises InputError for a target that no noise scale meets."""
    charges, releases = program.planned_releases(context, context.rounds), program.releases_per_round
    return fit_plan(
        lambda factor: Ledger(1, tuple(make_ledger_line(c, p, 1.0 / factor) for c, p in charges.items()), releases),
        arguments.epsilon,
        0.0 if arguments.method == "em" else arguments.delta,
        _TIGHTNESS,
    )


_REFUSED = (
    Refusal[Arguments](
        lambda a: not a.weight_range[0] < a.weight_range[1],
        "weight_range",
        "out of order (got {of.weight_range}, expected smallest < largest)",
        "use for example (0.01, 1.0)",
    ),
    Refusal[Arguments](
        lambda a: a.delta == 0.0 and a.method != "em",
        "delta",
        'the method "{of.method}" adds Gaussian noise, which has no guarantee at 0',
        'use a delta above 0, for example 1e-6, or the method "em"',
    ),
)


def check_arguments(arguments: Arguments) -> Arguments:
    """Return the arguments as Python numbers. Raises InputError for invalid values."""
    plain = Arguments._make(value.item() if isinstance(value, np.generic) else value for value in arguments)
    ends = np.asarray(plain.weight_range).tolist()
    plain = plain._replace(weight_range=tuple(ends) if isinstance(ends, list) else ends)

    def sentence(error: ValidationError) -> str:
        first, *_ = error.errors(include_url=False)
        return f"{first['loc'][0]}: got {first['input']!r}, expected {expected_text(first)}."

    with converting(ValidationError, sentence):
        valid_arguments = TypeAdapter(Arguments, config=ConfigDict(strict=True)).validate_python(plain)
    refuse(valid_arguments, _REFUSED)
    return valid_arguments


def convert_split(role: Any, name: Split, d: int | None = None) -> tuple[Array, Array]:
    """Return (features (n, d), labels (n,)) of one split as float64. Raises InputError for other shapes."""
    features, labels = role
    a, b = real_array(features, f"{name} features"), real_array(labels, f"{name} labels")
    widths = range(1, MOST_FEATURES + 1) if d is None else (d,)
    if a.ndim != 2 or b.shape != a.shape[:1] or not a.shape[0] or a.shape[1] not in widths:
        raise InputError(
            f"{name}: wrong shapes (got features {a.shape} and labels {b.shape}, expected (n, d) and (n,) with n ≥ 1 "
            f"and {f'1 ≤ d ≤ {MOST_FEATURES}' if d is None else f'd = {d}, as in train'})."
        )
    return a, b


def project(features: Array, labels: Array, loss: LossName, radius: float, label_bound: float) -> tuple[Array, Array]:
    """Project every record separately onto ‖a‖₂ ≤ R and |b| ≤ B (or b = ±1, +1 for a label above 0, otherwise −1).

    A record with a non-finite value becomes zeros and contributes nothing. Features with a norm above R are scaled to
    norm R. Others are unchanged. The bound holds for the exact norm of the float64 result.

    Args:
        features: features, (n, d).
        labels: labels, (n,).
        loss: "logistic" for b = ±1, or "squared" for |b| ≤ B.
        radius: bound R on the norm of features.
        label_bound: bound B on the labels of "squared".

    Returns:
        The projected a (n, d) and b (n,).
    """
    finite = np.isfinite(features).all(axis=1) & np.isfinite(labels)
    a = np.where(finite[:, None], features, 0.0)
    # `normalise` has a margin for the rounding of norms, and so has this comparison.
    inside = row_norms(a, "l2") <= radius * (1.0 - (a.shape[1] + 8) * 2.0**-52)
    a = np.ascontiguousarray(np.where(inside[:, None], a, normalise(a, "l2", radius).features))
    b = np.where(finite, labels, 0.0)
    return a, np.where(b > 0.0, 1.0, -1.0) if loss == "logistic" else np.clip(b, -label_bound, label_bound)


def digest_input(arguments: Arguments, roles: tuple[tuple[Array, Array], ...]) -> bytes:
    """Return a digest of the arguments and every record, for the noise key.

    If two datasets had equal noise, the noise would cancel in the difference of their results.

    Args:
        arguments: arguments of the call.
        roles: features (n, d) and labels (n,) of the train and validation records.
    """
    digests = [(a.shape, blake2b(np.ascontiguousarray(a).tobytes()).hexdigest()) for role in roles for a in role]
    return repr((tuple(arguments), digests)).encode()


def tuning_statement(arguments: Arguments, budget: AgentCosts, counts: Mapping[Split, int]) -> str:
    """Return the guarantee of one call in words."""
    low, high = arguments.weight_range
    epsilon = float(budget.epsilon[0])
    epsilon_text = f"{math.ceil(epsilon * 1e4) / 1e4:.4f}" if math.isfinite(epsilon) else "inf"
    guarantee = f"epsilon = {epsilon_text}, delta = {budget.delta:g}"
    parts = [
        f"Weight, model and path are ({guarantee})-differentially private for replacing one of {counts['train']} train "
        f"or one of {counts['validation']} validation records, which keeps its role; the counts, the range {low:g} to "
        f"{high:g} and the method {arguments.method} are public.",
        "Records were projected one by one, and every constant is analytic.",
    ]
    if arguments.method == "em":
        parts.append(
            "The weight was drawn exactly, at pure epsilon; the model's Laplace noise is pure except for "
            f"delta = {budget.slack_delta:.1g} of float64."
        )
    if arguments.seed is not None:
        parts.append(
            "The seed makes the noise reproducible, so this is a simulation: with the seed, the noise can be removed."
        )
    return " ".join(parts)
