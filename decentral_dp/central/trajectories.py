"""Trajectories: records that are whole logged episodes, read from a file or played.

A record is everything that one person did: observations s_0 … s_T in R^d, rewards r_0 … r_{T−1}, and whether s_T is
terminal, in which case its value is 0 (else the record was cut off there). T, the length, is from 1 to a public L. A
trajectory is one row of `Dataset.features`, whose label is T:

    s_0, …, s_L (the observations one after the other), r_0, …, r_{L−1}, terminal (0 or 1)

with zeros for what comes after T. `Dataset.trajectory` is (L, d).

CartPole-v1 of gymnasium is played with a fixed public policy. Every played trajectory is drawn from its own key of the
public seed: replacing one changes no other. Observations are mapped to [−1, 1] by declared constants of the
environment, and cut there; nothing is fitted on them.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, TextArray, as_agents, as_split, public_generator
from decentral_dp.data.tables import column, read_archive, real_numbers
from decentral_dp.errors import InputError

_ARRAYS = ("observations", "rewards", "lengths")


def read_trajectories(path: Path, agent: str | None = None, split: str | None = None) -> Dataset | None:
    """Read trajectories of an NPZ archive.

    The archive has observations (n, L+1, d), rewards (n, L), lengths (n,), and optionally terminal (n,), the owner and
    the split of each. What stands after a trajectory's end is not read.

    Args:
        path: the archive.
        agent: name of the array of owners; None: "agent" where the archive has it.
        split: name of the array of splits; None: "split" where the archive has it.

    Returns:
        The trajectories, or None where the archive has no array "observations" and holds other records.

    Raises:
        InputError: a wrong value; names the array, the trajectory (from 1), the step (from 0).
    """
    where = f"problem.data: {str(path)!r}"
    columns = (agent or "agent", split or "split")
    arrays = read_archive(path, where, (), (*_ARRAYS, "terminal", *columns), "X=..., y=...")
    if "observations" not in arrays:
        return None
    for name in _ARRAYS:
        if name not in arrays:
            raise InputError(
                f"{where} has trajectories, but no array {name!r}; trajectories need {', '.join(_ARRAYS)}."
            )
    agent, split = (
        given or (name if name in arrays else None) for given, name in zip((agent, split), columns, strict=True)
    )
    observations = real_numbers(arrays["observations"], 3, f"{where}, array 'observations'", "(trajectories, L + 1, d)")
    n, points, d = observations.shape
    if n < 1 or points < 2 or d < 1:
        raise InputError(
            f"{where}, array 'observations' has the shape {observations.shape}, but (trajectories, L + 1, d) with at "
            "least one trajectory, one step and one number each is wanted."
        )
    longest = points - 1
    rewards = _array_of_shape(arrays["rewards"], (n, longest), f"{where}, array 'rewards'")
    lengths = _whole_numbers(
        _array_of_shape(arrays["lengths"], (n,), f"{where}, array 'lengths'"), 1, longest, f"{where}, 'lengths'"
    )
    terminal = np.zeros(n)
    if "terminal" in arrays:
        flags = _array_of_shape(arrays["terminal"], (n,), f"{where}, array 'terminal'")
        terminal = _whole_numbers(flags, 0, 1, f"{where}, 'terminal'").astype(np.float64)
    observations, rewards = observations.copy(), rewards.copy()
    for name, values, ends in (("observations", observations, lengths + 1), ("rewards", rewards, lengths)):
        values[np.arange(values.shape[1]) >= ends[:, None]] = 0.0
        wrong = ~np.isfinite(values).reshape(n, values.shape[1], -1).all(axis=2)
        if wrong.any():
            row, step = np.argwhere(wrong)[0]
            raise InputError(
                f"{where}, array {name!r}, trajectory {row + 1}, step {step} has no finite numbers, but these are "
                "wanted; mend the step, or leave the trajectory out."
            )
    for name in filter(None, (agent, split)):
        if name not in arrays:
            raise InputError(f"{where} has no array {name!r}; it has {', '.join(arrays)}.")
        arrays[name] = column(arrays[name], n, f"{where}, array {name!r}")
    return trajectory_rows(
        observations,
        rewards,
        lengths,
        terminal,
        str(path),
        None if agent is None else as_agents(arrays[agent], f"{where}, array {agent!r}"),
        None if split is None else as_split(arrays[split], f"{where}, array {split!r}"),
    )


def _array_of_shape(values: NDArray[Any], shape: tuple[int, ...], where: str) -> FloatArray:
    numbers = real_numbers(values, len(shape), where, str(shape))
    if numbers.shape != shape:
        raise InputError(
            f"{where} has the shape {numbers.shape}, but {shape} is wanted, as 'observations' of (trajectories, L + 1, "
            "d) say."
        )
    return numbers


def _whole_numbers(values: FloatArray, least: int, most: int, where: str) -> IntArray:
    # Written so that what is not a number fails, too.
    wrong = ~((values >= least) & (values <= most) & (values == np.floor(values)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{where}, trajectory {row + 1} has no whole number from {least} to {most}; mend it, or leave the "
            "trajectory out."
        )
    return values.astype(np.int64)


def trajectory_rows(
    observations: FloatArray,
    rewards: FloatArray,
    lengths: IntArray,
    terminal: FloatArray,
    source: str,
    agent: IntArray | None,
    split: TextArray | None,
) -> Dataset:
    """Lay trajectories out as rows.

    Args:
        observations: (n, L + 1, d), zero after each one's end.
        rewards: (n, L), likewise.
        lengths: (n,) from 1 to L.
        terminal: (n,) of 0 and 1, whether the last observation ends its episode.
        source: as of `Dataset`, like agent and split.
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


