"""AdaSSP on a graph: each agent releases its mean label, then clipped sufficient statistics of least squares.

min over y of (1/m) Σ_i mean over agent i's train records of ½ (yᵀã − b)², + l2/2 ‖y‖², with ã = (a, γ) = ∇φ of the
linear model. The labels are centred first, since labels far from 0 would use up the clipping norm C. With P the
symmetric mixing matrix, and a tilde for a release with noise,

    r_i = f · mean clip(γ b, C)                                               released once, in round 1
    β ← P r̃ / f, then β ← P β,   until round K                              function of released values, no noise
    s_i = mean clip((vech(ã ãᵀ), ã (b − β_i/γ)), C)                           released once, in round K + 1
    s_i ← s̃_i with ã b instead of ã (b − β_i/γ), then s ← P s               function of released values, no noise

The layout of s is that of `problems.statistics`. S and v are its means of ã ãᵀ and ã b, and b̄ is the last entry of v
divided by γ. Every agent publishes

    y = b̄/γ e + (S + (λ + l2) I)⁻¹ (v − (S + l2 I) b̄/γ e),      λ = max(0, √(2q) σ − λ_min(S)),

with e the intercept's direction and σ the standard deviation of the noise of s after averaging. √(2q) σ bounds the norm
of the noise of S on average, so S + λI has no smaller eigenvalue. Both S and σ are public: λ has no privacy cost.
f = 0.2, so that r has f²/(1 + f²) = 4 % of the budget μ². With a small γ, the noise of products of features and labels
is smaller, and the mean label keeps enough precision.

Noise protects one train record of agent i: r_i reads it in one clipped mean of sensitivity f·2C/N, and, given the
public β_i, s_i in another one of sensitivity 2C/N, without amplification by sampling. The rest is post-processing. Two
records reach 2C if C ≤ γ. At the default C = 0.5 a search found differences up to 0.996 · 2C.

Without noise and clips, y approaches the least squares of all records, at the speed of gossip.

Limits: linear models with the squared loss, Gaussian noise, and networks that do not change. Message sizes grow with
the square of the number of features.

Reference: Y.-X. Wang, "Revisiting Differentially Private Linear Regression: Optimal and Adaptive Prediction &
Estimation in Unbounded Domain", UAI 2018, Algorithm 2, with one trusted party. There λ_min is released separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.problems.statistics import pack_statistics, statistics_width, unpack_statistics

# f, and the least eigenvalue of S + λI.
LABEL_FACTOR, _LEAST_EIGENVALUE = 0.2, 1e-12


class AdaSspState(NamedTuple):
    """State of the agents.

    Args:
        x: empty upper variable, (b, 0).
        y: initial model, (b, q).
        s: statistics, (b, width). Before round K + 1, only the last entry, the mean label, is nonzero.
        centre: centre β_i/γ of the release of s, (b, 1).
    """

    x: dp.Array
    y: dp.Array
    s: dp.Value
    centre: dp.Array


@dataclass(frozen=True)
class AdaSsp(dp.Algorithm):
    """Least squares from noisy mean labels and sufficient statistics, averaged by gossip (AdaSSP; Wang, 2018).

    Args:
        label_rounds: number K of rounds for the mean label, half of the rounds between the first and the last.
        noise: standard deviation σ.
        l2: strength of the problem's ridge l2/2 ‖y‖².
        bias: constant feature γ of the intercept in the model.
    """

    label_rounds: int = dp.internal(default=1)
    noise: float = dp.internal(default=0.0)
    l2: float = dp.internal(default=0.0)
    bias: float = dp.internal(default=1.0)

    channels: ClassVar[tuple[str, ...]] = ("x", "y", "s")
    memoryless: ClassVar[bool] = True
    one_mean: ClassVar[bool] = True

    def init(self, dataset: dp.LocalDataset) -> AdaSspState:
        nothing = dataset.public(0.0, statistics_width(dataset.q))
        return AdaSspState(*self.starts(dataset), nothing, dataset.public(0.0, 1))

    def step(self, t: int, dataset: dp.LocalDataset, s: AdaSspState) -> dp.GossipSteps[AdaSspState]:
        released, neighbour_sum = yield dp.Gossip(s=s.s)
        if t == 0:
            return s._replace(s=LABEL_FACTOR * dataset.statistics())
        if t == self.label_rounds + 1:
            matrix, vector = unpack_statistics(released.s, dataset.q, self.bias**2)
            mean = matrix[:, :, -1] / self.bias
            # Records may have a public factor of the agent.
            mean[:, -1:] = self.bias * (dataset.weights["train"][:, None] if dataset.weights else 1.0)
            return s._replace(s=pack_statistics(matrix, vector + s.centre * mean))
        average = (1.0 - dataset.neighbour_weight) * released.s + neighbour_sum.s
        average = average / LABEL_FACTOR if t == 1 else average
        if t == self.label_rounds:
            centre = average[:, -1:] / self.bias
            return s._replace(s=dataset.statistics(centre), centre=centre)
        return s._replace(s=average)

    def solution(self, values: Mapping[str, dp.Array]) -> dict[str, dp.Array]:
        """Return the weights y (b, q) of the ridge regression on the statistics s (b, width)."""
        q = values["y"].shape[1]
        matrix, vector = unpack_statistics(values["s"], q, self.bias**2)
        intercept = vector[:, -1:] / self.bias**2
        least = max(np.sqrt(2.0 * q) * self.noise, _LEAST_EIGENVALUE)
        added = np.maximum(0.0, least - np.linalg.eigvalsh(matrix)[:, 0])
        matrix = matrix + self.l2 * np.eye(q)
        rest = vector - matrix[:, :, -1] * intercept
        weights = np.linalg.solve(matrix + added[:, None, None] * np.eye(q), rest[:, :, None])[:, :, 0]
        weights[:, -1:] += intercept
        return {"y": weights}

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        return {
            "x": dp.Channel("x", p, ()),
            "y": dp.Channel("y", q, ()),
            "s": dp.Channel("y", statistics_width(q), ("statistics",)),
        }

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        end, index = np.array([public.rounds]), np.array([1, self.label_rounds + 1])
        is_sent = index <= end
        use = dp.Use("statistics", np.array([LABEL_FACTOR, 1.0])[is_sent], np.zeros(is_sent.sum(), dtype=np.int64))
        free = {channel: dp.free_release(public, end) for channel in ("x", "y")}
        return {**free, "s": dp.plan_release(public.unsampled(), index[is_sent], [use])}


ENTRY = dp.Entry(
    "adassp",
    AdaSsp,
    (dp.Citation("AdaSSP, here on a graph", "wang2018revisiting"),),
    display_name="AdaSSP",
    proved=True,
)
