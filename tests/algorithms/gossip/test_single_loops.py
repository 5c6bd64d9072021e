"""Single-loop bilevel gossip against loops over agents, adversarial neighbours and fixed points."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import tomli_w

import decentral_dp
from decentral_dp.algorithms.gossip.adasdbo import Adasdbo
from decentral_dp.algorithms.gossip.dsoba import Dsoba
from decentral_dp.algorithms.gossip.f2sa import F2sa
from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.protocol import StepSize
from tests.conformance.gossip import GossipConformance, Shares, Told, largest
from tests.support import naive
from tests.support.closed_forms import optimum_of
from tests.support.naive import SAMPLING_NAMES, SAMPLINGS, Loop, finished, made

STEPS = {"x": {"scale": 0.4, "decay": 0.5}, "y": {"scale": 0.3, "decay": 0.2}, "z": {"scale": 0.2}}


# Naive loops ---------------------------------------------------------------------------------------------------------


class Paper(Loop):
    """LDP-DSBO: a private state is used without its noise, and gradients of the published form are at that state."""

    def run(self) -> Told:
        protocol, agents = self.algorithm.protocol, range(self.m)
        state = {c: self.start(c) for c in "xyz"}
        for t in range(self.job.rounds + 1):
            hides = protocol == "private" or t > 0
            noised = {c: self.printed or (hides and (c != "x" or self.reads_x)) for c in "xyz"}
            sent = {c: self.say(t, c, state[c], noised[c]) for c in "xyz"}
            if t == self.job.rounds:
                break
            own, point = sent if protocol == "released" else state, state if self.printed else sent
            new: dict[str, list[np.ndarray]] = {c: [] for c in "xyz"}
            for i in agents:
                at = tuple(point[c][i] for c in "xyz")
                directions = {
                    "x": self.mean("upper_grad_x", t, i, *at) - self.mean("lower_jvp", t, i, *at),
                    "y": self.mean("lower_grad_y", t, i, *at),
                    "z": self.mean("lower_hvp", t, i, *at) - self.mean("upper_grad_y", t, i, *at),
                }
                steps = {"x": 0.4 / (t + 1) ** 0.5, "y": 0.3 / (t + 1) ** 0.2, "z": 0.2}
                for c in "xyz":
                    new[c].append(self.toward(i, own[c][i], sent[c]) - steps[c] * directions[c])
            state = new
        return self.told


class Averaged(Loop):
    """D-SOBA with a list of averaged hypergradients, which get the noise of the release of x."""

    def run(self) -> Told:
        x, y, z, h = self.start("x"), self.start("y"), self.start("z"), self.zeros()
        agents, theta = range(self.m), self.algorithm.theta
        for t in range(self.job.rounds + 1):
            sent = self.say(t, "x", x, self.reads_x and t > 0)
            if t > 0:
                h = [h[i] - (sent[i] - x[i]) * t**0.5 / 0.4 for i in agents]
            x, y, z = sent, self.say(t, "y", y, t > 0), self.say(t, "z", z, t > 0)
            if t == self.job.rounds:
                break
            x, y, z = ([self.toward(i, v[i], v) for i in agents] for v in (x, y, z))
            terms = {
                term: [self.mean(term, t, i, x[i], y[i], z[i]) for i in agents]
                for term in ("upper_grad_x", "lower_jvp", "lower_grad_y", "lower_hvp", "upper_grad_y")
            }
            h = [(1 - theta) * h[i] + theta * (terms["upper_grad_x"][i] - terms["lower_jvp"][i]) for i in agents]
            x = [x[i] - 0.4 / (t + 1) ** 0.5 * h[i] for i in agents]
            y = [y[i] - 0.3 / (t + 1) ** 0.2 * terms["lower_grad_y"][i] for i in agents]
            z = [z[i] - 0.2 * (terms["lower_hvp"][i] - terms["upper_grad_y"][i]) for i in agents]
        return self.told


class Adaptive(Loop):
    """AdaSDBO with lists of all norms; the noise is on gradients."""

    def run(self) -> Told:
        points = {c: self.start(c) for c in "xyz"}
        m = [np.full(3, 0.5) for _ in range(self.m)]
        u = {c: self.zeros() for c in "xyz"}
        for t in range(self.job.rounds + 1):
            for c, values in points.items():
                self.say(t, c, values, False)
            if t == self.job.rounds:
                break
            self.say(t, "m", m, False)
            u = {c: self.say(t, f"u{c}", u[c], t > 0 and (c != "x" or self.reads_x)) for c in "xyz"}
            m = [self.toward(i, m[i], m) + [np.sum(u[c][i] ** 2) for c in "xyz"] for i in range(self.m)]
            moved: dict[str, list[np.ndarray]] = {c: [] for c in "xyz"}
            for i in range(self.m):
                x, y, z = np.sqrt(m[i])
                steps = {"x": 0.7 / x / max(y, z), "y": 0.7 / y, "z": 0.7 / max(y, z)}
                for c in "xyz":
                    moved[c].append(self.toward(i, points[c][i], points[c]) - steps[c] * u[c][i])
            points = moved
            u = {c: [] for c in "xyz"}
            for i in range(self.m):
                at = tuple(points[c][i] for c in "xyz")
                u["x"].append(self.mean("upper_grad_x", t, i, *at) - self.mean("lower_jvp", t, i, *at))
                u["y"].append(self.mean("lower_grad_y", t, i, *at))
                u["z"].append(self.mean("lower_hvp", t, i, *at) - self.mean("upper_grad_y", t, i, *at))
        return self.told


class Penalised(Loop):
    """F²SA of problems whose ∇_x g is linear in y."""

    def run(self) -> Told:
        x, y, z = self.start("x"), self.start("y"), self.start("z")
        agents, penalty = range(self.m), self.algorithm.penalty
        for t in range(self.job.rounds + 1):
            x, y, z = (
                self.say(t, "x", x, self.reads_x and t > 0),
                self.say(t, "y", y, t > 0),
                self.say(t, "z", z, t > 0),
            )
            if t == self.job.rounds:
                break
            x, y, z = ([self.toward(i, v[i], v) for i in agents] for v in (x, y, z))
            new: list[list[np.ndarray]] = [[], [], []]
            for i in agents:
                # λ is inside of the clip.
                apart = self.mean("lower_jvp", t, i, x[i], (y[i] + z[i]) / 2, penalty * (y[i] - z[i]))
                by_x = self.mean("upper_grad_x", t, i, x[i], y[i], y[i]) + apart
                upper = self.mean("upper_grad_y", t, i, x[i], y[i], y[i]) / penalty
                new[0].append(x[i] - 0.4 / (t + 1) ** 0.5 * by_x)
                lower = self.mean("lower_grad_y", t, i, x[i], y[i], y[i])
                new[1].append(y[i] - 0.3 / (t + 1) ** 0.2 * (lower + upper))
                new[2].append(z[i] - 0.2 * self.mean("lower_grad_y", t, i, x[i], z[i], z[i]))
            x, y, z = new
        return self.told


# Conformance ---------------------------------------------------------------------------------------------------------


class SingleLoop(GossipConformance):
    hosted = ("crossed", "logistic_hyperparameter")
    kinds = ("logistic_hyperparameter", "quadratic", "from_losses")
    rounds, seeds = 4, 8
    moved = MappingProxyType({"train": {"x", "y", "z"}, "validation": {"x", "z"}})
    # None was published with noise.
    test_printed_has_its_noise_where_the_paper_has_it = None
    test_protocols_differ_only_by_noise = None

    def scene(self, worst: bool) -> Any:
        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            return {c: rng.normal(size=(1, 2)) * 5 for c in "xyz"}, rng.normal(size=(1, 6)) * 5

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        assert all(largest(every, channel).min() > 0.999 for channel in self.moved[kind])

    def free(self, kind: str) -> set[str]:
        return {"x"} if kind == "logistic_hyperparameter" else set()


class TestLdpDsbo(SingleLoop):
    loop = Paper
    table = MappingProxyType({"kind": "ldp_dsbo", **STEPS})
    test_printed_has_its_noise_where_the_paper_has_it = (
        GossipConformance.test_printed_has_its_noise_where_the_paper_has_it
    )

    def certified(self) -> LdpDsbo:
        return LdpDsbo(StepSize(0.5, 0.3), StepSize(0.4, 0.2), StepSize(0.3), start={"x": 1.0})

    def scene(self, worst: bool) -> Any:
        """At worst products with Hessians and Jacobians are as large as their clips."""

        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            own = {c: np.full((1, 2), 50.0) if worst else rng.normal(size=(1, 2)) * 5 for c in "xyz"}
            return own, rng.normal(size=(1, 6)) * 5

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        assert all(largest(every, channel).max() > 0.999 for channel in self.moved[kind])


class TestLdpDsboOfPrivateStates(TestLdpDsbo):
    table = MappingProxyType({"kind": "ldp_dsbo", "protocol": "private", **STEPS})
    test_printed_has_its_noise_where_the_paper_has_it = None

    def certified(self) -> LdpDsbo:
        return LdpDsbo(StepSize(0.5, 0.3), StepSize(0.4, 0.2), StepSize(0.3), "private", start={"x": 1.0})


class TestDsoba(SingleLoop):
    loop = Averaged
    table = MappingProxyType({"kind": "dsoba", **STEPS, "theta": 0.6})

    def certified(self) -> Dsoba:
        return Dsoba(StepSize(0.5, 0.3), StepSize(0.4, 0.2), StepSize(0.3), theta=0.6, start={"x": 1.0})


class TestAdasdbo(SingleLoop):
    loop = Adaptive
    table = MappingProxyType({"kind": "adasdbo", "base_step": 0.7, "floor": 0.5})
    moved = MappingProxyType({"train": {"ux", "uy", "uz"}, "validation": {"ux", "uz"}})

    def certified(self) -> Adasdbo:
        return Adasdbo(0.7, 0.5, start={"x": 1.0})

    def scene(self, worst: bool) -> Any:
        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            own = {c: rng.normal(size=(1, 2)) * 5 for c in ("ux", "uy", "uz")}
            received = rng.normal(size=(1, 15)) * 5
            received[0, 6:9] = 1.0
            return own, received

        return say

    def free(self, kind: str) -> set[str]:
        return {*"xyzm", *({"ux"} if kind == "logistic_hyperparameter" else ())}


class TestF2sa(SingleLoop):
    loop = Penalised
    table = MappingProxyType({"kind": "f2sa", **STEPS, "penalty": 2.0})
    kinds = ("logistic_hyperparameter", "quadratic", "crossed")
    moved = MappingProxyType({"train": {"x", "y", "z"}, "validation": {"x", "y"}})

    def certified(self) -> F2sa:
        return F2sa(StepSize(0.5, 0.3), StepSize(0.4, 0.2), StepSize(0.3), penalty=2.0, start={"x": 1.0})


# A custom algorithm that follows differences of lower gradients only.
DIFFERENCES = """
from dataclasses import dataclass
from typing import Any, NamedTuple

