"""Centring: agents release the mean of their features once, and a linear model reads features minus this mean.

Centring wraps any gossip algorithm of one-level training, min_y (1/m) Σ_i g_i(x, y) at a constant x. The centre x of
the features (`problems.training`) is 0 at the start. With f_i the mean of the features of all train records of agent i,
each clipped to C_x, x̃ the released value, and a_i = 1 − |w_ii|,

    x_{i,1} = f_i                                                    released once, with fresh noise
    x_{i,t+1} = a_i x̃_{i,t} + Σ_j w_ij x̃_{j,t},   t = 1, …, K − 1,   function of released values, no noise
    x ← max(0, 1 − ν²/‖x‖²) x                                        once, after the last average

ν² is the expected square of the noise of x (James & Stein 1961). With a `radius`, x is projected on the ball of this
radius in every round, so that features minus x are bounded (docs/proofs/37). x is sent in the first message of a round.
The algorithm runs unchanged at the x of its round. If agents answer a server, they send f_i with the last answer of
round 1. x is then the mean of these answers, shrunk in the same way, from round 2 on.

Noise protects one train record: the release has sensitivity 2C_x/N_i, without amplification by sampling, and x is
post-processing. At any x the algorithm clips gradients of the features a − x to C_y, so its releases keep their
sensitivities (docs/proofs/02).

Limits: every agent sends in every round, to symmetric neighbours, over edges that do not change. The first message of a
round depends on no record except through the state.

References: W. James, C. Stein, "Estimation with Quadratic Loss", Berkeley Symposium 1961; Z. Sun et al., "The
Importance of Feature Preprocessing for Differentially Private Linear Optimization", ICLR 2024.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.plans import Wrapper


@dataclass(frozen=True)
class Centring(Wrapper, dp.Algorithm):
    """Wrapper that trains `program` at the released mean of the features.

    Args:
        program: gossip algorithm of one-level training, whose state has the fields x and y.
        averaging_rounds: number K of rounds in which agents send x, or 1 for a server.
        noise: expected square ν² of the noise of x.
        radius: largest allowed norm of x, infinite by default.
    """

    averaging_rounds: int
    noise: float
    radius: float = math.inf

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(self.program.channels)

    @property
    def protocol(self) -> str:
        return str(self.program.protocol)

    @property
    def releases_per_round(self) -> int:
        return int(self.program.releases_per_round)

    @property
    def has_server(self) -> bool:
        return bool(self.program.has_server)

    @property
    def memoryless(self) -> bool:
        return bool(self.program.memoryless)

    @property
    def one_mean(self) -> bool:
        return bool(self.program.one_mean)

    def init(self, dataset: dp.LocalDataset) -> Any:
        return self.program.init(dataset)

    def step(self, t: int, dataset: dp.LocalDataset, s: Any) -> Generator[Any, Any, Any]:
        if self.has_server and t == 1:
            # Send the mean of the features with the last answer of the round.
            steps = self.program.step(t, dataset, s)
            question = next(steps)
            for _ in range(self.releases_per_round - 1):
                question = steps.send((yield question))
            answer = yield dp.Ask(**question.values, m=dataset.feature_mean())
            after = yield from _continue(steps, answer)
            return after._replace(x=self.shortened(answer.mean.m))
        if not self.has_server and 0 < t <= self.averaging_rounds:
            return (yield from self._average(t, dataset, s))
        after = yield from self.program.step(t, dataset, s)
        return after if t or self.has_server else after._replace(x=dataset.feature_mean())

    def _average(self, t: int, dataset: dp.LocalDataset, s: Any) -> Generator[Any, Any, Any]:
        """Send x in the first message of the algorithm, which continues at the x of this round."""
        # In round 1, x of the state is not public.
        public = s._replace(x=self.starts(dataset)[0])
        message = next(self.program.step(t, dataset, public))
        # The order of channels is that of their noise.
        reply = yield dp.Gossip(each=message.each, **{"x": s.x} | message.values | {"x": s.x})
        x = reply.released.x
        # In the last of these rounds x is unchanged, so that gradients are taken at the published x.
        if t < self.averaging_rounds:
            x = (1.0 - dataset.neighbour_weight) * x + reply.neighbour_sum.x
            x = self.project(self.shortened(x) if t == self.averaging_rounds - 1 else x)
        steps = self.program.step(t, dataset, s._replace(x=x))
        next(steps)
        after = yield from _continue(steps, reply)
        return after._replace(x=x)

    def shortened(self, x: dp.Array) -> dp.Array:
        """Return the noisy means, (b, p), multiplied by max(0, 1 − ν²/‖x‖²)."""
        if not self.noise:
            return x
        length = np.square(x).sum(axis=1, keepdims=True)
        shorter: dp.Array = np.maximum(0.0, 1.0 - self.noise / np.maximum(length, self.noise)) * x
        return shorter

    def project(self, x: dp.Array) -> dp.Array:
        """Return the noisy means, (b, p), projected onto the ball."""
        if math.isinf(self.radius):
            return x
        length = np.sqrt(np.square(x).sum(axis=1, keepdims=True))
        nearest: dp.Array = x * np.minimum(1.0, self.radius / np.maximum(length, self.radius))
        return nearest

    @property
    def _release(self) -> tuple[str, int]:
        """Channel and index of the release of the mean."""
        exchanges = self.releases_per_round
        return ("m", 2 * exchanges - 1) if self.has_server else ("x", exchanges)

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        return {**self.program.releases(p, q), self._release[0]: dp.Channel("x", p, ("feature_mean",))}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        channel, index = self._release
        use = dp.Use("feature_mean", np.ones(1), np.zeros(1, dtype=np.int64))
        plan = dp.plan_release(public.unsampled(), np.array([index]), [use])
        return {**self.program.planned_releases(public), channel: plan}

    def solution(self, values: Mapping[str, dp.Array]) -> Mapping[str, dp.Array]:
        """Return the values that the algorithm publishes in another form (see `Program`)."""
        solve = getattr(self.program, "solution", None)
        return {} if solve is None else dict(solve(values))


def _continue(steps: Generator[Any, Any, Any], reply: Any) -> Generator[Any, Any, Any]:
    """Run the rest of a round after a reply, and return its state."""
    try:
        exchange = steps.send(reply)
        while True:
            exchange = steps.send((yield exchange))
    except StopIteration as end:
        return end.args[0]


def strip_centring(algorithm: Any) -> Any:
    """Return the algorithm inside a centring wrapper, or the algorithm itself if it is not wrapped."""
    return algorithm.program if isinstance(algorithm, Centring) else algorithm
