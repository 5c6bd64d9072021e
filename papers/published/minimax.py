"""Minimax algorithms of a trusted coordinator as published."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any, NamedTuple, Self, final

import numpy as np

from decentral_dp.bounded import Bounded, Sensitivity, Split, summation_slack
from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import (
    dp_sgda,
    privatediff,
    recursive_spider,
    spider,
    steps,
)
from decentral_dp.central.problems.saddle import PublicBall
from decentral_dp.central.vocabulary import Calibration
from decentral_dp.privacy.clipping import clip_factors
from papers.published.calibration import (
    Noise,
    check_ascent,
    constant_noise,
    in_units,
    root_log,
)


@final
class PublishedDpSgda(dp_sgda.DpSgda):
    """The fields and steps of `DpSgda`, only for solver = "ascent", with clips to constants and the published noise.

    The steps are those of `dp_sgda` with ascent. ∇_y f is clipped to C_y for every problem. The noise on both means is
    8 C √(T log(1/δ))/(nε) over T rounds, for samples of fixed size. The samples here are Poisson samples. The certified
    ε of this noise is less than half of the claim.

    Reference: Yang et al. 2022, Theorem 1 and the values after it; "DP-SGDA" in the paper of PrivateDiff Minimax.
    """

    protocol = "as_published"
    solves = "minimax"
    claim = "Theorem 1 and the explicit values after it, as published"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ascent(self.solver, "as published, y ascends")

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        resolved, context = super().resolve_defaults(context)
        if context.reads("grad_y") and not np.isfinite(context.clip.bound("y")):
            raise dp.InputError(
                "privacy.clip.y: missing. As published ∇_y f is clipped around 0, too; give for example clip.y = 1.0."
            )
        return resolved, ConstantClips(**{f.name: getattr(context, f.name) for f in fields(context)})

    def calibration(self, context: dp.MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        unit = 8.0 * math.sqrt(rounds * math.log(1.0 / delta)) / (context.n * epsilon)
        start, noise = self.init(context), {}
        for channel, term in (("gx", "grad_x"), ("gy", "grad_y")):
            if context.reads(term):
                query = context.query(term, start.x, start.y, self.rate)
                noise[channel] = (unit * query.bound, context.sensitivity_of(query))
        return constant_noise(self.planned_releases(context, rounds), noise)


class ConstantClips(dp.MinimaxContext):
    """A context that clips to constants instead of to the problem's ball at a point."""

    def ball(self, term: str, x: dp.Array, y: dp.Array) -> PublicBall:
        return PublicBall(None, self.bound(term))

    def bound(self, term: str) -> float:
        return self.clip.bound(term[-1]) if self.noisy else math.inf


REASON = (
    "As published, y has no noise in the update of x. The agents receive exact means of samples, and x depends on "
    "them, so no sensitivity is proved."
)


class State(NamedTuple):
    """State of the published algorithm.

    Attributes:
        x: iterate x_r, (p,).
        y: released ỹ, (q,).
        exact_y: y without noise, (q,).
        v: ṽ, (p,).
        last_x: x_{r−1}, (p,).
        sample: mean of the last round.
    """

    x: dp.Array
    y: dp.Array
    exact_y: dp.Array
    v: dp.Array
    last_x: dp.Array
    sample: dp.Bounded | None


