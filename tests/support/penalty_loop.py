"""The penalty method over raw records, one by one: shares no code with the package but the keyed streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import Say


def cut(v: np.ndarray, bound: float) -> np.ndarray:
    size = math.sqrt(sum(float(u) ** 2 for u in np.ravel(v)))
    return v * min(1.0, bound / size) if size > 0.0 else v


@dataclass
class Losses:
    """Per record: ∇_y l, ∇_y h and l's change in x; of the regulariser ∇_y R and ∇_x R; ball of the minimisers."""

    lower: Callable[..., np.ndarray]
    upper: Callable[..., np.ndarray]
    slope: Callable[[np.ndarray, np.ndarray], np.ndarray]
    by_x: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ball: Callable[[np.ndarray, float], tuple[np.ndarray, float]]
    change: Callable[..., np.ndarray] | None = None
    # (a, b, x, y) → per-record Hessian, for Newton's method; and the regulariser's.
    curved: Callable[..., np.ndarray] = field(default=lambda *_: np.zeros(0))
    bent: Callable[..., np.ndarray] = field(default=lambda *_: np.zeros(0))


def sigma(t: float) -> float:
    return 1.0 / (1.0 + math.exp(-t))


GAIN = 0.2784645427610738  # sup m σ(−m)


def _logistic_ball(x: np.ndarray, record_mass: float) -> tuple[np.ndarray, float]:
    w = math.exp(min(x))
    return np.zeros(3), min(record_mass * 0.5 / w, math.sqrt(record_mass * GAIN / w))


def _squares_ball(x: np.ndarray, record_mass: float) -> tuple[np.ndarray, float]:
    w = math.exp(x[0])
    s = min(math.sqrt(record_mass), math.sqrt(w))
    return np.zeros(3), math.sqrt(record_mass) * s / (s * s + w)


def _mean_ball(x: np.ndarray, record_mass: float) -> tuple[np.ndarray, float]:
    out = 0.5 / 1.5 * float(np.linalg.norm(x))
    return 0.5 / 1.5 * x, (record_mass + (record_mass - 1.0) * out) / (0.5 + record_mass)


def _sign(b: float) -> float:
    return 2.0 * b - 1.0


def _logistic(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: float, place: Any = None) -> np.ndarray:
    return -sigma(-_sign(b) * float(a @ y)) * _sign(b) * a


def _logistic_bend(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: float) -> np.ndarray:
    return sigma(float(a @ y)) * sigma(-float(a @ y)) * np.outer(a, a)


def _squares(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: float, place: Any = None) -> np.ndarray:
    return (float(a @ y) - b) * a


def _everywhere(x: np.ndarray, record_mass: float) -> tuple[np.ndarray, float]:
    return np.zeros(3), math.inf


LOSSES = {
    "logistic_hyperparameter": Losses(
        _logistic,
        _logistic,
        lambda x, y: np.exp(x) * y,
        lambda x, y: 0.5 * np.exp(x) * y * y,
        _logistic_ball,
        curved=_logistic_bend,
        bent=lambda x, y: np.diag(np.exp(x)),
    ),
    "logistic_regularisation": Losses(
        _logistic,
        _logistic,
        lambda x, y: math.exp(x[0]) * y,
        lambda x, y: np.array([0.5 * math.exp(x[0]) * sum(v * v for v in y)]),
        _logistic_ball,
        curved=_logistic_bend,
        bent=lambda x, y: math.exp(x[0]) * np.eye(3),
    ),
    "ridge_regularisation": Losses(
        _squares,
        _squares,
        lambda x, y: math.exp(x[0]) * y,
        lambda x, y: np.array([0.5 * math.exp(x[0]) * sum(v * v for v in y)]),
        _squares_ball,
        curved=lambda x, y, a, b: np.outer(a, a),
        bent=lambda x, y: math.exp(x[0]) * np.eye(3),
    ),
    "biased_regularisation": Losses(
        _logistic, _logistic, lambda x, y: 0.5 * (y - x), lambda x, y: 0.5 * (x - y), _everywhere
    ),
    "mean_estimation": Losses(
        lambda x, y, a, b, place: -a,
        lambda x, y, a, b, place: y - a,
        lambda x, y: y + 0.5 * (y - x),
        lambda x, y: 0.5 * (x - y),
        _mean_ball,
        curved=lambda x, y, a, b: np.zeros((3, 3)),
        bent=lambda x, y: 1.5 * np.eye(3),
    ),
}


def _cross(y: np.ndarray, a: np.ndarray, b: float) -> tuple[float, np.ndarray]:
    """Cross-entropy of two classes with a row of weights each, and its gradient."""
    scores = [float(a @ y[:3]), float(a @ y[3:])]
    total = sum(math.exp(s) for s in scores)
    shares = [math.exp(s) / total for s in scores]
    rows = [(shares[r] - (r == int(b))) * a for r in range(2)]
    return math.log(total) - scores[int(b)], np.concatenate(rows)


LOSSES["hyper_cleaning"] = Losses(
    lambda x, y, a, b, g: sigma(x[g]) * _cross(y, a, b)[1],
    lambda x, y, a, b, g: _cross(y, a, b)[1],
    lambda x, y: 0.4 * y,
    lambda x, y: np.zeros(len(x)),
    lambda x, record_mass: (np.zeros(6), math.inf),
    change=lambda x, y, other, a, b, g: (
        np.eye(len(x))[g] * sigma(x[g]) * sigma(-x[g]) * (_cross(y, a, b)[0] - _cross(other, a, b)[0])
    ),
)


