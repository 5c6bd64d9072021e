"""SPIDER programs record by record, on three problems: shares no code with the package but the keyed streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

import decentral_dp
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import SCALE
from tests.support.minimax_loop import Auc, Loop, content, cut, inside_x, inside_y

Point = tuple[np.ndarray, np.ndarray]
# A [problem] table on two classes.
PROBLEMS: dict[str, dict[str, Any]] = {
    "auc_maximisation": {},
    "dro": {"kind": "dro", "divergence": "chi2", "strength": 0.5, "cap": 0.9},
    "kl_dro": {"kind": "kl_dro", "strength": 0.6, "radius": 0.3, "cap": 1.2},
}

DOUBLE: dict[str, Any] = {
    "kind": "double_spider",
    "x": {"scale": 0.8, "decay": 0.2},
    "y": {"scale": 0.3},
    "period": 3,
    "smoothness": 1.5,
}
SGD: dict[str, Any] = {"kind": "dp_sgd_dual", "x": {"scale": 0.8, "decay": 0.2}}
SPIDER: dict[str, Any] = SGD | {"kind": "dp_spider", "period": 3, "smoothness": 1.5}
RECURSIVE: dict[str, Any] = {
    "kind": "recursive_spider",
    "x": {"scale": 0.5, "decay": 0.2},
    "y": {"scale": 0.2},
    "averaging": {"scale": 0.8, "decay": 0.5},
    "period": 3,
    "smoothness": 1.5,
}
# Without privacy: no clips, no target.
NONE = {"guarantee": "none", "clip": {}, "epsilon": None}


def table(algorithm: Mapping[str, Any], on: str = "dro", **changes: Any) -> dict[str, Any]:
    """A scenario; on: the problem."""
    out = content(algorithm, **changes)
    if on != "auc_maximisation":
        out["problem"].pop("positive_share")
        out["problem"] |= PROBLEMS[on]
    return out


def made(algorithm: Mapping[str, Any], on: str = "dro", **changes: Any) -> Job:
    return build(decentral_dp.load(table(algorithm, on, **changes)))


def scores(x: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of the linear model of two classes, and the row that they are linear in."""
    row = np.append(a, 1.0)
    half = len(row)
    return np.array([float(row @ x[:half]), float(row @ x[half:])]), row


def cross_entropy(x: np.ndarray, a: np.ndarray, label: float, cap: float) -> tuple[float, np.ndarray]:
    """The loss cut at the cap, and its gradient, 0 where it is cut."""
    out, row = scores(x, a)
    total = math.exp(out[0]) + math.exp(out[1])
    loss = math.log(total) - out[int(label)]
    if loss > cap:
        return cap, np.zeros_like(x)
    shares = np.exp(out) / total
    return loss, np.concatenate([(shares[k] - (k == int(label))) * row for k in range(2)])


@dataclass
class AucTerms(Auc):
    def ball_y(self, y: np.ndarray) -> tuple[float, float]:
        return 2.0 * self.share - 1.0, 1.0

    inside_x = staticmethod(inside_x)
    inside_y = staticmethod(inside_y)


