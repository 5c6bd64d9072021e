"""Guards between a private value and its release, each tested by the error that it prevents."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from decentral_dp.bounded import Bounded, Sensitivity, Split
from decentral_dp.central.tuner import project
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.privacy.accounting.charges import charges
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.releasers import CheckedReleaser, PlannedReleaser, UserCodeError
from decentral_dp.simulation.jobs.build import build_job as build
from papers.published.minimax import clip_mean

ROOT = bytes(range(32))
KINDS: tuple[Split, ...] = ("train", "validation")


def moved_by(value: Any, sensitivities: Mapping[Split, Any], norm: Any = "l2") -> Bounded:
    rows = len(value)
    spread = {
        k: Sensitivity(np.broadcast_to(s, rows).astype(float), np.ones(rows), None) for k, s in sensitivities.items()
    }
    return Bounded(np.zeros_like(value), value, spread, norm)


def line(sensitivity: list[float], kinds: tuple[Split, ...] = ("train",), width: int = 3, **keys: Any) -> Ledger:
    column = np.array(sensitivity)[:, None]
    rounds, one = np.arange(1, len(column) + 1), np.ones_like(column)
    rate = keys.pop("rate", 1.0) * one
    return Ledger(
        1,
        (
            ChannelLedger(
                "y", "gaussian", width, np.zeros(1, dtype=np.int64), rounds, one,
                dict.fromkeys(kinds, column), dict.fromkeys(kinds, rate), **keys,
            ),
        ),
    )  # fmt: skip


GOSSIP: dict[str, Any] = {
    "seed": 5,
    "problem": {"kind": "logistic_hyperparameter", "data": "own", "test": 0.0, "normalise": "l2", "classes": [0, 1]},
    "topology": {"kind": "ring", "agents": 3},
    "algorithm": {"kind": "ldp_dsbo", "rounds": 4, "x": {"scale": 0.2}, "y": {"scale": 1.0}, "z": {"scale": 0.5}},
    "privacy": {"mechanism": "gaussian", "y": {"scale": 0.5}, "z": {"scale": 0.5}, "clip": {"y": 1.0, "z": 1.0}},
}


def gossip(**algorithm: Any) -> Any:
    draw = np.random.default_rng(2)
    data = draw.normal(size=(24, 3)), np.arange(24) % 2
    return build(GOSSIP | {"run": {"average": 2}, "algorithm": GOSSIP["algorithm"] | algorithm}, data=data)


def test_published_values_are_means_of_released_ones() -> None:
    job, seen = gossip(), []
    LocalEngine().run(job.nodes(), job.rounds, RunControl(range(job.rounds + 1), seen.append))
    for before, after in pairwise(seen[1:]):
        for channel in ("y", "z"):
            np.testing.assert_allclose(
                after.published[channel], (before.released[channel] + after.released[channel]) / 2.0, rtol=1e-12
            )
            assert np.abs(after.published[channel] - after.state[channel]).min() > 0.0


def test_labels_of_a_squared_loss_are_clipped() -> None:
    features, labels = np.full((5, 2), 0.25), np.array([7.0, -7.0, 1e300, 0.3, np.inf])
    for bound in (1.0, 2.5):
        found = project(features, labels, "squared", 1.0, bound)[1]
        assert found.tolist() == [bound, -bound, bound, 0.3, 0.0]


@pytest.mark.parametrize("bound", [0.1, 3.0])
def test_a_clipped_mean_may_cross_its_ball(bound: float) -> None:
    context: Any = build(load("recursive_spider", ["algorithm.rounds=2"])).context
    away = np.zeros((1, context.problem.p))
    away[0, 0] = 5.0
    # One record carries a mean of few from one side to the other.
    ends = [clip_mean(moved_by(sign * away, {"train": [100.0]}), bound) for sign in (1.0, -1.0)]
    moved = float(np.linalg.norm(ends[0].value - ends[1].value))
    assert moved == pytest.approx(2.0 * bound, rel=1e-9)
    for end in ends:
        assert moved <= float(end.sensitivities["train"].sensitivity[0]) <= moved * (1.0 + 1e-9)
        assert end.sensitivities["train"].rate.tolist() == [1.0]


def test_nothing_bounds_a_direction_at_a_private_point_without_constants() -> None:
    job = gossip()
    dataset = job.nodes([3])[0].dataset
    free, still = np.full((3, job.problem.q), 0.1), {"train": [0.0, 0.5, 0.0], "validation": [0.0, 0.0, 0.25]}
    private = moved_by(free, still)
    x = np.full((3, job.problem.p), -1.0)
    for found in dataset.oracle(0, x, private, free)._asdict().values():
        if not isinstance(found, Bounded):
            continue
        for split, moves in still.items():
            sensitivity = found.sensitivities[split].sensitivity
            # A term at a private point has no bound, since no clip bounds its movement.
            assert np.isinf(sensitivity).tolist() == [move > 0.0 for move in moves], split


def test_releases_are_checked_with_the_plan() -> None:
    plan = line([1.0, 1.0])
    passed: list[int] = []
    inner = SimpleNamespace(release=lambda index, values, sends: passed.append(index))
    held = CheckedReleaser(lambda: inner, plan, GuardedAlgorithm)
    for index in (1, 2):
        with pytest.raises(UserCodeError, match=f"round {index}: .* may move y by 1.5, planned 1"):
            held.release(index, {"y": moved_by(np.zeros((1, 3)), {"train": [1.5]})})
    assert passed == []
    for index in (0, 1, 2):
        held.release(index, {"y": moved_by(np.zeros((1, 3)), {"train": [1.0]})})
    assert passed == [0, 1, 2]


class GuardedAlgorithm:
    """An algorithm of somebody else's."""

    def step(self) -> None: ...