# Limits of observations: an episode ends beyond 2.4 and 12 degrees; speeds are unbounded, and hardly ever above 3.5.
LIMITS = np.array([2.4, 3.5, np.pi / 15, 3.5])


# Of the same numbers the same episodes, whose steps take seconds: kept for the next run on them.
@lru_cache(maxsize=2)
def simulate(*, n_agents: int, seed: int, records: int = 100, test_records: int = 200, steps: int = 100) -> Dataset:
    """Simulate CartPole-v1 of gymnasium, played by a fixed public policy.

    With probability 1/3 it pushes to where the pole falls, else to either side: the pole falls after some 40 steps.

    Args:
        n_agents: their number.
        seed: public. Trajectory i of an agent depends on (seed, agent, i, steps) alone.
        records: of each agent.
        test_records: held out.
        steps: L, where episodes are cut off.

    Returns:
        Trajectories agent by agent, then the held-out ones; with `agent` and `split` columns.

    Raises:
        InputError: gymnasium is missing.
    """
    try:
        gymnasium = importlib.import_module("gymnasium")
    except ImportError as error:
        raise InputError(
            "problem.data: 'cartpole' is played by the package gymnasium, which is not installed. Fix: pip install "
            'gymnasium, or give trajectories of your own in a .npz file with "observations", "rewards" and "lengths".'
        ) from error
    # Its checker warns of what is none of the user's business.
    made = gymnasium.make("CartPole-v1", max_episode_steps=steps, disable_env_checker=True)
    owners = [(agent, i) for agent in range(n_agents) for i in range(records)]
    owners += [(n_agents, i) for i in range(test_records)]
    d, n = LIMITS.size, len(owners)
    observations, rewards = np.zeros((n, steps + 1, d)), np.zeros((n, steps))
    lengths, terminal = np.zeros(n, dtype=np.int64), np.zeros(n)
    for row, (agent, i) in enumerate(owners):
        coins = public_generator(seed, "cartpole episode", agent, i)
        seen, gained, terminal[row] = _episode(made, coins, steps)
        lengths[row] = length = len(gained)
        observations[row, : length + 1] = np.clip(2.0 * (seen + LIMITS) / (2.0 * LIMITS) - 1.0, -1.0, 1.0)
        rewards[row, :length] = gained
    made.close()
    held_out = np.arange(n) >= n_agents * records
    agents = np.where(held_out, np.arange(n) % n_agents, np.arange(n) // records)
    split = np.where(held_out, "test", "train")
    made_up = trajectory_rows(observations, rewards, lengths, terminal, "cartpole", agents.astype(np.int64), split)
    for values in (made_up.features, made_up.labels, made_up.agent, made_up.split):
        if values is not None:
            values.setflags(write=False)
    return replace(made_up, is_simulated=True)


def _episode(made: Any, coins: np.random.Generator, longest: int) -> tuple[FloatArray, FloatArray, bool]:
    """Observations (T + 1, d) as the environment gives them, rewards (T,), and whether it ended by itself."""
    observation, _ = made.reset(seed=int(coins.integers(2**31)))
    observations, terminal = [np.array(observation, dtype=np.float64)], False
    rewards: list[float] = []
    while len(rewards) < longest and not terminal:
        falls = int(observation[2] + 0.25 * observation[3] > 0.0)
        action = falls if coins.random() < 1.0 / 3.0 else int(coins.integers(2))
        observation, reward, terminal, _, _ = made.step(action)
        observations.append(np.array(observation, dtype=np.float64))
        rewards.append(float(reward))
    return np.stack(observations), np.array(rewards), bool(terminal)
