"""Audits of correlated noise: the distribution of the score, its certified ε, and noise that is too small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.auditing.losses import compute_movement, log_ratio
from decentral_dp.auditing.neighbours import find_neighbours
from decentral_dp.auditing.transcripts import observe, replay, worst_colluders
from decentral_dp.participants import Network
from decentral_dp.privacy.pair_noise import PairDraws, PairNoise
from decentral_dp.topology import build_topology
from tests.support.training import training


def scenario(correlation: dict[str, Any], colluders: int, topology: dict[str, Any]) -> dict[str, Any]:
    privacy = {"correlation": correlation, "colluders": colluders}
    return training(topology={"kind": "path", "agents": 5, **topology}, algorithm={"rounds": 4}, privacy=privacy)


def _with_mean(job: dict[str, Any]) -> dict[str, Any]:
    """The scenario in which agents release the mean of their features first."""
    job["privacy"]["clip"] = {"x": 1.0, "y": 0.1}
    job["algorithm"] |= {"rounds": 8, "centring": True}
    return job


PAIRWISE = {"between_agents": "pairwise", "ratio": 3.0}
CASES: dict[str, dict[str, Any]] = {
    "path": scenario(PAIRWISE, 0, {}),
    "colluder": scenario(PAIRWISE, 1, {"kind": "ring"}),
    "scales": scenario({"between_agents": "optimised"}, 0, {}),
    "zero_sum": scenario({"between_agents": "zero_sum", "ratio": 3.0}, 2, {}),
    "mean": _with_mean(scenario({"between_agents": "optimised"}, 1, {})),
    "lossy": scenario(PAIRWISE, 0, {"kind": "complete", "offline": 0.3, "drop": 0.2}),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_have_their_certified_distribution(case: str) -> None:
    """Log-likelihood ratios of N(±μ²/2, μ²), μ of the movement at the scale of the ledger."""
    job = decentral_dp.build(CASES[case]).simulation()
    neighbours = find_neighbours(job, b"search")
    apart = []
    for k in range(50):
        seen = observe(neighbours.first.with_root(bytes([k]) * 32), neighbours.victim)
        first, second = (replay(side, neighbours.victim, seen) for side in (neighbours.first, neighbours.second))
        mu = float(np.linalg.norm(compute_movement(seen, first, second).gaussian))
        apart.append((log_ratio(seen, first, second) - 0.5 * mu**2) / mu)
        residuals = seen.residuals["gaussian"]
        assert residuals.std() == pytest.approx(1.0, abs=5.0 / np.sqrt(residuals.size))
    assert abs(np.mean(apart)) < 4.0 / np.sqrt(50)
    assert 0.6 < np.std(apart) < 1.4
    # The effective noise scale is that of the ledger, which is tight on these graphs.
    channels = {charged.channel: charged for charged in job.ledger.charged_channels}
    assert set(channels) == set(job.scenario.privacy.clips)
    for (index, channel), noise in seen.noise.items():
        if index > 0 and noise is not None:
            charged = channels[channel]
            at = int(np.searchsorted(charged.rounds, index))
            scale = charged.scale[at, charged.group[neighbours.victim]]
            assert scale * (1.0 - 1e-9) <= noise.scale <= scale * (1.0 + 2e-3)


def test_the_colluders_of_an_audit_are_the_neighbours() -> None:
    noise = PairNoise(3.0, 2, Network(build_topology("ring", 8).mixing))
    assert worst_colluders(noise, 3, (0,)).tolist() == [2, 4]


def test_too_small_correlated_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = PairDraws.sums
    monkeypatch.setattr(PairDraws, "sums", lambda *asked: np.rint(0.3 * sums(*asked)))
    found = decentral_dp.audit(CASES["path"], runs=30)
    assert any("times as large as stated" in sentence for sentence in found.sentences)
