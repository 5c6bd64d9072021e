"""Noise that neighbours share: its sum, its law, its streams, and what is written down of it."""

from __future__ import annotations

import numpy as np
import pytest

from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.participants import Network
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.pair_noise import PairDraws, PairNoise
from decentral_dp.privacy.randomness import Root, SecretRoot, Streams
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from decentral_dp.topology import build_topology
from decentral_dp.topology.over_time import OverTime, matching, off_diagonal

M, RATIO, WIDTH = 6, 3.0, 2000
RING = Network(build_topology("ring", M).mixing)
PAIRS = Network(RING.mixing, 0, matching(off_diagonal(RING.mixing), seed=4))
ROOTS: tuple[Root, ...] = (b"root", SecretRoot(bytes(32)))
SCALE = np.full((1, WIDTH), 2.0**16)
LEAVING = Network(RING.mixing, 0, OverTime("fixed", RING.mixing, lambda t: RING.mixing, 1, seed=3, offline=0.4))
# Each agent has own noise of its own scale, and every pair its ratio.
OWN = np.array([1.0, 2.0, 1.5, 1.0, 3.0, 1.25])
RATIOS = np.where(RING.mixing.toarray() != 0.0, 1.0 + np.add.outer(np.arange(M), np.arange(M)) / 4.0, 0.0)


def shared(kind: str) -> PairNoise:
    match kind:
        case "ring":
            return PairNoise(RATIO, 0, RING)
        case "matching":
            return PairNoise(RATIO, 0, PAIRS)
        case "zero_sum":
            return PairNoise(RATIO, 0, RING, all_pairs=True)
        case "leaving":
            return PairNoise(RATIO, 0, LEAVING, all_pairs=True)
    return PairNoise(RATIOS, 0, RING, OWN)


KINDS = ("ring", "matching", "zero_sum", "leaving", "scales")


def draws(agents: np.ndarray, root: Root = b"root", kind: str = "ring") -> PairDraws:
    return PairDraws(shared(kind), root, agents)


def laplacian(kind: str, t: int) -> np.ndarray:
    """Σ_e c_e²/σ² (e_i − e_j)(e_i − e_j)ᵀ over the pairs that draw in round t, by hand."""
    if kind in ("zero_sum", "leaving"):
        there = np.ones(M, dtype=bool) if kind == "zero_sum" else LEAVING.online(t)
        pairs = [(i, j) for i in range(M) for j in range(i) if there[i] and there[j]]
    else:
        pairs = [(int(i), int(j)) for i, j in (PAIRS if kind == "matching" else RING).links(t)]
    out = np.zeros((M, M))
    for i, j in pairs:
        away = np.eye(M)[i] - np.eye(M)[j]
        out += (RATIOS[i, j] if kind == "scales" else RATIO) ** 2 * np.outer(away, away)
    return out


@pytest.mark.parametrize("root", ROOTS, ids=["seeded", "secret"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_ends_draw_the_same_bits_and_the_sum_is_zero(root: Root, kind: str) -> None:
    whole = draws(np.arange(M), root, kind).sums(5, 5, 7, SCALE)
    blocks = [draws(part, root, kind).sums(5, 5, 7, SCALE) for part in (np.arange(2), np.arange(2, M))]
    assert np.array_equal(np.concatenate(blocks), whole)
    assert whole.any()
    assert not whole.sum(axis=0).any()
    assert np.array_equal(whole, np.rint(whole))


@pytest.mark.parametrize("kind", KINDS)
def test_its_covariance_is_the_laplacian(kind: str) -> None:
    of_all = draws(np.arange(M), kind=kind)
    for t in range(1, 4):
        noise = of_all.sums(t, t, 7, SCALE) / SCALE
        # A sample covariance of WIDTH columns is away by √((Σ_ij² + Σ_ii Σ_jj)/WIDTH); five of these.
        wanted = laplacian(kind, t)
        away = np.sqrt((wanted**2 + np.outer(np.diag(wanted), np.diag(wanted))) / WIDTH)
        assert (np.abs(noise @ noise.T / WIDTH - wanted) <= 5.0 * away + 1e-6).all()


def test_every_release_and_every_channel_has_noise_of_its_own() -> None:
    of_all = draws(np.arange(M))
    some = [of_all.sums(index, 1, tag, SCALE)[0] for index, tag in ((1, 7), (2, 7), (1, 8))]
    apart = np.corrcoef(some) - np.eye(3)
    assert (np.abs(apart) < 5.0 / np.sqrt(WIDTH)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_charged_at_the_scale_that_the_covariance_has(kind: str) -> None:
    own, of_each = np.array([[2.0], [3.0]]), OWN if kind == "scales" else np.ones(M)
    scale, drawn = shared(kind).charged_scales(own, np.array([1, 2]), np.arange(M))
    for row, t in enumerate((1, 2)):
        weights = laplacian(kind, t)
        covariance = own[row, 0] ** 2 * (np.diag(of_each**2) + weights)
        np.testing.assert_allclose(scale[row], np.diag(np.linalg.inv(covariance)) ** -0.5, rtol=1e-9)
        assert (drawn["variates"][row] == M + np.count_nonzero(np.triu(weights, 1))).all()
    np.testing.assert_array_equal(drawn["own_scale"], own * of_each)
    largest = RATIOS.max(axis=1) if kind == "scales" else np.full(M, RATIO)
    np.testing.assert_array_equal(drawn["pair_scale"], own * largest)


SCALES = {"x": 7.0, "y": 2.0}


def releaser(agents: np.ndarray, kind: str = "ring") -> ScheduledReleaser:
    schedules = {c: NoiseSchedule(np.full(agents.size, own), np.full(agents.size, 0.5)) for c, own in SCALES.items()}
    streams, noise = Streams(b"root", "noise", agents), draws(agents, kind=kind)
    return ScheduledReleaser(GAUSSIAN, schedules, streams, 1, noise)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_released_has_the_law_that_is_charged(kind: str) -> None:
    """A covariance of own and shared noise, round by round; a price by the eigenvectors of another would be seen.

    Two channels that are released together have noise of their own.
    """
    of_all, own = releaser(np.arange(M), kind), OWN if kind == "scales" else np.ones(M)
    moved = {"train": Sensitivity(np.ones(M), np.ones(M), None)}
    zero = np.zeros((M, WIDTH))
    nothing = dict.fromkeys(SCALES, Bounded(zero, zero, moved, "l2"))
    for index in (1, 2, 3):
        released = of_all.release(index, nothing)
        units = np.vstack([released[c] / scale for c, scale in SCALES.items()])
        wanted = np.kron(np.eye(2), (np.diag(own**2) + laplacian(kind, index)) / (index + 1.0))
        away = np.sqrt((wanted**2 + np.outer(np.diag(wanted), np.diag(wanted))) / WIDTH)
        assert (np.abs(units @ units.T / WIDTH - wanted) <= 5.0 * away).all()
    # The mean of all has no more than own noise: the rest cancels.
    assert np.isclose(released["y"].mean(axis=0).std(), np.linalg.norm(own) / M, rtol=0.1)
