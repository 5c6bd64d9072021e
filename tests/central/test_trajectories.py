"""Trajectories: environments, files and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.data import Dataset, load_dataset, make_shards
from decentral_dp.simulation.jobs.build import build_job as build

SMALL = {"records": 3, "test_records": 2, "steps": 12}


def parts(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return observations (n, L+1, d), rewards (n, L) and terminal (n,) from the documented layout of rows."""
    assert data.trajectory is not None
    longest, d = data.trajectory
    rows = data.features
    width = (longest + 1) * d
    return rows[:, :width].reshape(-1, longest + 1, d), rows[:, width : width + longest], rows[:, width + longest]


def test_environment_trajectories_stay_within_limits() -> None:
    data = load_dataset("cartpole", n_agents=2, seed=1, **SMALL)
    observations, rewards, terminal = parts(data)
    lengths = data.labels.astype(int)
    assert data.trajectory == (12, 4)
    assert data.classes == ()
    assert data.n == 2 * 3 + 2
    assert data.features.shape[1] == len(data.feature_names) == 13 * 4 + 12 + 1
    assert np.all((lengths >= 1) & (lengths <= 12))
    assert np.abs(observations).max() <= 1.0
    for k, length in enumerate(lengths):
        assert not observations[k, length + 1 :].any()
        assert not rewards[k, length:].any()
        # The episode was truncated, or it ended.
        assert length == 12 or terminal[k] == 1.0
    assert data.agent is not None
    assert data.split is not None
    assert data.agent.tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    assert data.split.tolist() == ["train"] * 6 + ["test"] * 2


def test_observations_are_scaled_by_limits() -> None:
    """Repeat the episodes with gymnasium from the recorded starts, without the package's scaling."""
    import gymnasium

    from decentral_dp.data.dataset import public_generator

    data = load_dataset("cartpole", n_agents=1, seed=7, records=4, test_records=0, steps=30)
    observations, rewards, terminal = parts(data)
    high = np.array([2.4, 3.5, np.pi / 15, 3.5])
    env = gymnasium.make("CartPole-v1")
    for k in range(4):
        coins = public_generator(7, "cartpole episode", 0, k)
        state, _ = env.reset(seed=int(coins.integers(2**31)))
        for t in range(int(data.labels[k])):
            np.testing.assert_allclose(observations[k, t] * high, np.clip(state, -high, high), atol=1e-12)
            falls = state[2] + 0.25 * state[3] > 0.0
            action = int(falls) if coins.random() < 1 / 3 else int(coins.integers(2))
            state, reward, ended, _, _ = env.step(action)
            assert rewards[k, t] == reward == 1.0
        assert bool(terminal[k]) == ended
    env.close()


def test_trajectory_depends_on_its_key_only() -> None:
    few, many = (load_dataset("cartpole", n_agents=2, seed=1, records=n, test_records=1, steps=9) for n in (2, 4))
    assert few.agent is not None
    np.testing.assert_array_equal(few.features[:2], many.features[:2])
    np.testing.assert_array_equal(few.features[2:4], many.features[4:6])
    np.testing.assert_array_equal(few.features[-1], many.features[-1])
    other = load_dataset("cartpole", n_agents=2, seed=2, records=2, test_records=1, steps=9)
    assert not np.array_equal(few.features, other.features)
    assert len(np.unique(many.features, axis=0)) == many.n


# Files ---------------------------------------------------------------------------------------------------------------


def arrays(n: int = 4, longest: int = 5, d: int = 2) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        "observations": draw.normal(size=(n, longest + 1, d)),
        "rewards": draw.normal(size=(n, longest)),
        "lengths": np.array([5, 1, 3, 4]),
    }


def save(folder: Path, **changes: Any) -> Path:
    """Save a file of trajectories; a change of None omits an array."""
    path = folder / "played.npz"
    np.savez(path, **{k: v for k, v in (arrays() | changes).items() if v is not None})
    return path


