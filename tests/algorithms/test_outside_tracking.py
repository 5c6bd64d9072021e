"""Gradient tracking and CHOCO from a file of one's own: they run, and are priced for what they release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp

FILE = '''
from dataclasses import dataclass
from typing import Any, NamedTuple

from decentral_dp.algorithms.options import option
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Gossip


class State(NamedTuple):
    x: Any
    y: Any
    u: Any
    last: Any


@dataclass(frozen=True)
class Tracking:
    """y <- W (y - λ u), u <- W u + g' - g, where both means are kept un-noised."""

    y: StepSize = option("λ, along the tracker")
    channels = ("x", "y", "u")
    RELEASES = {"u": {"lower_grad_y": "means"}}

    def means(self, t):
        return 1.0 if t == 0 else 2.0

    def init(self, dataset, x, y):
        return State(x, y, 0.0 * y, 0.0 * y)

    def step(self, t, dataset, s):
        own, near = yield Gossip(y=s.y, u=s.u)
        y, u = ((1.0 - dataset.neighbour_weight) * own[c] + near[c] for c in ("y", "u"))
        y = y - self.y(t) * u
        g = dataset.batch(t).lower_grad_y(s.x, y)
        return State(s.x, y, u + g - s.last, g)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Choco:
    """y <- y + Σ_j w_ij (heard of j - y), then a step."""

    y: StepSize = option("λ, of y along the lower gradient")
    channels = ("x", "y")
    RELEASES = {"y": {"lower_grad_y": "y"}}

    def init(self, dataset, x, y):
        return Point(x, y)

    def step(self, t, dataset, s):
        own, near = yield Gossip(y=s.y)
        y = (1.0 - dataset.neighbour_weight) * own.y + near.y
        return Point(s.x, y - self.y(t) * dataset.batch(t).lower_grad_y(s.x, y))
'''
ROUNDS, CLIP = 6, 0.5


def scenario(folder: Path, kind: str, **topology: Any) -> dict[str, Any]:
    (folder / "mine.py").write_text(FILE, encoding="utf-8")
    return {
        "seed": 3,
        "problem": {
            "kind": "classification",
            "data": "synthetic_classification",
            "synthetic": {"dimension": 3, "records": 40, "test_records": 8},
        },
        "topology": {"kind": "ring", "agents": 4, **topology},
        "code_folders": [str(folder)],
        "algorithm": {"kind": f"mine:{kind}", "rounds": ROUNDS, "y": {"scale": 0.7}},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": {"y": CLIP}},
    }


def test_a_tracker_of_means_that_are_kept_is_priced_for_both(tmp_path: Path) -> None:
    """2C/N of the first, and 4C/N of all others; the one of the package, which goes on from releases, 2C/N of each."""
    run = decentral_dp.run(scenario(tmp_path, "Tracking"))
    job = run.simulation()
    assert run.records.same_releases(job.ledger)
    assert run.result.privacy.epsilon_max <= 4.0
    (u,) = job.ledger.charged_channels
    n = int(job.counts["train"][0])
    np.testing.assert_allclose(u.sensitivity["train"][:, 0], 2 * CLIP / n * np.array([1.0, *[2.0] * (ROUNDS - 1)]))
    ours = scenario(tmp_path, "Tracking")
    ours["algorithm"]["kind"] = "gradient_tracking"
    (s,) = decentral_dp.build(ours).ledger.charged_channels
    assert s.scale.max() < 0.6 * u.scale.max()


@pytest.mark.parametrize("quantiser", [{"kind": "top_k", "share": 0.5}, {"kind": "qsgd", "levels": 2}])
def test_compressed_messages_are_the_same_as_of_the_package_and_cost_no_more(
    quantiser: dict[str, Any], tmp_path: Path
) -> None:
    plain = decentral_dp.build(scenario(tmp_path, "Choco"))
    mine = decentral_dp.build(scenario(tmp_path, "Choco", compression=quantiser))
    assert mine.ledger.same_releases(plain.ledger)
    assert mine.plan().communication.bits < plain.plan().communication.bits
    run = mine.run()
    assert run.records.same_releases(plain.ledger)
    # Noise is keyed by the algorithm: what both say is the same without it.
    ends = []
    for kind in ("mine:Choco", "choco"):
        content = scenario(tmp_path, "Choco", compression=quantiser) | {"privacy": {"guarantee": "none"}}
        content["algorithm"]["kind"] = kind
        ends.append(decentral_dp.run(content).released["y"])
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-12)