@pytest.mark.parametrize("still", KINDS)
def test_records_of_one_split_get_noise(still: Split) -> None:
    moves: dict[Split, float] = dict.fromkeys(KINDS, 1.0) | {still: 0.0}
    value = np.array([[0.25, -3.0, 8.0]])
    releaser = PlannedReleaser(line([2.0], KINDS), ROOT)
    released = releaser.release(1, {"y": moved_by(value, {k: [m] for k, m in moves.items()})}).released["y"]
    assert np.abs(released - value).min() > 0.0
    # A value that no record moves has no noise.
    releaser = PlannedReleaser(line([2.0], KINDS), ROOT)
    assert np.array_equal(releaser.release(1, {"y": moved_by(value, {k: [0.0] for k in KINDS})}).released["y"], value)


def test_a_negative_multiple_moves_as_far_as_a_positive_one() -> None:
    value = moved_by(np.ones((2, 3)), {"train": [0.5, 2.0]})
    for factor, expected in (
        (-3.0, [1.5, 6.0]),
        (np.array([[-3.0], [0.5]]), [1.5, 1.0]),
        (np.array([[-1.0], [-0.0]]), [0.5, 0.0]),
    ):
        assert (value * factor).sensitivities["train"].sensitivity.tolist() == expected
    assert (-value).sensitivities["train"].sensitivity.tolist() == [0.5, 2.0]
    assert (np.zeros((2, 3)) - value).sensitivities["train"].sensitivity.tolist() == [0.5, 2.0]


@pytest.mark.parametrize("width", [1, 1000])
def test_a_poisson_sample_is_rounded_twice(width: int) -> None:
    """Proof 11: presence and absence of a record are each half as far as the replaced one, and each on the grid."""
    ledger = line([0.5], width=width, rate=0.25, sampling="poisson")
    loss = float(charges(ledger).lines["train"][0].loss[0, 0])
    grid = float(ledger.channels[0].mechanism.grid(np.ones(1), width)[0])
    assert loss >= 2.0 * (0.25 + np.sqrt(width) * grid)
    assert loss <= 2.0 * (0.25 + np.sqrt(width) * grid) * (1.0 + 1e-12)
    assert loss - 0.5 > 1.5 * np.sqrt(width) * grid