@final
class PublishedPrivateDiff(privatediff.PrivateDiff):
    """The fields of `PrivateDiff`, only for solver = "ascent", with a noiseless y in the update of x.

        y <- Π_Y(y + η_i mean clip(∇_y f(x_r, y), C_0)), inner times, without noise, from the last noiseless y
        d_r = mean clip(∇_x f(x_r, y_{r+1})) over the sample of round r, minus that of round r − 1 over its own sample
        r % T = 0    ṽ = mean clip(∇_x f(x_r, y_{r+1}), C_1) + N(0, (σ_1 C_1)² I)
        otherwise    ṽ += d_r + N(0, (σ_2 C_{2,r})² I),     C_{2,r} = C_2 ‖x_r − x_{r−1}‖ + C_3
        x <- P(x − η_x (ṽ + ∇_x r)),    output ỹ = y + N(0, σ_y² I), used only as output

    with the noise of Remark 5.1: σ_1 = 4√((R/T) log(1/δ))/(nε), σ_2 = 4√(R log(1/δ))/(nε), and σ_y = 4(2C_0² + βM) √(R
    log(1/δ))/(μnε). C_0, C_1 → privacy.clip.y and x, C_2 → smoothness, T → period, R → rounds, 1/μ → the scale of η_i.
    C_3 = 1/√inner, the order in Theorem 6. The paper gives no value of βM, which is omitted.

    Samples are Poisson samples of different sizes. The paper clips the differences of pairs (z_r^j, z_{r−1}^j) at
    C_{2,r}. There are no such pairs here, and every gradient is clipped at C_1. As in the paper, the two terms of a
    difference use different samples, so the sum of differences is the mean of the newest sample plus all noise.

    No sensitivity is proved: all agents receive the exact means that determine y, and the update of x depends on this
    y. In the ledger every channel has sensitivity ∞.

    Reference: Zhang et al. 2025, Algorithms 3 and 4, Theorem 5 and Remark 5.1.
    """

    protocol = "as_published"
    solves = "minimax"
    claim = "Theorem 5 and Remark 5.1 of Zhang et al. (2025), as published"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ascent(self.solver, "the paper ascends step by step")

    def init(self, context: dp.MinimaxContext) -> Any:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return State(x, y, y, np.zeros_like(x), x, None)

    def step(self, t: int, context: dp.MinimaxContext, s: Any) -> dp.CoordinatorSteps[Any]:
        y = s.exact_y
        for i in range(self.steps):
            by_y = context.problem.public("grad_y", s.x, y, t)
            if context.reads("grad_y"):
                mean = (yield dp.Ask(gy=context.query("grad_y", s.x, y, self.rate))).gy
                by_y = by_y + (yield dp.Release(gy=_unproven(mean))).released.gy[0]
            else:
                yield dp.Release()
            y = context.problem.project_y(y + (self.y(i) if self.y else 0.0) * by_y)
        out = {"y": dp.Bounded(np.zeros((1, y.size)), y[None], {"train": _infinite_change(1)}, "l2")}
        v, sample = s.v, s.sample
        if context.reads("grad_x"):
            sample = (yield dp.Ask(gx=context.query("grad_x", s.x, y, self.rate))).gx
        if sample is None:
            released = (yield dp.Release(**out)).released
        elif t % self.period == 0 or s.sample is None:
            released = (yield dp.Release(gx=_unproven(sample), **out)).released
            v = released.gx[0]
        else:
            # The release is in units of C_{2,r}, in which the noise scale is the published constant.
            unit = self._unit(s)
            released = (yield dp.Release(dx=_unproven((sample - s.sample) * (1.0 / unit)), **out)).released
            v = v + unit * released.dx[0]
        x = context.problem.project_x(s.x - self.x(t) * (v + context.problem.public("grad_x", s.x, y, t)))
        return State(x, released.y[0], y, v, s.x, sample)

    def _unit(self, s: State) -> float:
        """Compute C_{2,r}, or C_3 if x is not finite."""
        with np.errstate(all="ignore"):
            sensitivity = (self.smoothness or 0.0) * float(np.linalg.norm(s.x - s.last_x))
        return (sensitivity if math.isfinite(sensitivity) else 0.0) + 1.0 / math.sqrt(self.steps)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        last = (np.arange(rounds, dtype=np.int64) + 1) * self.releases_per_round
        anchored = np.arange(rounds) % self.period == 0
        out = {}
        if context.reads("grad_y"):
            each = (last[:, None] - self.steps + np.arange(self.steps)).reshape(-1)
            out["gy"] = dp.Charge("uncertified", context.problem.q, each, _infinite(each.size), reason=REASON)
        if context.reads("grad_x"):
            for channel, chosen in (("gx", last[anchored]), ("dx", last[~anchored])):
                if chosen.size:
                    out[channel] = dp.Charge(
                        "gaussian", context.problem.p, chosen, _infinite(chosen.size), reason=REASON
                    )
        return out | {"y": dp.Charge("gaussian", context.problem.q, last, _infinite(rounds), reason=REASON)}

    def calibration(self, context: dp.MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        """Compute the noise of Remark 5.1.

        Raises:
            InputError: η_i is missing or 0, and does not determine μ.
        """
        if self.y is None or self.y.scale == 0.0:
            raise dp.InputError(
                "algorithm.y: its scale is 1/μ here, μ the strong concavity in y, and 0 is none; give for "
                "example y = { scale = 1.0, decay = 1.0 }."
            )
        point = context.start("x", {}), context.start("y", {})
        root = 4.0 * math.sqrt(rounds * math.log(1.0 / delta)) / (context.n * epsilon)
        scales = {
            "gy": 0.0,
            "gx": root / math.sqrt(self.period) * context.ball("grad_x", *point).radius,
            "dx": root,
            "y": root * self.y.scale * 2.0 * context.ball("grad_y", *point).radius ** 2,
        }
        return {
            channel: Calibration(np.full(charge.indices.size, scales[channel]), charge.weight)
            for channel, charge in self.planned_releases(context, rounds).items()
        }


def _unproven(value: dp.Bounded) -> dp.Bounded:
    """Return the value with infinite sensitivities, because its sample is used again."""
    return replace(
        value,
        sensitivities={split: _infinite_change(s.sensitivity.size) for split, s in value.sensitivities.items()},
    )


def _infinite_change(agents: int) -> Sensitivity:
    return Sensitivity(np.full(agents, np.inf), np.ones(agents), None)


def _infinite(releases: int) -> dict[dp.Split, dp.Array]:
    return {"train": np.full(releases, np.inf)}


@final
class PublishedDoubleSpider(spider.DoubleSpider):
    """The fields and steps of `DoubleSpider`, for clipped means of batches.

    The steps are those of `double_spider`, by default with step length at most 1/(L√n). Means are clipped to C_y and
    C_x at anchors, and both differences to 2L max{|y_t − y_{t−1}|, ‖x_t − x_{t−1}‖}, which does not include y_{t+1}
    although ∇_x f is evaluated there. For a clip c and N = qn, the noise is c times (Theorem 6 with constant 1)

        u  anchors √(R log(1/δ))/(n√(Tε)),  differences √log(1/δ)/(Nε)            R rounds
        v  both    √log(1/δ)/ε · max{1/N, √R/(n√T)}

    One record can change a clipped mean by 2c, and not only 2c/N, for every sample. With this sensitivity, the
    certified ε of the published noise is ∞ except for tiny n.

    Reference: Xu et al. 2025, Algorithm 2 and Theorem 6.
    """

    protocol = "as_published"
    solves = "minimax"
    claim = "Theorem 6 of Xu et al. (2025), as published, its constant taken as 1"

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        resolved, context = super().resolve_defaults(context)
        if self.longest is None and self.smoothness is not None:
            return replace(resolved, longest=1.0 / (self.smoothness * math.sqrt(context.n))), context
        return resolved, context

    def _release_mean(
        self, context: dp.MinimaxContext, s: Any, channel: str, query: dp.ClippedQuery
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Release the mean or the mean change, clipped after averaging."""
        term, here, before = query.term, (query.x, query.y), query.earlier_point
        with np.errstate(all="ignore"):
            moved = max(float(np.linalg.norm(s.y - s.last_y)), float(np.linalg.norm(s.x - s.last_x)))
        moved = moved if math.isfinite(moved) else 0.0
        unit = (
            recursive_spider.reach(context.ball(term, *here))
            if before is None
            else 2.0 * (self.smoothness or 0.0) * moved
        )
        mean = (yield dp.Ask(mean=context.query(term, *here, self.rate, before, math.inf))).mean
        # Noise is planned in units of the clip.
        clipped = in_units(clip_mean(mean, unit), unit)
        released: dp.Array = (yield dp.Release(**{channel: clipped})).released[channel][0]
        return released * unit

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        # The sensitivity does not depend on the sample, so there is no amplification by sampling.
        return spider.plan_alternating_estimates(context, rounds, self.period, 1.0)

    def calibration(self, context: dp.MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        size, root = self.rate * context.n, root_log(delta)
        often = math.sqrt(rounds) / (context.n * math.sqrt(self.period))
        by_x = root / epsilon * max(1.0 / size, often)
        noise = {"gy": root * often / math.sqrt(epsilon), "dy": root / (size * epsilon), "gx": by_x, "dx": by_x}
        charges = self.planned_releases(context, rounds)
        scaled = {c: (noise[c], clipped_sensitivity(charge.width)) for c, charge in charges.items()}
        return constant_noise(charges, scaled)


def clip_mean(mean: Bounded, bound: float) -> Bounded:
    """Clip a mean to a ball around 0.

    One record can change the clipped mean by the diameter of the ball. The sensitivity is twice the bound, without
    amplification by sampling.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(np.linalg.norm(mean.value))
    factor = float(clip_factors(np.array([size]), bound)[0])
    change = bound * clipped_sensitivity(mean.private.shape[1])
    sensitivity: dict[Split, Sensitivity] = {"train": Sensitivity(np.array([change]), np.ones(1), None)}
    # A mean that is not finite has the factor 0, and 0·∞ is NaN.
    mean_value = mean.value * factor if factor > 0.0 else np.zeros_like(mean.private)
    return Bounded(np.zeros_like(mean.private), mean_value, sensitivity, "l2")


def clipped_sensitivity(width: int) -> float:
    """Return the sensitivity of a mean after clipping to a ball of radius 1."""
    return 2.0 * float(summation_slack(1, width))


# Smallest standard deviation of noise on differences, in units of a. It replaces 0.
_SMALLEST_DEVIATION = 1e-9


@final
class PublishedRecursiveSpider(recursive_spider.RecursiveSpider):
    """The fields of `RecursiveSpider`, with the published steps and noise.

    Algorithm 3 of Xu et al. 2025 with the noise of its Theorem 8, constants c = 1 and G = C, on h instead of e^{ℓ/λ},
    which overflows. N = qn, R rounds, a = √log(1/δ)/ε · max{1/N, √R/n}:

        t % T = 0    v = mean clip(∇_x h_i(w_t), C_x) + N(0, σ_1²),     σ_1 = C_x √(R log(1/δ))/(nTε); u likewise, C_λ
        otherwise    v = mean clip(∇_x h_i(w_t) − ∇_x h_i(w_{t−1}), C_x) + noise of a · min{L ‖x_t − x_{t−1}‖, 2C_λ}
                     u = mean clip(∂_λ h_i(w_t) − ∂_λ h_i(w_{t−1}), C_λ) + noise of a · min{L |λ_t − λ_{t−1}|, 2C_x}
        s = β h_k(w_t) + (1−β) s + noise of √(R log(1/δ))/(nε),          k one record

    Kept as published: v and u at differences do not include the last v and u. The minimum of each has the 2C of the
    other. The noise decreases with the step, but the clip does not. σ_1 has T instead of √T. h is evaluated at one
    point, so s is a moving average. One record has the weight β in s, and not β/n.

    Corrected, because the algorithm would not run: λ_0 > 0 and λ ≥ λ_0, as w_0 = 0 divides by λ = 0. The first round
    t = 0 is an anchor and s starts at 1, which the paper does not define. s is clipped to the range of the mean of h. A
    Poisson sample of rate 1/n replaces the one record.

    The ratio of differences to their noise is unbounded, so they have no certificate. s is accounted at its true
    privacy cost. G, smoothness and clips are those of h.
    """

    protocol = "as_published"
    solves = "minimax"
    claim = "Theorem 8 of Xu et al. (2025), as published, its constant taken as 1"
    releases_per_round = 2

    def init(self, context: dp.MinimaxContext) -> recursive_spider.RecursiveState:
        return super().init(context)._replace(s=np.ones(1))

    def step(
        self, t: int, context: dp.MinimaxContext, s: recursive_spider.RecursiveState
    ) -> dp.CoordinatorSteps[recursive_spider.RecursiveState]:
        here, before = (s.x, s.y), (s.last_x, s.last_y)
        clips, fresh = _clips(context), t % self.period == 0
        since, names = (None, ("gx", "gy")) if fresh else (before, ("dx", "dy"))
        queries = {
            name: context.query(term, *here, self.rate, since, clip)
            for name, term, clip in zip(names, ("inner_x", "inner_y"), clips, strict=True)
        }
        answer = yield dp.Ask(**queries)
        units = (1.0, 1.0) if fresh else _units(self.smoothness or 0.0, s, clips)
        released = (
            yield dp.Release(**{c: in_units(answer[c], unit) for c, unit in zip(names, units, strict=True)})
        ).released
        v, u = (released[c][0] * unit for c, unit in zip(names, units, strict=True))
        inner = (yield dp.Ask(inner=_inner_query(context, *here))).inner
        value = (1.0 - self.weight(t)) * s.s + (yield dp.Release(s=self.weight(t) * inner)).released.s[0]
        by_x, by_y = recursive_spider.compose_gradients(context, s.y, value, v, u)
        x, y = context.problem.project_x(s.x - self.x(t) * by_x), context.problem.project_y(s.y + self.y(t) * by_y)
        return recursive_spider.RecursiveState(x, y, v, u, value, 0.0, s.x, s.y)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        derivatives, means = dp.round_indices(rounds, 2), dp.round_indices(rounds, 2, (1,))
        estimates = dict.fromkeys((recursive_spider.INNER_X, recursive_spider.INNER_Y), derivatives)
        parts = steps.plan_estimates(context, self.period, estimates, self.rate)
        return dp.gaussian_charges(parts) | dp.gaussian_charges({"s": dp.Part(means, 1, rate=1.0 / context.n)})

    def calibration(self, context: dp.MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        n, root, clips = context.n, root_log(delta), _clips(context)
        worst = _worst_point(context)
        anchor = root * math.sqrt(rounds) / (n * self.period * epsilon)
        change = root / epsilon * max(1.0 / (self.rate * n), math.sqrt(rounds) / n)
        weights, one = (
            np.array([self.weight(t) for t in range(rounds)]),
            context.sensitivity_of(_inner_query(context, *worst)),
        )
        out = {}
        for channel, charge in self.planned_releases(context, rounds).items():
            size = charge.indices.size
            if channel == "s":
                scale = np.full(size, root * math.sqrt(rounds) / (n * epsilon))
                out[channel] = Calibration(scale, {"train": one * weights})
            elif channel in ("gx", "gy"):
                which = ("gx", "gy").index(channel)
                sensitivity = context.sensitivity_of(
                    context.query(("inner_x", "inner_y")[which], *worst, self.rate, None, clips[which])
                )
                out[channel] = Calibration(np.full(size, clips[which] * anchor), {"train": np.full(size, sensitivity)})
            else:
                out[channel] = Calibration(np.full(size, change), {"train": np.full(size, np.inf)})
        return out


def _inner_query(context: dp.MinimaxContext, x: dp.Array, y: dp.Array) -> dp.ClippedQuery:
    """Return the query of h on a sample of one record on average."""
    return context.query("inner", x, y, 1.0 / context.n)


def _worst_point(context: dp.MinimaxContext) -> steps.Point:
    """Return the point with the smallest λ, at which h and its derivatives are largest."""
    return context.start("x", {}), context.problem.project_y(np.zeros(context.problem.q))


def _clips(context: dp.MinimaxContext) -> tuple[float, float]:
    """Return C_x and C_λ, which do not depend on λ."""
    return recursive_spider.reach(context.ball("inner_x", *_worst_point(context))), recursive_spider.reach(
        context.ball("inner_y", *_worst_point(context))
    )


def _units(smoothness: float, s: recursive_spider.RecursiveState, clips: tuple[float, float]) -> tuple[float, float]:
    """Compute the noise scales of differences over a. Each minimum has the clip of the other variable."""
    distance = float(np.linalg.norm(s.x - s.last_x)), float(np.linalg.norm(s.y - s.last_y))
    by_x, by_y = min(smoothness * distance[0], 2.0 * clips[1]), min(smoothness * distance[1], 2.0 * clips[0])
    return max(by_x, _SMALLEST_DEVIATION), max(by_y, _SMALLEST_DEVIATION)


@final
class PublishedDpSpider(spider.DpSpider):
    """The fields and steps of `DpSpider`, with the published noise in units of the clip.

    With the paper's constant as 1, N = qn and R rounds,

        anchors C √log(1/δ)/ε · max{1/N, √R/(n√T)}        differences τ √log(1/δ)/ε · max{1/N, √R/n}

    for Lipschitz and smooth losses without clipping. The clips here enforce the constants for all losses, and determine
    the privacy cost of the noise. A change is released in units of its clip τ, so that its noise scale can be planned.

    Reference: Arora et al. 2023 (DP-SPIDER); Xu et al. 2025 (Section 3) on (x, η) as one variable.
    """

    protocol = "as_published"
    solves = "minimax"
    claim = "the calibration of Arora et al. (2023), its constant taken as 1"

    def _release_mean(
        self, context: dp.MinimaxContext, s: Any, channel: str, query: dp.ClippedQuery
    ) -> dp.CoordinatorSteps[dp.Array]:
        unit = 1.0 if query.earlier_point is None else query.bound
        mean = (yield dp.Ask(mean=query)).mean
        released: dp.Array = (yield dp.Release(**{channel: in_units(mean, unit)})).released[channel][0]
        return released * unit

    def calibration(self, context: dp.MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        s, size = self.init(context), self.rate * context.n
        often = math.sqrt(rounds) / context.n
        anchor = context.query("joint", s.x, s.y, self.rate)
        change = context.query("joint", s.x, s.y, self.rate, (s.x, s.y), 1.0)
        unit = root_log(delta) / epsilon
        noise = {
            "g": (
                unit * anchor.bound * max(1.0 / size, often / math.sqrt(self.period)),
                context.sensitivity_of(anchor),
            ),
            "d": (unit * max(1.0 / size, often), context.sensitivity_of(change)),
        }
        return constant_noise(self.planned_releases(context, rounds), noise)


@final
class PublishedDpSgdDual(spider.DpSgdDual):
    """The fields and steps of `DpSgdDual`, with the published noise.

    The noise is C √(log(1/δ)/ε) max{1/(qn), √R/n} over R rounds, although Gaussian noise needs 1/ε instead of √(1/ε).
    The certified ε is the true ε of this noise.

    Reference: Xu et al. 2025, Theorem 5, its constant taken as 1.
    """

    protocol = "as_published"
    solves = "minimax"
    claim = "Theorem 5 of Xu et al. (2025), as published, its constant taken as 1"

    def calibration(self, context: dp.MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        s = self.init(context)
        query = context.query("joint", s.x, s.y, self.rate)
        size = max(1.0 / (self.rate * context.n), math.sqrt(rounds) / context.n)
        scale = query.bound * root_log(delta) / math.sqrt(epsilon) * size
        return constant_noise(self.planned_releases(context, rounds), {"g": (scale, context.sensitivity_of(query))})