def test_file_is_read_to_the_end_of_each_trajectory(tmp_path: Path) -> None:
    contents = arrays()
    contents["observations"][1, 2:] = np.nan
    contents["rewards"][1, 1:] = np.inf
    owners = {"agent": np.array([0, 1, 0, 1]), "split": np.array(["train", "train", "test", "train"])}
    data = load_dataset(
        str(save(tmp_path, **contents, **owners, terminal=np.array([True, False, True, True]))), n_agents=2, seed=0
    )
    observations, rewards, terminal = parts(data)
    for k, length in enumerate(contents["lengths"]):
        np.testing.assert_array_equal(observations[k, : length + 1], contents["observations"][k, : length + 1])
        np.testing.assert_array_equal(rewards[k, :length], contents["rewards"][k, :length])
        assert not observations[k, length + 1 :].any()
        assert not rewards[k, length:].any()
    assert terminal.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert data.labels.tolist() == [5.0, 1.0, 3.0, 4.0]
    assert data.trajectory == (5, 2)
    assert data.agent is not None
    assert data.agent.tolist() == [0, 1, 0, 1]
    assert data.split is not None
    assert data.split.tolist() == owners["split"].tolist()


def with_value(name: str, index: tuple[int, ...], value: float) -> dict[str, np.ndarray]:
    array = arrays()[name].astype(float)
    array[index] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (with_value("observations", (2, 3, 1), np.nan), "array 'observations'"),
        (with_value("rewards", (3, 2), -np.inf), "array 'rewards'"),
        (with_value("lengths", (1,), 0), "array 'lengths'"),
        (with_value("lengths", (1,), 2.5), "array 'lengths'"),
        ({"terminal": np.array([0, 1, 2, 0])}, "array 'terminal'"),
        ({"terminal": np.zeros(3)}, r"array 'terminal' has the wrong shape.*got.*\(3,\)"),
        ({"rewards": np.zeros((4, 6))}, r"array 'rewards' has the wrong shape \(got \(4, 6\)"),
        ({"observations": np.zeros((4, 1, 2))}, "array"),
        (
            {"observations": np.array([[["a"]]])},
            r"'observations' has the wrong shape or type \(got <U1 of shape \(1, 1, 1\)",
        ),
        ({"rewards": None}, "no array 'rewards'"),
        ({"agent": np.zeros(3)}, r"array 'agent' has the wrong shape.*got.*\(3,\)"),
    ],
)
def test_refuses_malformed_files(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = save(tmp_path, **changes)
    with pytest.raises(InputError, match=words) as refused:
        load_dataset(str(path), n_agents=1, seed=0)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"problem.data: {str(path)!r}")


# Compatible problems ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys", [{"scale_spec": "public_ranges"}, {"scale_spec": {"*": [0.0, 1.0]}}, {"normalisation": "l2"}]
)
def test_refuses_mixed_rewards_and_observations(keys: dict[str, Any]) -> None:
    data = load_dataset("cartpole", n_agents=1, seed=0, **SMALL)
    key = "scale" if "scale_spec" in keys else "normalise"
    with pytest.raises(InputError, match=rf"problem\.{key}: the records of 'cartpole' are trajectories"):
        make_shards(data, 1, seed=0, levels=1, **keys)


def scenario(problem: dict[str, Any], algorithm: str) -> dict[str, Any]:
    steps = {"x": {"scale": 0.1}, "y": {"scale": 0.1}}
    return {
        "seed": 1,
        "problem": problem,
        "topology": {"kind": "star", "agents": 2},
        "algorithm": {"kind": algorithm, "rounds": 2, **steps}
        if algorithm == "dp_sgda"
        else {"kind": algorithm, "rounds": 2},
        "privacy": {"epsilon": 1.0, "clip": {"x": 1.0, "y": 1.0}},
    }


@pytest.mark.parametrize(
    ("problem", "algorithm", "words"),
    [
        ({"kind": "mspbe", "data": "digits", "discount": 0.9}, "dp_sgda", "mspbe reads whole trajectories"),
        (
            {"kind": "dro", "data": "cartpole", "synthetic": SMALL, "divergence": "chi2", "strength": 1.0, "cap": 1.0},
            "dp_sgda",
            "dro reads single records",
        ),
        (
            {"kind": "logistic_regularisation", "data": "cartpole", "synthetic": SMALL},
            "pp_ift",
            "logistic_regularisation reads single records",
        ),
    ],
)
def test_refuses_unsuited_problems_and_records(problem: dict[str, Any], algorithm: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        build(decentral_dp.load(scenario(problem, algorithm)))