@dataclass
class Naive:
    """The penalty method, record by record, in lists. say: what comes back for a public and a private part."""

    job: Job
    say: Say
    groups: int = 1
    index: int = 0
    clip: Mapping[str, float] | None = None
    path: list[np.ndarray] = field(default_factory=list)
    heard: dict[tuple[int, str], np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shards, s = self.job.shards, self.job.scenario
        self.losses = LOSSES[s.problem.kind]
        self.a = self.job.algorithm
        bounds = {c: self.job.context.clip.bound(c) for c in "xyz"}
        self.bound = bounds if self.clip is None else self.clip
        self.train, self.validation = [], []
        for agent, (below, above) in enumerate(zip(shards.train, shards.validation, strict=True)):
            for k, i in enumerate(below):
                place = agent * self.groups + k * self.groups // len(below)
                self.train.append((shards.features[i], float(shards.labels[i]), place))
            self.validation += [(shards.features[i], float(shards.labels[i]), None) for i in above]
        self.sizes = {"train": [len(s) for s in shards.train], "validation": [len(s) for s in shards.validation]}
        self.asked = 0
        self.coins = Streams(self.job.root, "coins", np.arange(self.job.n_agents))

    def mean(self, records: list[Any], bound: float, one: Callable[..., np.ndarray]) -> np.ndarray:
        """Sum over all records or over a Poisson sample of this query, divided by the expected sample size."""
        kind = "train" if records is self.train else "validation"
        tossed = [
            self.coins.generator(agent, self.asked, tag(kind)).random(n) for agent, n in enumerate(self.sizes[kind])
        ]
        rate = self.a.rate
        drawn = [r for r, coin in zip(records, np.concatenate(tossed), strict=True) if rate == 1.0 or coin < rate]
        return sum((cut(one(*r), bound) for r in drawn), 0.0 * one(*records[0])) / (rate * len(records))

    def inside(self, x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
        centre, radius = self.losses.ball(x, 1.0 + 1.0 / penalty if penalty else 1.0)
        away = y - centre
        size = float(np.linalg.norm(away))
        return centre + away * (radius / size) if size > radius else y

    def slope(self, channel: str, x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
        self.asked += 1
        private = self.mean(self.train, self.bound["y"], lambda a, b, g: self.losses.lower(x, y, a, b, g))
        if penalty:
            above = self.mean(self.validation, self.bound["z"], lambda a, b, g: self.losses.upper(x, y, a, b, g))
            private = private + above / penalty
        return self.tell(channel, self.losses.slope(x, y), private)

    def tell(self, channel: str, public: np.ndarray, private: np.ndarray) -> np.ndarray:
        self.index += 1
        self.heard[self.index, channel] = public + private
        return self.say(self.index, channel, public, private)

    def descend(self, channel: str, x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
        y = self.inside(x, y, penalty)
        for _ in range(self.a.inner):
            y = self.inside(x, y - self.slope(channel, x, y, penalty) / self.a.smoothness, penalty)
        return y

    def perturb(self, channel: str, x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
        """Newton's method, damped."""
        z = np.zeros(3)
        for step in [0.5] * 20 + [1.0] * 30:
            g, h = self.losses.slope(x, z), self.losses.bent(x, z)
            for records, weight, one in ((self.train, 1.0, 0), (self.validation, 1.0 / penalty if penalty else 0.0, 1)):
                for a, b, place in records if weight else []:
                    gradient = (self.losses.upper if one else self.losses.lower)(x, z, a, b, place)
                    bend = self.losses.curved(x, z, a, b)
                    if one and self.job.scenario.problem.kind == "mean_estimation":
                        bend = np.eye(3)
                    g, h = g + weight * gradient / len(records), h + weight * bend / len(records)
            z = z - step * np.linalg.solve(h, g)
        return self.inside(x, self.tell(channel, np.zeros(3), z), penalty)

    def run(self, solve: str = "descend") -> list[dict[str, np.ndarray]]:
        job, lam = self.job, self.a.penalty
        start = job.scenario.algorithm.init
        x = np.full(job.problem.p, start.get("x", 0.0))
        x = np.asarray(job.context.domain.project(x))
        y = penalised = np.full(job.problem.q, start.get("y", 0.0))
        best, found = math.inf, {"x": x, "y": y}
        out = [found]
        for t in range(job.rounds):
            self.path.append(x)
            eta = self.a.x.scale * (t + 1.0) ** -self.a.x.decay
            y = getattr(self, solve)("y", x, y, 0.0)
            penalised = getattr(self, solve)("pulled", x, penalised, lam)
            g = lam * (self.losses.by_x(x, penalised) - self.losses.by_x(x, y))
            if self.losses.change is not None:
                self.asked += 1
                sensitivity = self.mean(
                    self.train,
                    self.bound["x"],
                    lambda a, b, place, at=(x, penalised, y): lam * self.losses.change(*at, a, b, place),
                )
                g = g + self.tell("gx", np.zeros(len(x)), sensitivity)
            there = self.project(x - eta * g)
            size = float(np.linalg.norm(there - x)) / eta
            if size <= best:
                best, found = size, {"x": x, "y": y}
            x = there
            out.append(found)
        self.path.append(x)
        return out

    def project(self, x: np.ndarray) -> np.ndarray:
        table = self.job.components.keys.get("domain")
        if table is None:
            return x
        return np.minimum(np.maximum(x, table.low), table.high)
