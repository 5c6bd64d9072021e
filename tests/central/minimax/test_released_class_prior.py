"""The share of positive records: released before its use, or counted, which is not certified."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.bounded import Bounded
from decentral_dp.central import jobs
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite, Labelled
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.models.build import LinearModel
from decentral_dp.simulation.jobs import build
from tests.support.coordinator_replay import Listening, Scripted, scripted, with_noise
from tests.support.minimax_loop import Loop, agree, content, made

STEPS: dict[str, Any] = {"x": {"scale": 0.8}, "y": {"scale": 0.7}}
PROGRAMS: dict[str, dict[str, Any]] = {
    "sgda": {"kind": "dp_sgda", **STEPS},
    "closed form": {"kind": "dp_sgda", "x": STEPS["x"], "solver": "closed_form"},
    "privatediff": {"kind": "privatediff", "period": 3, "inner": 2, "smoothness": 0.3, **STEPS},
    "xy": {"kind": "privatediff_xy", "period": 2, "smoothness": 0.3, **STEPS},
}
RELEASED = {"positive_share": "released"}


# Released ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_a_loop_over_records(name: str) -> None:
    """The noisy share is released first; all gradients, balls and closed forms use it."""
    job = made(PROGRAMS[name], problem=RELEASED)
    agree(job, Loop(job, with_noise))


@pytest.mark.parametrize("noise", [-5.0, 5.0])
def test_share_is_projected_to_its_interval(noise: float) -> None:
    job = made(PROGRAMS["closed form"], problem=RELEASED)
    releaser = Scripted(lambda index, channel, width: np.full(width, noise if channel == "share" else 0.1))
    path = scripted(job, releaser)
    assert [float(v["share"][0, 0]) for v in path] == [0.5, *[0.99 if noise > 0.0 else 0.01] * 7]

    def with_share_noise(index: int, channel: str, public: np.ndarray, private: np.ndarray) -> np.ndarray:
        return public + private + (noise if channel == "share" else 0.1)

    agree(job, Loop(job, with_share_noise), Scripted(lambda i, c, d: np.full(d, noise if c == "share" else 0.1)))


def test_share_has_sensitivity_one_over_n() -> None:
    job = made(PROGRAMS["sgda"], problem=RELEASED)
    releaser = Listening(job)
    scripted(job, releaser)
    share = releaser.wanted[1, "share"]
    labels = job.shards.labels[np.concatenate(job.shards.train)]
    assert isinstance(share, Bounded)
    assert share.value[0, 0] == pytest.approx(float(np.mean(labels == 1)), abs=1e-12)
    sensitivity = float(share.sensitivities["train"].sensitivity[0])
    n = len(labels)
    assert 1.0 / n <= sensitivity <= 1.0 / n * (1.0 + 1e-10)
    (line,) = [c for c in releaser.ledger().channels if c.channel == "share"]
    (planned,) = [c for c in job.ledger.channels if c.channel == "share"]
    assert float(line.scale[0, 0]) == pytest.approx(sensitivity / float(planned.sensitivity["train"][0, 0]), rel=1e-9)
    assert (line.rate["train"] == 1.0).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_share_has_its_part_of_the_budget(name: str) -> None:
    job, plain = made(PROGRAMS[name], problem=RELEASED), made(PROGRAMS[name])
    lines = {c.channel: c for c in job.ledger.charged_channels}
    assert list(lines["share"].rounds) == [1]
    counted = {c: float(((line.rate["train"] * line.sensitivity["train"]) ** 2).sum()) for c, line in lines.items()}
    assert counted["share"] / sum(counted.values()) == pytest.approx(0.02, rel=1e-9)
    inner = plain.algorithm.releases_per_round
    for c in plain.ledger.charged_channels:
        t, e = divmod(c.rounds - 1, inner)
        np.testing.assert_array_equal(lines[c.channel].rounds, t * (inner + 1) + e + 2)
        # Nearly the same as without the release of the share.
        share = float((lines[c.channel].sensitivity["train"] / c.sensitivity["train"]).min())
        assert 0.97 < share < 1.0
    assert job.ledger.releases_per_round == inner + 1


@pytest.mark.parametrize("blocks", [1, 3])
def test_scores_use_the_released_share(blocks: int) -> None:
    run = decentral_dp.run(content(PROGRAMS["sgda"], problem=RELEASED, run={"blocks": blocks}))
    assert run.result["status"] == "ok"
    assert run.records.costs_within(run.simulation().ledger)
    assert 0.99 * 6.0 <= run.result["privacy"]["epsilon_max"] <= 6.0
    share = float(run.released["share"][0, 0])
    assert 0.0 < share < 1.0
    x, y = run.released["x"][0], run.released["y"][0]
    train = [np.concatenate(part) for part in zip(*run.simulation().records["train"], strict=True)]
    score = Composite(LinearModel(3, 1), AucObjective(share)).scores(x, y, Labelled(*train), None)
    last = run.metrics[run.metrics["name"] == "primal"].sort_values("round")["value"].iloc[-1]
    assert last == pytest.approx(score["primal"], rel=1e-9)
    settings = run.result["algorithm"]
    assert settings["settled"]["rate"] == 0.4
    assert "positive" in run.result["privacy"]["queries"]


def test_refuses_a_counted_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "deal", lambda *a: pytest.fail("records were read before it was refused"))
    with pytest.raises(InputError, match=r"^problem\.positive_share: got "):
        build.build_job(load(content(PROGRAMS["sgda"], problem={"positive_share": "empirical"})))


# Sensitivity of a counted share --------------------------------------------------------------------------------------


def clipped_sum(
    labels: np.ndarray, h: np.ndarray, point: tuple[float, float, float], clip: float, share: float
) -> np.ndarray:
    """Compute the sum of clipped gradients of all of f in (a, b, α), independent of the package."""
    a, b, alpha = point
    by_a = np.where(labels == 1.0, -2.0 * (1.0 - share) * (h - a), 0.0)
    by_b = np.where(labels == 1.0, 0.0, -2.0 * share * (h - b))
    by_alpha = 2.0 * np.where(labels == 1.0, -(1.0 - share) * h, share * h)
    rows = np.stack([by_a, by_b, by_alpha + 2.0 * share * (1.0 - share) * (1.0 - alpha)], axis=1)
    size = np.maximum(np.sqrt((rows**2).sum(axis=1)), 1e-300)
    return np.asarray((rows * np.minimum(1.0, clip / size)[:, None]).sum(axis=0))


@pytest.mark.parametrize(("clip", "expected"), [(0.3, 7.35), (1.0, 2.26)])
def test_counted_share_exceeds_sensitivity(clip: float, expected: float) -> None:
    """With one of a hundred records positive, the change exceeds 2C for the counted share, not for a public one."""
    n, worst, worst_public = 1000, 0.0, 0.0
    labels = np.where(np.arange(n) < 10, 1.0, 0.0)
    for high, low, other, a, b, alpha in itertools.product((0, 1), (0, 1), (0, 1), (0, 0.5, 1), (0, 0.5, 1), (0, 2)):
        h = np.where(labels == 1.0, float(high), float(low))
        for k in (0, n - 1):
            other_labels, other_h = labels.copy(), h.copy()
            other_labels[k], other_h[k] = 1.0 - labels[k], float(other)
            ends = [(labels, h), (other_labels, other_h)]
            counted = [clipped_sum(y, z, (a, b, alpha), clip, float(y.mean())) for y, z in ends]
            public = [clipped_sum(y, z, (a, b, alpha), clip, 0.01) for y, z in ends]
            worst = max(worst, float(np.linalg.norm(counted[0] - counted[1])) / (2.0 * clip))
            worst_public = max(worst_public, float(np.linalg.norm(public[0] - public[1])) / (2.0 * clip))
    assert worst == pytest.approx(expected, abs=0.01)
    assert worst_public <= 1.0 + 1e-9
