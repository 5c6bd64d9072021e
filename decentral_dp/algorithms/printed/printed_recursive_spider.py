"""DP Recursive-SPIDER as printed: for comparison, at ε = ∞.

Algorithm 3 of Xu et al. 2025 with the noise of its Theorem 8, constants c = 1 and G = C, on h instead of e^{ℓ/λ}, which
overflows. N = qn, R rounds, a = √log(1/δ)/ε · max{1/N, √R/n}:

    t % T = 0    v = mean clip(∇_x h_i(w_t), C_x) + N(0, σ_1²),      σ_1 = C_x √(R log(1/δ))/(nTε);  u alike with C_λ
    otherwise    v = mean clip(∇_x h_i(w_t) − ∇_x h_i(w_{t−1}), C_x) + noise of a · min{L ‖x_t − x_{t−1}‖, 2C_λ}
                 u = mean clip(∂_λ h_i(w_t) − ∂_λ h_i(w_{t−1}), C_λ) + noise of a · min{L |λ_t − λ_{t−1}|, 2C_x}
    s = β h_k(w_t) + (1−β) s + noise of √(R log(1/δ))/(nε),          k one record

Printed so, and kept: v and u at differences without the v and u before; the 2C of one in the minimum of the other;
noise that shrinks with the step while the clip does not; T for √T in σ_1; h at one point, so that s is a moving
average; one record, whose part in s is β and not β/n.

Repaired, for it would not run: λ_0 > 0 (w_0 = 0 divides by λ = 0) and λ ≥ λ_0; the first round, t = 0, is an anchor,
and s starts at 1, where the paper defines neither; s is cut to where the mean of h must lie. A Poisson sample of rate
1/n stands for the one record: it has one on average.

What one record does to differences over their noise has no bound, so nothing is certified. s alone is charged by its
true price. G, smoothness and clips are of h.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import final

import numpy as np

from decentral_dp.algorithms.coordinator_minimax.recursive_spider import RecursiveSpider, State
from decentral_dp.algorithms.coordinator_minimax.spider_releases import composed, reach
from decentral_dp.algorithms.coordinator_minimax.spider_schedule import Block, Point, block_charges, is_anchor, split
from decentral_dp.algorithms.coordinator_protocol import Charge
from decentral_dp.algorithms.printed.printed_scales import in_units, root_log
from decentral_dp.algorithms.printed.protocol import Calibration, Noise
from decentral_dp.bounded import Array
from decentral_dp.exchange import Ask, ClippedQuery, Release, Request, Response
from decentral_dp.participants.minimax_context import MinimaxContext

# Noise of a deviation of 0 is drawn with this one, in units of a.
_NONE = 1e-9


@final
class PrintedRecursiveSpider(RecursiveSpider):
    """The fields of `RecursiveSpider`, with the printed steps and noise."""

    protocol = "printed"
    releases_per_round = 2

    def init(self, context: MinimaxContext) -> State:
        return super().init(context)._replace(s=np.ones(1))

    def step(self, t: int, context: MinimaxContext, s: State) -> Generator[Request, Response, State]:
        here, before = (s.x, s.y), (s.last_x, s.last_y)
        clips, fresh = _clips(context), is_anchor(t, self.period)
        since, names = (None, ("gx", "gy")) if fresh else (before, ("dx", "dy"))
        asked = {
            name: context.query(term, *here, self.rate, since, clip)
            for name, term, clip in zip(names, ("inner_x", "inner_y"), clips, strict=True)
        }
        answer = yield Ask(**asked)
        units = (1.0, 1.0) if fresh else _units(self.smoothness or 0.0, s, clips)
        released = (
            yield Release(**{c: in_units(answer[c], unit) for c, unit in zip(names, units, strict=True)})
        ).released
        v, u = (released[c][0] * unit for c, unit in zip(names, units, strict=True))
        one = (yield Ask(one=_one(context, *here))).one
        value = (1.0 - self.weight(t)) * s.s + (yield Release(s=self.weight(t) * one)).released.s[0]
        by_x, by_y = composed(context, s.y, value, v, u)
        x, y = context.problem.project_x(s.x - self.x(t) * by_x), context.problem.project_y(s.y + self.y(t) * by_y)
        return State(x, y, v, u, value, 0.0, s.x, s.y)

    def planned_releases(self, context: MinimaxContext, rounds: int) -> dict[str, Charge]:
        first = np.arange(rounds, dtype=np.int64) * 2 + 1
        blocks = split(first, self.period, ("gx", "dx"), context.problem.p, 1.0)
        blocks |= split(first, self.period, ("gy", "dy"), context.problem.q, 1.0)
        return block_charges(blocks, self.rate) | block_charges({"s": Block(first + 1, 1, 1.0)}, 1.0 / context.n)

    def printed_calibration(self, context: MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        n, root, clips = context.n, root_log(delta), _clips(context)
        worst = _worst(context)
        anchor = root * math.sqrt(rounds) / (n * self.period * epsilon)
        change = root / epsilon * max(1.0 / (self.rate * n), math.sqrt(rounds) / n)
        weights, one = np.array([self.weight(t) for t in range(rounds)]), context.sensitivity_of(_one(context, *worst))
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


def _one(context: MinimaxContext, x: Array, y: Array) -> ClippedQuery:
    """h of one record, on average."""
    return context.query("inner", x, y, 1.0 / context.n)


def _worst(context: MinimaxContext) -> Point:
    """Where λ is least: there h and its derivatives reach as far as anywhere."""
    return context.start("x", {}), context.problem.project_y(np.zeros(context.problem.q))


def _clips(context: MinimaxContext) -> tuple[float, float]:
    """C_x and C_λ, the same at every λ."""
    return reach(context.ball("inner_x", *_worst(context))), reach(context.ball("inner_y", *_worst(context)))


def _units(smoothness: float, s: State, clips: tuple[float, float]) -> tuple[float, float]:
    """Deviations of the noise on differences over a: each in the minimum with the other's clip."""
    away = float(np.linalg.norm(s.x - s.last_x)), float(np.linalg.norm(s.y - s.last_y))
    by_x, by_y = min(smoothness * away[0], 2.0 * clips[1]), min(smoothness * away[1], 2.0 * clips[0])
    return max(by_x, _NONE), max(by_y, _NONE)
