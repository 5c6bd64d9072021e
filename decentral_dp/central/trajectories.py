"""Trajectories: records that are whole logged episodes, from a file or simulated.

A record is a whole episode of one person: observations s_0 … s_T in R^d, rewards r_0 … r_{T−1}, and whether s_T is
terminal. The value of a terminal s_T is 0; otherwise the record was truncated there. The length T is from 1 to a public
L. A trajectory is one row of `Dataset.features`, whose label is T:

    s_0, …, s_L (one observation after the other), r_0, …, r_{L−1}, terminal (0 or 1)

with zeros after T. `Dataset.trajectory` is (L, d).

CartPole-v1 of gymnasium is simulated with a fixed public policy. Every trajectory has its own key of the public seed,
so replacing one does not change another. Observations are mapped to [−1, 1] by declared constants of the environment
and clipped; no value is fitted to them.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, TextArray, as_agents, as_split, public_generator
from decentral_dp.data.tables import column, read_archive, real_numbers
from decentral_dp.errors import InputError, converting

_ARRAYS = ("observations", "rewards", "lengths")


def read_trajectories(path: Path, agent: str | None = None, split: str | None = None) -> Dataset | None:
    """Read trajectories from an NPZ archive.

    The archive has observations (n, L+1, d), rewards (n, L), lengths (n,), and optionally terminal (n,), agents (n,)
    and splits (n,). Values after the end of a trajectory are not read.

    Args:
        path: path of the archive.
        agent: name of the array of agents. None means "agent", if the archive has it.
        split: name of the array of splits. None means "split", if the archive has it.

    Returns:
        The trajectories, or None if the archive has no array "observations".

    Raises:
        InputError: an array is missing, or has a wrong shape or an invalid value.
    """
    location = f"problem.data: {str(path)!r}"
    columns = (agent or "agent", split or "split")
    arrays = read_archive(path, location, (), (*_ARRAYS, "terminal", *columns), "X=..., y=...")
    if "observations" not in arrays:
        return None
    missing = [name for name in (*_ARRAYS, *filter(None, (agent, split))) if name not in arrays]
    if missing:
        raise InputError(
            f"{location} has no array {missing[0]!r} of trajectories (got {', '.join(arrays)}). Fix: add it."
        )
    observations = real_numbers(
        arrays["observations"], 3, f"{location}, array 'observations'", "(trajectories, L + 1, d)"
    )
    n, points, _ = observations.shape
    shapes = {"rewards": (n, points - 1), "lengths": (n,), "terminal": (n,)}
    arrays.setdefault("terminal", np.zeros(n))
    arrays_by_key = {k: real_numbers(arrays[k], len(s), f"{location}, array {k!r}", str(s)) for k, s in shapes.items()}
    wrong = [k for k, s in shapes.items() if arrays_by_key[k].shape != s]
    if wrong or points < 2 or not observations.size:
        name = wrong[0] if wrong else "observations"
        raise InputError(
            f"{location}, array {name!r} has the wrong shape (got {arrays[name].shape}, expected (n, L + 1, "
            "d) for observations, (n, L) for rewards, and (n,) for lengths and ends)."
        )
    rewards, lengths, terminal = arrays_by_key.values()
    steps = np.arange(points)
    observations = np.where((steps <= lengths[:, None])[..., None], observations, 0.0)
    rewards = np.where(steps[:-1] < lengths[:, None], rewards, 0.0)
    # NaN fails these comparisons, too.
    sound = {
        "lengths": ((lengths >= 1) & (lengths < points) & (lengths == np.floor(lengths))).all(),
        "terminal": ((terminal == 0.0) | (terminal == 1.0)).all(),
        "observations": np.isfinite(observations).all(),
        "rewards": np.isfinite(rewards).all(),
    }
    for name, holds in sound.items():
        if not holds:
            raise InputError(
                f"{location}, array {name!r} has an invalid value (expected integer lengths from 1 to "
                f"{points - 1}, terminal 0 or 1, and finite numbers). Fix: correct it, or remove the "
                "trajectory."
            )
    owners = arrays.get(columns[0])
    parts = arrays.get(columns[1])
    return trajectory_rows(
        observations,
        rewards,
        lengths.astype(np.int64),
        terminal,
        str(path),
        None if owners is None else as_agents(column(owners, n, f"{location}, array {columns[0]!r}"), location),
        None if parts is None else as_split(column(parts, n, f"{location}, array {columns[1]!r}"), location),
    )


def trajectory_rows(
    observations: FloatArray,
    rewards: FloatArray,
    lengths: IntArray,
    terminal: FloatArray,
    source: str,
    agent: IntArray | None,
    split: TextArray | None,
) -> Dataset:
    """Return trajectories as rows of a dataset.

    Args:
        observations: observations, zero after the end of each trajectory, (n, L + 1, d).
        rewards: rewards, zero after the end of each trajectory, (n, L).
        lengths: lengths from 1 to L, (n,).
        terminal: whether the last observation ends its episode, 0 or 1, (n,).
        source, agent, split: attributes of `Dataset`.
    """
    n, points, d = observations.shape
    names = [f"observation {k} of step {t}" for t in range(points) for k in range(d)]
    names += [*(f"reward of step {t}" for t in range(points - 1)), "terminal"]
    return Dataset(
        np.concatenate([observations.reshape(n, -1), rewards, terminal[:, None]], axis=1),
        lengths.astype(np.float64),
        (),
        tuple(names),
        source,
        agent,
        split,
        trajectory=(points - 1, d),
    )


# Limits of observations: an episode ends beyond 2.4 and 12 degrees; speeds are unbounded and rarely exceed 3.5.
LIMITS = np.array([2.4, 3.5, np.pi / 15, 3.5])


# Episodes take seconds, and the next run often has the same arguments.
@lru_cache(maxsize=2)
def simulate(*, n_agents: int, seed: int, records: int = 100, test_records: int = 200, steps: int = 100) -> Dataset:
    """Simulate CartPole-v1 of gymnasium with a fixed public policy.

    With probability 1/3 the policy pushes in the direction in which the pole falls, otherwise in a random direction.
    The pole falls after about 40 steps.

    Args:
        n_agents: number of agents.
        seed: public seed. Trajectory i of an agent depends only on (seed, agent, i, steps).
        records: number of records per agent.
        test_records: number of held-out records.
        steps: length L at which episodes are truncated.

    Returns:
        The trajectories of each agent in turn, then the held-out trajectories, with `agent` and `split` columns.

    Raises:
        InputError: gymnasium is missing.
    """
    missing = (
        "problem.data: 'cartpole' requires the package gymnasium, which is not installed. Fix: run pip install "
        'gymnasium, or use a .npz file of trajectories with "observations", "rewards" and "lengths".'
    )
    with converting(ImportError, lambda _: missing):
        gymnasium = importlib.import_module("gymnasium")
    # Warnings of the environment's checker do not concern users.
    env = gymnasium.make("CartPole-v1", max_episode_steps=steps, disable_env_checker=True)
    owners = [(agent, i) for agent in range(n_agents) for i in range(records)]
    owners += [(n_agents, i) for i in range(test_records)]
    d, n = LIMITS.size, len(owners)
    observations, rewards = np.zeros((n, steps + 1, d)), np.zeros((n, steps))
    lengths, terminal = np.zeros(n, dtype=np.int64), np.zeros(n)
    for row, (agent, i) in enumerate(owners):
        coins = public_generator(seed, "cartpole episode", agent, i)
        states, gains, terminal[row] = _episode(env, coins, steps)
        lengths[row] = length = len(gains)
        observations[row, : length + 1] = np.clip(2.0 * (states + LIMITS) / (2.0 * LIMITS) - 1.0, -1.0, 1.0)
        rewards[row, :length] = gains
    env.close()
    held_out = np.arange(n) >= n_agents * records
    agents = np.where(held_out, np.arange(n) % n_agents, np.arange(n) // records)
    split = np.where(held_out, "test", "train")
    made_up = trajectory_rows(observations, rewards, lengths, terminal, "cartpole", agents.astype(np.int64), split)
    for values in (made_up.features, made_up.labels, made_up.agent, made_up.split):
        if values is not None:
            values.setflags(write=False)
    return replace(made_up, is_simulated=True)


def _episode(env: Any, coins: np.random.Generator, longest: int) -> tuple[FloatArray, FloatArray, bool]:
    """Return observations (T + 1, d) of the environment, rewards (T,), and whether the episode terminated."""
    observation, _ = env.reset(seed=int(coins.integers(2**31)))
    observations, terminal = [np.array(observation, dtype=np.float64)], False
    rewards: list[float] = []
    while len(rewards) < longest and not terminal:
        falls = int(observation[2] + 0.25 * observation[3] > 0.0)
        action = falls if coins.random() < 1.0 / 3.0 else int(coins.integers(2))
        observation, reward, terminal, _, _ = env.step(action)
        observations.append(np.array(observation, dtype=np.float64))
        rewards.append(float(reward))
    return np.stack(observations), np.array(rewards), bool(terminal)
