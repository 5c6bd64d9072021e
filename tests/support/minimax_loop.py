"""AUC maximisation of a linear model, record by record: shares no code with the package but the keyed streams."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import decentral_dp
from decentral_dp.bounded import Bounded
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import Say, Scripted, scripted
from tests.support.published import as_published, certified_kind
from tests.support.training import changed

BASE: dict[str, Any] = {
    "seed": 5,
    "problem": {
        "kind": "auc_maximisation",
        "data": "synthetic_classification",
        "synthetic": {"dimension": 3, "records": 14, "test_records": 9},
        "partition": {"kind": "dirichlet", "alpha": 3.0},
        "normalise": "l2",
        "positive_share": 0.4,
    },
    "topology": {"kind": "star", "agents": 3},
    "algorithm": {"rounds": 7, "rate": 0.4},
    "privacy": {"epsilon": 6.0, "delta": 1e-4, "clip": {"x": 0.2}},
    "run": {"evaluate_every": 1},
}


def content(algorithm: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    out = copy.deepcopy(BASE)
    out["algorithm"] |= algorithm
    return as_published(changed(out, **changes))


def made(algorithm: Mapping[str, Any], **changes: Any) -> Job:
    return build(decentral_dp.load(content(algorithm, **changes)))


def sigma(t: float) -> float:
    return 1.0 / (1.0 + math.exp(-t))


def cut(v: np.ndarray, bound: float) -> np.ndarray:
    size = math.sqrt(sum(float(u) ** 2 for u in v))
    return v * min(1.0, bound / size) if size > 0.0 else v


@dataclass
class Auc:
    """Per record: the gradient by (weights, bias, a, b), t with ∂f/∂α = 2t, and whether it is positive."""

    share: float

    def grad_x(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        row, pi, alpha = np.append(a, 1.0), self.share, float(y[0])
        h = sigma(float(row @ x[:-2]))
        if label == 1.0:
            by_h, own = (
                2.0 * (1.0 - pi) * (h - x[-2]) - 2.0 * alpha * (1.0 - pi),
                [-2.0 * (1.0 - pi) * (h - x[-2]), 0.0],
            )
        else:
            by_h, own = 2.0 * pi * (h - x[-1]) + 2.0 * alpha * pi, [0.0, -2.0 * pi * (h - x[-1])]
        return np.append(by_h * h * (1.0 - h) * row, own)

    def dual(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        h = sigma(float(np.append(a, 1.0) @ x[:-2]))
        return np.array([-(1.0 - self.share) * h if label == 1.0 else self.share * h])

    def grad_y(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        return 2.0 * self.dual(x, y, a, label)

    def positive(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, label: float) -> np.ndarray:
        return np.array([1.0 if label == 1.0 else 0.0])

    def public_y(self, y: np.ndarray) -> np.ndarray:
        return 2.0 * self.share * (1.0 - self.share) * (1.0 - y)

    def best(self, t: np.ndarray) -> np.ndarray:
        return np.clip(1.0 + t / (self.share * (1.0 - self.share)), 0.0, 2.0)


def inside_x(x: np.ndarray) -> np.ndarray:
    return np.append(x[:-2], np.clip(x[-2:], 0.0, 1.0))


def inside_y(y: np.ndarray) -> np.ndarray:
    return np.clip(y, 0.0, 2.0)


class Keys:
    """The [algorithm] table with the keys that the algorithm brings itself; None where one is left out."""

    def __init__(self, job: Job) -> None:
        self._table, self._own = job.scenario.algorithm, job.components.keys

    def __getattr__(self, name: str) -> Any:
        return self._own.get(name, getattr(self._table, name, None))


@dataclass
class Loop:
    """Compute the minimax programs record by record.

    say: release of a public and a private part. heard: (index, channel) → the value before noise.
    bounds: (index, channel) → the bound of a query.
    """

    job: Job
    say: Say
    clip_y: float = math.inf
    index: int = 0
    asked: int = 0
    heard: dict[tuple[int, str], np.ndarray] = field(default_factory=dict)
    bounds: dict[tuple[int, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        job = self.job
        self.table = Keys(job)
        self.rate = self.table.rate or 1.0
        self.noisy = job.scenario.privacy.guarantee != "none"
        self.clip = job.scenario.privacy.clip.get("x", math.inf) if self.noisy else math.inf
        share = job.scenario.problem.own_keys().get("positive_share")
        self.f = Auc(share if isinstance(share, float) else 0.5)
        # Sampling draws are keyed by agent.
        self.records = [
            [(job.shards.features[i], float(job.shards.labels[i])) for i in mine] for mine in job.shards.train
        ]
        self.n = sum(len(mine) for mine in self.records)
        self.coins = Streams(job.root, "coins", np.arange(job.n_agents))
        self.x = np.zeros(job.problem.p)
        self.y = np.zeros(1)

    # Queries of records -------------------------------------------------------------------------------------------

    def draw(self, rate: float) -> list[tuple[np.ndarray, float]]:
        """Draw a Poisson sample."""
        self.asked += 1
        out = []
        for agent, mine in enumerate(self.records):
            tossed = self.coins.generator(agent, self.asked, tag("train")).random(len(mine))
            out += [record for record, coin in zip(mine, tossed, strict=True) if rate == 1.0 or coin < rate]
        return out

    def mean(self, drawn: list[Any], of: Callable[..., np.ndarray], rate: float) -> np.ndarray:
        """Divide the sum over the sample by the expected sample size."""
        total = 0.0 * of(np.zeros(3), 0.0)
        for a, label in drawn:
            total = total + of(a, label)
        return total / (rate * self.n)

    def ball(self, term: str) -> tuple[float, np.ndarray]:
        """Radius and centre of what a contribution is clipped to."""
        if not self.noisy:
            return math.inf, np.zeros(1)
        if term == "grad_x":
            return self.clip, np.zeros(self.x.size)
        if term == "positive":
            return 0.5, np.array([0.5])
        radius = 1.0 if term == "grad_y" else 0.5
        if term == "grad_y" and self.clip_y < radius:
            return self.clip_y, np.zeros(1)
        return radius, np.array([radius * (2.0 * self.f.share - 1.0)])

    def ask(self, drawn: list[Any], term: str, x: np.ndarray, y: np.ndarray, rate: float) -> tuple[Any, Any, float]:
        """Public part, private part, bound."""
        radius, centre = self.ball(term)
        of = getattr(self.f, term)
        return centre, self.mean(drawn, lambda a, b: cut(of(x, y, a, b) - centre, radius), rate), radius

    def ask_change(
        self, drawn: list[Any], term: str, here: tuple[Any, Any], before: tuple[Any, Any]
    ) -> tuple[Any, Any, float]:
        away = np.append(here[0] - before[0], here[1] - before[1])
        bound = (self.table.smoothness or 0.0) * math.sqrt(float(away @ away)) if self.noisy else math.inf
        # Two vectors in a ball are no further apart than its diameter.
        bound = min(bound, 2.0 * self.ball(term)[0])
        of = getattr(self.f, term)
        private = self.mean(drawn, lambda a, b: cut(of(*here, a, b) - of(*before, a, b), bound), self.rate)
        return np.zeros_like(private), private, bound

    def tell(self, **values: tuple[Any, Any, float]) -> dict[str, np.ndarray]:
        """Return the values published at the next index."""
        self.index += 1
        out = {}
        for channel, (public, private, bound) in values.items():
            self.heard[self.index, channel] = public + private
            self.bounds[self.index, channel] = bound
            still = bound == 0.0
            out[channel] = public + private if still else self.say(self.index, channel, public, private)
        return out

    # The programs -------------------------------------------------------------------------------------------------

    def eta(self, step: Any, t: int) -> float:
        return float(step.scale * (t + 1.0) ** -step.decay)

    def dp_sgda(self, t: int) -> None:
        drawn, name = self.draw(self.rate), "dual" if self.table.solver == "closed_form" else "gy"
        term = "dual" if name == "dual" else "grad_y"
        told = self.tell(
            gx=self.ask(drawn, "grad_x", self.x, self.y, self.rate),
            **{name: self.ask(drawn, term, self.x, self.y, self.rate)},
        )
        self.x = inside_x(self.x - self.eta(self.table.x, t) * told["gx"])
        if name == "dual":
            self.y = self.f.best(told["dual"])
        else:
            self.y = inside_y(self.y + self.eta(self.table.y, t) * (told["gy"] + self.f.public_y(self.y)))

    def privatediff_xy(self, t: int) -> None:
        drawn, here = self.draw(self.rate), (self.x, self.y)
        if t % self.table.period == 0:
            told = self.tell(
                gx=self.ask(drawn, "grad_x", *here, self.rate), gy=self.ask(drawn, "grad_y", *here, self.rate)
            )
            self.v, self.u = told["gx"], told["gy"]
        else:
            told = self.tell(
                dx=self.ask_change(drawn, "grad_x", here, self.before),
                dy=self.ask_change(drawn, "grad_y", here, self.before),
            )
            self.v, self.u = self.v + told["dx"], self.u + told["dy"]
        self.before = here
        self.x = inside_x(self.x - self.eta(self.table.x, t) * self.v)
        self.y = inside_y(self.y + self.eta(self.table.y, t) * (self.u + self.f.public_y(here[1])))

    def privatediff(self, t: int) -> None:
        y = self.y
        if self.table.solver == "closed_form":
            y = self.f.best(self.tell(dual=self.ask(self.draw(self.rate), "dual", self.x, y, self.rate))["dual"])
        else:
            for i in range(self.table.inner or 1):
                told = self.tell(gy=self.ask(self.draw(self.rate), "grad_y", self.x, y, self.rate))
                y = inside_y(y + self.eta(self.table.y, i) * (told["gy"] + self.f.public_y(y)))
        here = (self.x, y)
        if t % self.table.period == 0:
            self.v = self.tell(gx=self.ask(self.draw(self.rate), "grad_x", *here, self.rate))["gx"]
        else:
            self.v = self.v + self.tell(dx=self.ask_change(self.draw(self.rate), "grad_x", here, self.before))["dx"]
        self.before = here
        self.x = inside_x(self.x - self.eta(self.table.x, t) * self.v)
        self.y = y

    def as_published(self, t: int) -> None:
        """Compute PrivateDiff without noise on y; `say` must return "gy" unchanged."""
        y = self.y if t == 0 else self.carried
        for i in range(self.table.inner or 1):
            told = self.tell(gy=self.ask(self.draw(self.rate), "grad_y", self.x, y, self.rate))
            y = inside_y(y + self.eta(self.table.y, i) * (told["gy"] + self.f.public_y(y)))
        _, sample, bound = self.ask(self.draw(self.rate), "grad_x", self.x, y, self.rate)
        out = (np.zeros(1), y, 1.0)
        if t % self.table.period == 0:
            told = self.tell(gx=(np.zeros(self.x.size), sample, bound), y=out)
            self.v = told["gx"]
        else:
            far = self.x - self.last
            unit = self.table.smoothness * math.sqrt(float(far @ far)) + 1.0 / math.sqrt(self.table.inner or 1)
            told = self.tell(dx=(np.zeros(self.x.size), (sample - self.sample) / unit, bound), y=out)
            self.v = self.v + unit * told["dx"]
        self.last, self.sample, self.carried = self.x, sample, y
        self.x = inside_x(self.x - self.eta(self.table.x, t) * self.v)
        self.y = told["y"]

    def run(self, program: str | None = None) -> list[dict[str, np.ndarray]]:
        step = getattr(self, program or certified_kind(self.table.kind))
        released = self.job.scenario.problem.own_keys().get("positive_share") == "released"
        share = {"share": np.full(1, 0.5)} if released else {}
        out = [{"x": self.x, "y": self.y, **share}]
        for t in range(self.table.rounds):
            if released and t == 0:
                told = self.tell(share=self.ask(self.draw(1.0), "positive", self.x, self.y, 1.0))
                share = {"share": np.clip(told["share"], 0.01, 0.99)}
                self.f = Auc(float(share["share"][0]))
            elif released:
                self.index += 1
            step(t)
            out.append({"x": self.x, "y": self.y, **share})
        return out


def agree(job: Job, loop: Loop, releaser: Any = None, program: str | None = None, atol: float = 1e-10) -> None:
    """Every value before its noise, and what is published after every round, are those of the loop."""
    releaser = releaser or Scripted()
    got, wanted = scripted(job, releaser), loop.run(program)
    assert releaser.wanted.keys() == loop.heard.keys()
    for key, value in releaser.wanted.items():
        whole = value.value if isinstance(value, Bounded) else value
        np.testing.assert_allclose(whole[0], loop.heard[key], rtol=1e-10, atol=atol, err_msg=str(key))
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.keys() == other.keys()
        for channel, value in one.items():
            np.testing.assert_allclose(value[0], other[channel], rtol=1e-10, atol=atol, err_msg=channel)