from decentral_dp.exchange import Gossip


class State(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Mine:
    channels = ("x", "y")
    RELEASES = {"x": {"lower_grad_x_change": 0.5}, "y": {"lower_grad_y": 0.1}}

    def init(self, dataset, x, y):
        return State(x, y)

    def step(self, t, dataset, s):
        own, near = yield Gossip(x=s.x, y=s.y)
        d = dataset.batch(t)
        x = own.x - 0.5 * d.lower_grad_x_change(own.x, own.y, 0.0 * own.y, times=3.0)
        return State(x, own.y - 0.1 * d.lower_grad_y(own.x, own.y))
"""


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=SAMPLING_NAMES)
def test_a_custom_algorithm_releases_clipped_differences(tmp_path: Path, sampling: Any) -> None:
    (tmp_path / "mine.py").write_text(DIFFERENCES, encoding="utf-8")
    content = tomllib.loads((Path(__file__).parents[3] / "scenarios" / "hyper_cleaning.toml").read_text("utf-8"))
    content["algorithm"] = {"kind": "mine:Mine", "rounds": 3}
    content["problem"]["sampling"] = sampling
    content["privacy"] = {"mechanism": "gaussian", "epsilon": 8.0, "clip": {"x": 0.05, "y": 0.5}}
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    run = decentral_dp.run(tmp_path / "mine.toml")
    job = run.simulation()
    (line,) = (c for c in run.records.channels if c.channel == "x")
    counts = [int(job.sampling.averaged_counts(t, job.counts["train"][0])) for t in range(3)]
    np.testing.assert_allclose(line.sensitivity["train"][:, line.group[0]], [0.5 * 0.1 / n for n in counts], rtol=1e-6)


# Without noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "apart"),
    [
        ({"kind": "dsoba", **dict.fromkeys("xyz", 0.3)}, 1e-8),
        ({"kind": "adasdbo"}, 1e-3),
        ({"kind": "f2sa", **dict.fromkeys("xyz", 0.3), "penalty": 100.0}, 0.05),
        ({"kind": "ldp_dsbo", **dict.fromkeys("xyz", 0.3)}, 1e-6),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_one_agent_ends_at_the_optimum(table: dict[str, Any], apart: float) -> None:
    content = naive.base({"rounds": 6000, **table}, "none")
    job = made("quadratic", content | {"topology": {"kind": "complete", "agents": 1}})
    best = optimum_of(job)
    end = finished(job).last_snapshot.released
    for channel in "xy":
        np.testing.assert_allclose(end[channel][0], getattr(best, channel), rtol=0, atol=apart)


def test_a_step_of_size_zero_has_no_average() -> None:
    job = made("quadratic", naive.base({"kind": "dsoba", **STEPS, "x": 0.0}, "none"))
    assert (finished(job).last_snapshot.released["x"] == 0.7).all()