@dataclass
class Robust:
    """χ² with λ and the cap B: w = (1 + (ℓ − η)/λ)₊."""

    strength: float
    cap: float

    def weight(self, loss: float, eta: float) -> float:
        return max(0.0, 1.0 + (loss - eta) / self.strength)

    def grad_x(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        loss, slope = cross_entropy(x, a, label, self.cap)
        return self.weight(loss, float(y[0])) * slope

    def grad_y(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        return np.array([self.weight(cross_entropy(x, a, label, self.cap)[0], float(y[0])) - 1.0])

    def ball_y(self, y: np.ndarray) -> tuple[float, float]:
        low, high = self.weight(0.0, float(y[0])) - 1.0, self.weight(self.cap, float(y[0])) - 1.0
        return 0.5 * (low + high), 0.5 * (high - low)

    def public_y(self, y: np.ndarray) -> np.ndarray:
        return np.zeros(1)

    def inside_x(self, x: np.ndarray) -> np.ndarray:
        return x

    def inside_y(self, y: np.ndarray) -> np.ndarray:
        return np.clip(y, 0.0, self.cap)


@dataclass
class Tilted(Robust):
    """h = exp((ℓ − B)/λ), and what follows from its means."""

    radius: float = 0.0

    @property
    def highest(self) -> float:
        return max(self.strength, self.cap / math.sqrt(8.0 * self.radius))

    def inner(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        return np.array([math.exp((cross_entropy(x, a, label, self.cap)[0] - self.cap) / float(y[0]))])

    def inner_x(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        return self.inner(x, y, a, label)[0] / float(y[0]) * cross_entropy(x, a, label, self.cap)[1]

    def inner_y(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        gap = self.cap - cross_entropy(x, a, label, self.cap)[0]
        return np.array([gap / float(y[0]) ** 2 * math.exp(-gap / float(y[0]))])

    def interval(self, term: str, lam: float) -> tuple[float, float]:
        """Return the range of h or ∂_λ h over all records: u e^{−u}/λ with u up to B/λ."""
        if term == "inner":
            return math.exp(-self.cap / lam), 1.0
        top = minimize_scalar(lambda u: -u * math.exp(-u), bounds=(0.0, self.cap / lam), options={"xatol": 1e-12})
        return 0.0, max(-float(top.fun), self.cap / lam * math.exp(-self.cap / lam)) / lam

    def gradients(self, y: np.ndarray, s: float, v: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """∇_xΨ, and −∂_λΨ."""
        low, high = self.interval("inner", float(y[0]))
        s = min(max(s, low), high)
        inside = float(np.clip(u[0], *self.interval("inner_y", float(y[0]))))
        return y[0] / s * v, np.array([-(y[0] / s * inside + math.log(s) + self.radius)])

    def inside_y(self, y: np.ndarray) -> np.ndarray:
        return np.clip(y, self.strength, self.highest)


def far(here: Point, before: Point) -> float:
    """Distance over both variables."""
    return math.sqrt(float(((here[0] - before[0]) ** 2).sum() + ((here[1] - before[1]) ** 2).sum()))


@dataclass
class SpiderLoop(Loop):
    """Compute SPIDER record by record. scale: (index, channel) → standard deviation of the noise."""

    scale: Callable[[int, str], float] = field(default=lambda index, channel: SCALE)
    f: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = self.job.scenario.problem
        if problem.kind == "auc_maximisation":
            self.f = AucTerms(float(problem.positive_share))
        elif problem.kind == "dro":
            self.f = Robust(problem.strength, problem.cap)
        else:
            self.f = Tilted(problem.strength, problem.cap, problem.radius)
            self.y = np.array([self.f.highest])
        self.clip_y = self.job.scenario.privacy.clip.get("y", math.inf)
        self.last = (self.x, self.y)

    # Balls and questions -------------------------------------------------------------------------------------------

    def where(self, term: str, here: Point) -> tuple[np.ndarray, float]:
        """Centre and radius of what a record's term is clipped to."""
        width = {"grad_x": self.x.size, "inner_x": self.x.size, "joint": self.x.size + 1}.get(term, 1)
        if not self.noisy:
            return np.zeros(width), math.inf
        if term in ("grad_x", "inner_x", "joint"):
            return np.zeros(width), self.clip
        if term == "grad_y":
            centre, radius = self.f.ball_y(here[1])
        else:
            low, high = self.f.interval(term, float(here[1][0]))
            centre, radius = 0.5 * (low + high), 0.5 * (high - low)
        if term != "inner" and self.clip_y < radius:
            return np.zeros(1), self.clip_y
        return np.array([centre]), radius

    def term(self, term: str, here: Point, a: np.ndarray, label: float) -> np.ndarray:
        if term == "joint":
            return np.append(self.f.grad_x(*here, a, label), self.f.grad_y(*here, a, label))
        return getattr(self.f, term)(*here, a, label)

    def fresh(self, drawn: list[Any], term: str, here: Point, bound: float | None = None) -> tuple[Any, Any, float]:
        centre, radius = self.where(term, here) if bound is None else (0.0 * self.where(term, here)[0], bound)
        private = self.mean(drawn, lambda a, b: cut(self.term(term, here, a, b) - centre, radius), self.drawn_at)
        return centre, private, radius

    def change(
        self, drawn: list[Any], term: str, here: Point, before: Point, bound: float | None = None
    ) -> tuple[Any, Any, float]:
        """Clipped to L times the distance, and to what two vectors in the balls at the two points can be apart."""
        if bound is None:
            (c, r), (c_before, r_before) = self.where(term, here), self.where(term, before)
            away = math.sqrt(float(((c - c_before) ** 2).sum()))
            bound = min((self.table.smoothness or 0.0) * far(here, before), r + r_before + away)
        bound = bound if self.noisy else math.inf

        def sensitivity(a: np.ndarray, b: float) -> np.ndarray:
            return cut(self.term(term, here, a, b) - self.term(term, before, a, b), bound)

        private = self.mean(drawn, sensitivity, self.drawn_at)
        return np.zeros_like(private), private, bound

    def sample(self, rate: float | None = None) -> list[Any]:
        self.drawn_at = self.rate if rate is None else rate
        return self.draw(self.drawn_at)

    @property
    def anchor(self) -> bool:
        return self.t % self.table.period == 0

    # The programs --------------------------------------------------------------------------------------------------

    def double_spider(self, t: int) -> None:
        self.t = t
        x, y, (last_x, last_y) = self.x, self.y, self.last
        self.u = self.estimate("y", "grad_y", (x, y), (last_x, last_y), None if t == 0 else self.u)
        up = self.f.inside_y(y + self.eta(self.table.y, t) * (self.u + self.f.public_y(y)))
        self.v = self.estimate("x", "grad_x", (x, up), (last_x, y), None if t == 0 else self.v)
        size, length = self.eta(self.table.x, t), math.sqrt(float(self.v @ self.v))
        longest = self.table.longest
        if self.job.scenario.privacy.guarantee == "as_published" and longest is None:
            longest = 1.0 / (self.table.smoothness * math.sqrt(self.n))
        if longest is not None and length > 0.0:
            size = min(size, longest / length)
        self.last = (x, y)
        self.x, self.y = self.f.inside_x(x - size * self.v), up

    def estimate(self, variable: str, term: str, here: Point, before: Point, old: np.ndarray | None) -> np.ndarray:
        drawn, printed = self.sample(), self.job.scenario.privacy.guarantee == "as_published"
        name = f"{'g' if self.anchor else 'd'}{variable}"
        if printed:
            return self.cut_afterwards(drawn, name, term, here, before, old)
        asked = self.fresh(drawn, term, here) if self.anchor else self.change(drawn, term, here, before)
        told = self.tell(**{name: asked})[name]
        return told if self.anchor else old + told

    def cut_afterwards(
        self, drawn: list[Any], name: str, term: str, here: Point, before: Point, old: np.ndarray | None
    ) -> np.ndarray:
        """The mean of unclipped gradients, clipped; the noise is that of a clip of 1."""
        if self.anchor:
            centre, radius = self.where(term, here)
            unit = radius + math.sqrt(float(centre @ centre))
            mean = self.fresh(drawn, term, here, math.inf)[1]
        else:
            mean = self.change(drawn, term, here, before, math.inf)[1]
            # The gradient in x uses y before its update in this round.
            (x, y), (last_x, last_y) = (here[0], before[1] if term == "grad_x" else here[1]), self.last
            unit = 2.0 * self.table.smoothness * max(math.dist(x, last_x), math.dist(y, last_y))
        scaled = cut(mean, unit) / unit if unit > 0.0 else 0.0 * mean
        told = self.tell(**{name: (0.0 * mean, scaled, unit)})[name] * unit
        return told if self.anchor else old + told

    def dp_spider(self, t: int) -> None:
        self.t, here = t, (self.x, self.y)
        drawn, printed = self.sample(), self.job.scenario.privacy.guarantee == "as_published"
        if self.anchor:
            self.v = self.tell(g=self.fresh(drawn, "joint", here))["g"]
        else:
            public, private, bound = self.change(drawn, "joint", here, self.last)
            unit = bound if printed else 1.0
            self.v = self.v + self.tell(d=(public, private / unit, bound))["d"] * unit
        self.last = here
        self.along(self.v, t)

    def dp_sgd_dual(self, t: int) -> None:
        self.along(self.tell(g=self.fresh(self.sample(), "joint", (self.x, self.y)))["g"], t)

    def along(self, v: np.ndarray, t: int) -> None:
        by_y = v[-1:] + self.f.public_y(self.y)
        up = self.eta(self.table.y or self.table.x, t)
        x, y = self.f.inside_x(self.x - self.eta(self.table.x, t) * v[:-1]), self.f.inside_y(self.y + up * by_y)
        self.x, self.y = x, y

    def weight(self, t: int) -> float:
        return min(1.0, self.eta(self.table.averaging, t))

    def recursive_spider(self, t: int) -> None:
        if self.job.scenario.privacy.guarantee == "as_published":
            self.recursive_printed(t)
            return
        self.t, here, before, drawn = t, (self.x, self.y), self.last, self.sample()
        beta = self.weight(t) if t else 1.0
        centre, now, radius = self.fresh(drawn, "inner", here)
        private, bound = beta * now, beta * radius
        if t:
            _, sensitivity, tau = self.change(drawn, "inner", here, before, self.inner_bound(here, before))
            private, bound = private + (1.0 - beta) * sensitivity, bound + (1.0 - beta) * tau
        terms = {"x": "inner_x", "y": "inner_y"}
        if self.anchor:
            slopes = {f"g{k}": self.fresh(drawn, term, here) for k, term in terms.items()}
        else:
            slopes = {f"d{k}": self.change(drawn, term, here, before) for k, term in terms.items()}
        told = self.tell(**slopes, s=(beta * centre, private, bound))
        if self.anchor:
            self.v, self.u = told["gx"], told["gy"]
        else:
            self.v, self.u = self.v + told["dx"], self.u + told["dy"]
        kept = 1.0 - beta if t else 0.0
        self.s = (kept * self.s if t else 0.0) + float(told["s"][0])
        noise = self.scale(self.index, "s")
        self.variance = (kept**2 * self.variance if t else 0.0) + noise**2
        self.last = here
        self.downhill(t, max(self.s, math.sqrt(self.variance)), self.v, self.u)

    def inner_bound(self, here: Point, before: Point) -> float:
        """Bound the change of h by its clipped derivatives and by its range."""
        if not self.noisy:
            return math.inf
        steepest = max(float(abs(c[0]) + r) for c, r in (self.where("inner_y", p) for p in (here, before)))
        low = min(self.f.interval("inner", float(p[1][0]))[0] for p in (here, before))
        found = self.clip * math.dist(here[0], before[0]) + steepest * math.dist(here[1], before[1])
        return min(found, 1.0 - low)

    def downhill(self, t: int, s: float, v: np.ndarray, u: np.ndarray) -> None:
        by_x, by_y = self.f.gradients(self.y, s, v, u)
        x = self.x - self.eta(self.table.x, t) * by_x
        self.x, self.y = x, self.f.inside_y(self.y + self.eta(self.table.y, t) * by_y)

    def recursive_printed(self, t: int) -> None:
        self.t, here, before = t, (self.x, self.y), self.last
        drawn, clip_y = self.sample(), min(self.clip_y, self.f.interval("inner_y", self.f.strength)[1])
        clips = {"x": self.clip, "y": clip_y}
        out, units = {}, {"x": 1.0, "y": 1.0}
        for k, other in (("x", "y"), ("y", "x")):
            if self.anchor:
                out[f"g{k}"] = self.fresh(drawn, f"inner_{k}", here, clips[k])
                continue
            _, private, _ = self.change(drawn, f"inner_{k}", here, before, clips[k])
            away = math.dist(here[k == "y"], before[k == "y"])
            units[k] = max(1e-9, min(self.table.smoothness * away, 2.0 * clips[other]))
            out[f"d{k}"] = (0.0 * private, private / units[k], math.inf)
        told = self.tell(**out)
        v, u = (told[f"{'g' if self.anchor else 'd'}{k}"] * units[k] for k in ("x", "y"))
        beta, (centre, one, _) = self.weight(t), self.fresh(self.sample(1.0 / self.n), "inner", here)
        before_s = self.s if t else 1.0
        self.s = (1.0 - beta) * before_s + float(self.tell(s=(beta * centre, beta * one, 1.0))["s"][0])
        self.last = here
        self.downhill(t, self.s, v, u)

    def scdro(self, t: int) -> None:
        drawn, here = self.sample(), (self.x, self.y)
        told = self.tell(
            h=self.fresh(drawn, "inner", here),
            hx=self.fresh(drawn, "inner_x", here),
            hy=self.fresh(drawn, "inner_y", here),
        )
        beta = self.weight(t) if t else 1.0
        self.s = (1.0 - beta) * self.s + beta * float(told["h"][0]) if t else float(told["h"][0])
        by_x, by_y = self.f.gradients(self.y, self.s, told["hx"], told["hy"])
        self.z = [
            (1.0 - beta) * old + beta * new for old, new in zip(self.z if t else (0.0, 0.0), (by_x, by_y), strict=True)
        ]
        self.x = self.x - self.eta(self.table.x, t) * self.z[0]
        self.y = self.f.inside_y(self.y + self.eta(self.table.y, t) * self.z[1])
