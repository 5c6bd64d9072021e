"""Noise with power, on a grid, keyed; and what must not leak through the low bits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.privacy.randomness import Streams, secret_root, seeded_root, tag
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from tests.support.release_cost_oracle import grid

ROOT = seeded_root(5, b"test")


def mechanism(kind: str, agents: int, scale: float = 1.0, decay: float = 0.0, root: bytes = ROOT) -> ScheduledReleaser:
    schedule = NoiseSchedule(np.full(agents, scale), np.full(agents, decay))
    return ScheduledReleaser(kind, {"y": schedule, "z": schedule}, Streams(root, "noise", np.arange(agents)))


def bounded(private: np.ndarray, kind: str, public: np.ndarray | None = None) -> Bounded:
    ones = np.ones(len(private))
    norm = "l1" if kind == "laplace" else "l2"
    base = np.zeros_like(private) if public is None else public
    return Bounded(base, private, {"train": Sensitivity(ones, ones, None)}, norm)


def released(kind: str, private: np.ndarray, index: int = 1, **options: float) -> np.ndarray:
    return mechanism(kind, len(private), **options).release(index, {"y": bounded(private, kind)})["y"]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_noise_has_the_declared_law_and_the_test_has_power(kind: str) -> None:
    noise = released(kind, np.zeros((200, 200)), scale=0.37).ravel()
    law = stats.laplace(scale=0.37 / np.sqrt(2)) if kind == "laplace" else stats.norm(scale=0.37)
    right = stats.kstest(noise, law.cdf).pvalue
    assert right > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(noise / wrong, law.cdf).pvalue < 1e-12


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_noise_follows_its_schedule(kind: str) -> None:
    spread = [released(kind, np.zeros((50, 400)), index=t, scale=2.0, decay=0.5).std() for t in (3, 15)]
    np.testing.assert_allclose(spread, [1.0, 0.5], rtol=0.03)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_agents_channels_and_rounds_have_independent_noise(kind: str) -> None:
    m = mechanism(kind, 3)
    zero = bounded(np.zeros((3, 4000)), kind)
    first = m.release(1, {"y": zero, "z": zero})
    second = m.release(2, {"y": zero, "z": zero})
    rows = np.concatenate([first["y"], first["z"], second["y"], second["z"]])
    correlation = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_channels_that_are_released_one_by_one_have_independent_noise(kind: str) -> None:
    m, zero = mechanism(kind, 2), bounded(np.zeros((2, 4000)), kind)
    rows = np.concatenate([m.release(1, {"y": zero})["y"], m.release(1, {"z": zero})["z"]])
    assert np.abs(np.corrcoef(rows) - np.eye(len(rows))).max() < 5 / np.sqrt(4000)


def test_purposes_have_streams_of_their_own() -> None:
    """Batches are drawn from other bits than noise, at the same agent, index and tag."""
    draws = [Streams(ROOT, purpose, [0]).generator(0, 1, tag("y")).normal(size=4000) for purpose in ("noise", "batch")]
    assert abs(np.corrcoef(draws)[0, 1]) < 5 / np.sqrt(4000)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_what_is_sent_lies_on_the_grid_whatever_is_public(kind: str) -> None:
    """Off the grid, the sum of a public and a noisy number is rounded by how large the noisy one is."""
    public = np.random.default_rng(3).normal(size=(2, 500))
    sent = mechanism(kind, 2).release(1, {"y": bounded(np.zeros((2, 500)), kind, public)})["y"]
    cells = sent / grid(1.0 / np.sqrt(2.0) if kind == "laplace" else 1.0, kind, 500)
    np.testing.assert_array_equal(cells, np.rint(cells))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_a_retry_repeats_the_draw_and_placement_does_not_matter(kind: str) -> None:
    query = np.random.default_rng(1).normal(size=(4, 7))
    together = released(kind, query)
    assert np.array_equal(together, released(kind, query))
    schedule = NoiseSchedule(np.ones(1), np.zeros(1))
    for agent in range(4):
        alone = ScheduledReleaser(kind, {"y": schedule}, Streams(ROOT, "noise", [agent]))
        got = alone.release(1, {"y": bounded(query[agent : agent + 1], kind)})["y"]
        assert np.array_equal(got[0], together[agent])


def test_another_purpose_has_another_root_although_the_seed_is_the_same() -> None:
    other = released("laplace", np.zeros((1, 1000)), root=seeded_root(5, b"other"))
    same = released("laplace", np.zeros((1, 1000)))
    assert abs(np.corrcoef(other[0], same[0])[0, 1]) < 0.2
    assert secret_root() != secret_root()


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_low_bits_do_not_depend_on_the_input(kind: str) -> None:
    """Every released private part is a multiple of the same grid for any query; plain floats are not."""
    rng = np.random.default_rng(2)
    for size in (0.0, 1.0, np.pi, 1e-3):
        out = released(kind, rng.normal(size=(5, 2000)) * size + size / 3, scale=1.0)
        g = grid(np.array([1.0 / np.sqrt(2) if kind == "laplace" else 1.0]), kind, 2000)[0]
        assert (np.mod(out, g) == 0).all()
        # and near zero all residues modulo a few cells occur for every input
        cells = np.unique(np.mod(out / g, 8))
        assert cells.size == 8
    plain = rng.normal(size=2000) + np.pi
    assert (np.mod(plain, 2.0**-20) != 0).any()


def test_laplace_rounds_stochastically() -> None:
    """Deterministic rounding of a d-vector costs d·g per release; stochastic rounding keeps tiny queries' mean."""
    g = grid(np.array([1.0 / np.sqrt(2)]), "laplace", 4000)[0]
    query = np.full((100, 4000), 0.25 * g)
    m = mechanism("laplace", 100)
    with_query = m.release(1, {"y": bounded(query, "laplace")})["y"]
    without = mechanism("laplace", 100).release(1, {"y": bounded(np.zeros_like(query), "laplace")})["y"]
    sensitivity = (with_query - without) / g
    assert set(np.unique(sensitivity)) == {0.0, 1.0}
    assert abs(sensitivity.mean() - 0.25) < 0.01


