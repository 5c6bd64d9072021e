"""Attacks on the privacy cost of honest-but-curious neighbours, compared with independent computations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from papers.network_attacks import (
    OFFLINE,
    Attack,
    NetworkAudit,
    SharedNoise,
    audit_network,
    counted_mu,
    print_attacks,
    relay,
    selected_sender,
    sign_feedback,
    total_variation_mu,
)

# Case → method, empirical, claimed, certified μ, and μ of all messages.
KNOWN = {
    "curvature, star 6": ("exact", 13.425237, 8.774964, 13.711309, 20.0),
    "own curvature, ring 16": ("exact", 10.0, 5.975672, 10.0, 10.0),
    "alternating, ring 16": ("exact", 9.636707, 5.975672, 10.0, 10.0),
    "offline, star 6": ("exact", 0.707174, 0.181243, 0.707190, 1.0),
    "offline, drop, ring 6": ("exact", 0.426006, 0.174639, 0.498729, 3.0**0.5),
    "offline, late, star 5": ("exact", 0.5**0.5, 0.275863, 0.5**0.5, 1.0),
    "offline, matching of 6": ("exact", 0.267261, 0.120386, 0.277350, 2.0**0.5),
    "sign feedback, path 3": ("integral", 1.154684, 0.632456, 2.0, 2.0),
    "selected senders": ("integral", 1.164458, 1.095445, 1.414214, math.nan),
}


def test_a_relay_exceeds_the_claim_hundreds_of_times() -> None:
    """Estimate the bound with 99.9 % confidence from 200 000 runs. The μ of all messages is 8."""
    shown = counted_mu(*relay(200_000, 0), 1e-3)
    assert 2.5 < shown < 8.0


@pytest.fixture(scope="module")
def found() -> NetworkAudit:
    return audit_network(runs=20_000, confidence=0.999)


def test_every_attack_exceeds_the_claim_and_none_the_certificate(found: NetworkAudit) -> None:
    cases = {attack.case: attack for attack in found.attacks}
    assert len(cases) == 16
    for case, (method, *numbers) in KNOWN.items():
        assert cases[case].method == method
        np.testing.assert_allclose(cases[case][2:], numbers, rtol=0, atol=7e-7)
    # By runs: bounds that hold with 99.9 %.
    slow, far = cases["tanh feedback, path 3"], cases["relay of signs, path 8"]
    assert slow.empirical > 0.875
    np.testing.assert_allclose(slow[3:], [0.776744, 1.233104, 2.0], atol=7e-7)
    assert far.empirical > 2.4
    assert far.claimed == pytest.approx(0.010198, abs=7e-7)
    assert [attack.claim for attack in found.attacks] == ["refuted"] * 12 + ["–"] * 4
    assert all(attack.holds for attack in found.attacks)
    assert found.status == "ok"


# [Σ⁻¹]_vv of two other readers, of a closed form with 6 honest agents, and by hand; data sets are 2 apart in each of 4
# rounds.
GAMES = {
    "ring": (SharedNoise.on_a_ring(16, 4.0, 0), 0.128712),
    "colluder": (SharedNoise.on_a_ring(16, 4.0, 1), 0.220980),
    "zero_sum": (SharedNoise.on_a_ring(8, 3.0, 2, all_pairs=True), 1.0 / 6.0 + 5.0 / 6.0 / (1.0 + 6.0 * 9.0)),
    "path": (
        SharedNoise.on_a_path(6),
        np.linalg.inv(
            np.array(
                [
                    [2.0, -1.0, 0.0, 0.0, 0.0, 0.0],
                    [-1.0, 9.0, -4.0, 0.0, 0.0, 0.0],
                    [0.0, -4.0, 22.0, -9.0, 0.0, 0.0],
                    [0.0, 0.0, -9.0, 26.0, -16.0, 0.0],
                    [0.0, 0.0, 0.0, -16.0, 45.0, -25.0],
                    [0.0, 0.0, 0.0, 0.0, -25.0, 34.0],
                ]
            )
        )[1, 1],
    ),
}


@pytest.mark.parametrize("case", GAMES)
def test_pairwise_noise_has_its_accounted_privacy(case: str) -> None:
    game, conductance = GAMES[case]
    assert game.ledger_mu == pytest.approx(4.0 * math.sqrt(conductance), rel=1e-5)
    first, second = game.scores(20_000, 3)
    # Log-likelihood ratios of a Gaussian pair: N(±μ²/2, μ²).
    for scores, sign in ((first, 0.5), (second, -0.5)):
        assert scores.mean() == pytest.approx(sign * game.ledger_mu**2, abs=4.0 * game.ledger_mu / math.sqrt(20_000))
        assert scores.std() == pytest.approx(game.ledger_mu, rel=4.0 / math.sqrt(40_000))
    assert 0.85 * game.ledger_mu < counted_mu(first, second, 1e-3) <= game.ledger_mu
    assert (first.mean() - second.mean()) / first.std() > 0.95 * game.ledger_mu


@pytest.mark.parametrize("case", OFFLINE)
def test_attacks_on_offline_agents_do_not_exceed_the_certificate(case: str) -> None:
    largest = 0.0
    for seed in range(12):
        for victim in (0, 2, 3):
            found = OFFLINE[case]._replace(seed=seed, observer=1, victim=victim).attack(case)
            assert found.holds
            largest = max(largest, found.empirical / max(found.certified, 1e-300))
    assert largest > 0.9


def test_integrals_agree_with_runs() -> None:
    """Compare the power of the best test in simulations of two attacks with its integral."""
    rng, n = np.random.default_rng(5), 200_000
    u = 1.0 + rng.standard_normal(n)
    k = rng.standard_normal(n) / 3.0
    y = u / 3.0 + np.sign(k + u / 3.0) + rng.standard_normal(n)
    # For the other data set everything turns around.
    guessed = (y > 0.0).mean() - (y < 0.0).mean()
    assert 0.3 < guessed <= sign_feedback(1.0 / 9.0, 0.0) + 4.0 / math.sqrt(n)
    m = 0.5 + rng.standard_normal((n, 2))
    first = 0.5 * (np.abs(m[:, 0]) - np.abs(m[:, 1])) + rng.standard_normal(n) > 0.0
    heard = np.where(first, m[:, 0], m[:, 1])
    guessed = (heard > 0.0).mean() - (heard < 0.0).mean()
    assert guessed == pytest.approx(selected_sender(0.5), abs=4.0 / math.sqrt(n))
    assert total_variation_mu(selected_sender(0.0)) == pytest.approx(1.0, abs=1e-6)


def test_a_certificate_that_is_exceeded_is_refuted(capsys: pytest.CaptureFixture[str]) -> None:
    attacks = (Attack("good", "exact", 1.0, 2.0, 1.5, 3.0), Attack("bad", "runs", 2.0, 1.0, 1.5, 3.0))
    refuted = NetworkAudit(attacks, 1000, 0.95)
    assert refuted.status == "refuted"
    assert [attack.claim for attack in attacks] == ["open", "refuted"]
    print_attacks(refuted)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["attack", "good", "bad"]
