"""Private tuning of one regularisation strength w = e^x.

    minimise over x  Φ(x) = mean_validation l(y_x)       y_x = argmin_y mean_train l(y) + ½ e^x ‖y‖²

Every round releases the minimiser ỹ at the current x, a private model, and an estimate v of Φ'(x):

    "ppift"     v = implicit differentiation at ỹ, released
    "penalty"   ỹ^λ ≈ argmin g + f/λ, released;  v = λ ½ e^x (‖ỹ^λ‖² − ‖ỹ‖²) − (λ/2) e^x q (s_λ² − s²)
    "em"        one round: x by the exponential mechanism among `candidates` points of its box, then the model there

    x <- P(x − 0.6 · width · v/((|v| + τ)√(t+1))),       τ about the standard deviation of v's noise, from public values

λ → penalty, P → domain, a box. s and s_λ are the public standard deviations of the noise in ỹ and ỹ^λ: the expected
contribution of isotropic noise to a squared norm is subtracted. If the validation loss makes the solution larger,
regularisation is too strong and x must fall; the paper's update adds v, so it ascends. Given ỹ and ỹ^λ the estimate is
post-processing, so the noise that the paper adds to it is not required.

The output is the last x at which a model was released, with that model. With a share s for the last model, the last
round releases only a model, with the share s of a train record's μ²; the other rounds divide the rest. If the target is
pure ε, the model of "em" has Laplace noise: its l1 sensitivity is at most √q times the l2 sensitivity.

`decentral_dp.tune` runs this program for two arrays, with a share of 1/4 and bounds at the released ỹ (`pointwise`).

The guarantee holds for every record of every agent; the coordinator has all records. Minimisers of g change by at most
D_gy/(μn_t) + 2a, those of g + f/λ by the larger of D_gy/(μn_t) and D_fy/(λμn_v), plus 2a, with constants on the ball of
the minimisers.

Reference: G. Kornowski, "Differentially Private Bilevel Optimization", 2024, Section 7, its sign corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.pooled import Pooled
from decentral_dp.central.selection import FiniteExponential, SelectionBounds

# Largest share of the box by which the first step moves x.
_FIRST_STEP = 0.6
_PENALTY, _CANDIDATES = 10.0, 65
# Share of the budget of a round for the model.
_MODEL_SHARE = 0.5
# μ of the model compared with a pure ε of 1 of the choice, which costs about the same at δ = 10⁻⁶.
_MODEL_MU = 0.25


class TunerState(NamedTuple):
    """The public state.

    Args:
        x: next iterate, (1,).
        last_x: previous iterate, (1,).
        y: model released at `last_x`, (q,).
    """

    x: dp.Array
    last_x: dp.Array
    y: dp.Array


_Subject: TypeAlias = tuple[Any, dp.CoordinatorContext]
_REFUSED = (
    dp.Refusal[_Subject](
        lambda c: c[0].penalty is not None and c[0].method != "penalty",
        "algorithm.penalty",
        'only the method "penalty" takes it',
        "remove it",
    ),
    dp.Refusal[_Subject](
        lambda c: c[0].candidates is not None and c[0].method != "em",
        "algorithm.candidates",
        'only the method "em" takes it',
        "remove it",
    ),
    dp.Refusal[_Subject](
        lambda c: c[1].family is None or c[1].problem.p != 1,
        "problem.kind",
        "regularisation_tuner tunes one strength (got p = {of[1].problem.p} upper variables)",
        'use "logistic_regularisation" or "ridge_regularisation"',
    ),
    dp.Refusal[_Subject](
        lambda c: c[0].method == "em" and c[1].rounds != 1,
        "algorithm.rounds",
        'the method "em" draws once (got {of[1].rounds} rounds, expected 1)',
        "set rounds = 1",
    ),
)


@dataclass(frozen=True)
class RegularisationTuner(dp.Coordinated):
    """Bilevel coordinator that tunes one regularisation strength, by one of three methods (Kornowski, 2024, Section 7).

    Args:
        method: tuning method, "ppift", "penalty" or "em".
        penalty: λ, default 10.
        candidates: number of candidate points, default 65.
        last_share: share of a train record's μ² for the model of the last round, its only release; 0 if all rounds are
            equal.
        pointwise: whether the slope of "ppift" is bounded at the released ỹ instead of on the ball of minimisers.
    """

    method: Literal["ppift", "penalty", "em"] = dp.option("method that chooses the strength", default="ppift")
    penalty: float | None = dp.option('λ of method "penalty"; default 10', default=None, example="1.0", above=0)
    candidates: int | None = dp.count_option('number of candidate strengths of method "em"; default 65', "points", "65")
    last_share: float = dp.internal(0.0)
    pointwise: bool = dp.internal(False)

    needs_constants = needs_records = True
    releases_per_round = 2

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        dp.refuse((self, context), _REFUSED)
        context.domain.require_compact("regularisation_tuner")
        low, high = context.domain.corners(1)
        bounds = context.pooled_bounds
        # Raises InputError if float64 cannot certify solutions everywhere in the box, by public numbers.
        bounds.inexactness(low, high)
        penalty = _PENALTY if self.penalty is None and self.method == "penalty" else self.penalty
        if penalty is not None:
            bounds.facts(low, penalty)
        count = _CANDIDATES if self.candidates is None and self.method == "em" else self.candidates
        return replace(self, penalty=penalty, candidates=count), context

    def init(self, context: dp.CoordinatorContext) -> TunerState:
        middle = 0.5 * (context.domain.low + context.domain.high)
        x = context.domain.project(np.array([self.start.get("x", middle)]))
        return TunerState(x, x, context.start("y", self.start))

    def step(self, t: int, context: dp.CoordinatorContext, s: TunerState) -> dp.CoordinatorSteps[TunerState]:
        pool: Pooled = yield dp.Pool()
        if self.method == "em":
            low, high = context.domain.corners(1)
            # From strong to weak regularisation.
            points = np.linspace(high, low, self.candidates or _CANDIDATES)
            selection = FiniteExponential(SelectionBounds.from_value(pool.bounds, low, high), points, pool.scores)
            choice: dp.Released = yield dp.Release(x=selection)
            x = choice.released.x[0]
            minimiser = pool.minimiser(x)
            model: dp.Released = yield dp.Release(model=minimiser.in_l1() if _is_pure(context) else minimiser)
            return TunerState(x, x, context.project_to_minimisers(x, model.released.model[0]))
        model = yield dp.Release(model=pool.minimiser(s.x))
        y = context.project_to_minimisers(s.x, model.released.model[0])
        if self.last_share and t == context.rounds - 1:
            yield dp.Release()
            return TunerState(s.x, s.x, y)
        if self.method == "ppift":
            released = yield dp.Release(slope=pool.implicit(s.x, y, pointwise=self.pointwise))
            slope, noise = float(released.released.slope[0, 0]), released.scale["slope"]
        else:
            penalised = yield dp.Release(pulled=pool.minimiser(s.x, self.penalty))
            slope, noise = penalty_slope(context, s.x, self.penalty or _PENALTY, model, penalised)
        width = context.domain.high - context.domain.low
        move = slope / (abs(slope) + noise) if noise > 0.0 else float(np.sign(slope))
        x = context.domain.project(s.x - _FIRST_STEP * width / math.sqrt(t + 1.0) * move)
        return TunerState(x, s.x, y)

    def published(self, s: TunerState) -> dict[str, dp.Array]:
        return {"x": s.last_x, "y": s.y}

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        kinds: tuple[dp.Split, ...] = ("train", "validation")
        if self.method == "em":
            # A validation record affects only the choice, which may therefore have a larger cost for it.
            prices = {"train": 1.0, "validation": 2.0}
            weight: dict[dp.Split, dp.Array] = {split: np.array([prices[split]]) for split in kinds}
            return {
                "x": dp.Charge("exponential", 1, np.array([1]), weight),
                "model": (
                    dp.Charge("laplace", context.problem.q, np.array([2]), {"train": np.array([1.0])})
                    if _is_pure(context)
                    else dp.Charge("gaussian", context.problem.q, np.array([2]), {"train": np.array([_MODEL_MU])})
                ),
            }
        for_model, for_slope = (dp.round_indices(rounds - bool(self.last_share), 2, (position,)) for position in (0, 1))
        second, width = ("slope", 1) if self.method == "ppift" else ("pulled", context.problem.q)
        model = dp.Part(for_model, context.problem.q, share=_MODEL_SHARE)
        charges = dp.gaussian_charges({"model": model, second: dp.Part(for_slope, width, kinds, 1.0 - _MODEL_SHARE)})
        if not self.last_share:
            return charges
        # The other rounds leave a train record's share for the last model.
        remainder, indices = math.sqrt(1.0 - self.last_share), charges["model"].indices
        out = {
            c: charge._replace(weight={k: remainder * w if k == "train" else w for k, w in charge.weight.items()})
            for c, charge in charges.items()
        }
        out["model"] = out["model"]._replace(
            indices=np.append(indices, 2 * rounds - 1),
            weight={"train": np.append(out["model"].weight["train"], math.sqrt(self.last_share))},
        )
        return out


def penalty_slope(
    context: dp.CoordinatorContext, x: dp.Array, penalty: float, model: dp.Released, penalised: dp.Released
) -> tuple[float, float]:
    """Estimate the derivative of the method "penalty" at x and the standard deviation of its noise.

    Args:
        context: public facts of the run.
        x: log of the regularisation strength, (1,).
        penalty: λ.
        model: ỹ on the channel "model", with the scale of its noise.
        penalised: ỹ^λ on the channel "pulled", with the scale of its noise.
    """
    y, y_penalised = model.released.model[0], penalised.released.pulled[0]
    scale, scale_penalised = model.scale["model"], penalised.scale["pulled"]
    strength = penalty * math.exp(float(x[0]))
    bias = 0.5 * strength * y.size * (scale_penalised**2 - scale**2)
    slope = penalty * float(context.regulariser_change(x, y_penalised, y)[0]) - bias
    noise = math.hypot(scale * float(np.linalg.norm(y)), scale_penalised * float(np.linalg.norm(y_penalised)))
    return slope, strength * noise


def _is_pure(context: dp.CoordinatorContext) -> bool:
    """Return whether the target is pure ε."""
    return context.noisy and math.isinf(context.budget)


ENTRY = dp.Entry(
    "regularisation_tuner",
    RegularisationTuner,
    (dp.Citation('The rule of method = "penalty", its sign corrected', "kornowski2024differentially"),),
    proved=True,
)