def test_wide_gaussian_releases_are_rounded_by_tosses_on_a_finer_grid() -> None:
    """Beside a narrow one, of the same agents: its query is rounded to the nearest, as if there were no other."""
    agents, width = 3, 30_000
    cells = {d: float(grid(1.0, "gaussian", d)) for d in (5, width)}
    assert cells[5] == 4 * cells[width]

    def released(narrow: float, wide: float, who: list[int]) -> dict[str, np.ndarray]:
        schedule = NoiseSchedule(np.ones(len(who)), np.zeros(len(who)))
        m = ScheduledReleaser("gaussian", {"y": schedule, "z": schedule}, Streams(ROOT, "noise", who))
        values = {
            "y": bounded(np.full((len(who), 5), narrow * cells[5]), "gaussian"),
            "z": bounded(np.full((len(who), width), wide * cells[width]), "gaussian"),
        }
        got = m.release(1, values)
        return {"y": got["y"] / cells[5], "z": got["z"] / cells[width]}

    none, some = released(0.0, 0.0, [0, 1, 2]), released(0.25, 0.25, [0, 1, 2])
    assert all((np.mod(v, 1.0) == 0.0).all() for v in (*none.values(), *some.values()))
    assert np.array_equal(none["y"], some["y"])
    sensitivity = some["z"] - none["z"]
    assert set(np.unique(sensitivity)) == {0.0, 1.0}
    assert np.abs(sensitivity.mean(axis=1) - 0.25).max() < 0.02
    assert np.abs(np.corrcoef(sensitivity) - np.eye(agents)).max() < 0.03
    assert stats.kstest(none["z"].ravel() * cells[width], "norm").pvalue > 1e-3
    for agent in range(agents):
        alone = released(0.25, 0.25, [agent])
        assert all(np.array_equal(alone[c][0], some[c][agent]) for c in "yz")
