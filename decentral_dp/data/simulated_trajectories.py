"""Trajectories that are played: tasks of gymnasium, each with a fixed public policy.

Every trajectory is drawn from its own key of the public seed: replacing one changes no other. Observations are mapped
to [−1, 1] by declared constants of the environment, and cut there; nothing is fitted on them. What a record is, stands
in `trajectories`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import Dataset, FloatArray, public_generator
from decentral_dp.data.trajectories import trajectory_rows
from decentral_dp.errors import InputError


class Environment(NamedTuple):
    """A task of gymnasium.

    Args:
        name: its name in scenarios.
        low: (d,) declared limits of its observations.
        high: (d,) declared limits of its observations.
        act: (observation, coins) → action, the public policy.
        steps: L where the scenario gives none.
        records: per agent where the scenario gives none.
        test_records: where the scenario gives none.
        needs: packages to import.
        options: of `gymnasium.make`.
        seeded: whether it starts at random.
    """

    name: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    act: Callable[[NDArray[Any], np.random.Generator], int]
    steps: int
    records: int
    test_records: int
    needs: tuple[str, ...] = ("gymnasium",)
    options: Mapping[str, Any] = {}
    seeded: bool = True


def _lean(seen: NDArray[Any], coins: np.random.Generator) -> int:
    """With probability 1/3 push to where the pole falls, else to either side: it falls after some 40 steps."""
    falls = int(seen[2] + 0.25 * seen[3] > 0.0)
    return falls if coins.random() < 1.0 / 3.0 else int(coins.integers(2))


def _oscillation(seen: NDArray[Any], coins: np.random.Generator) -> int:
    """With probability 4/5 push along the second link's motion, else anyhow: it swings up after some 110 steps."""
    along = 2 if seen[5] > 0.0 else 0
    return along if coins.random() < 0.8 else int(coins.integers(3))


def _anyhow(seen: NDArray[Any], coins: np.random.Generator) -> int:
    """Stay, up or down, each with probability 1/3."""
    return (0, 2, 3)[int(coins.integers(3))]


_PI = float(np.pi)
ENVIRONMENTS: Mapping[str, Environment] = {
    # An episode ends beyond 2.4 and 12 degrees; speeds are unbounded, and hardly ever above 3.5.
    "cartpole": Environment(
        "CartPole-v1", (-2.4, -3.5, -_PI / 15, -3.5), (2.4, 3.5, _PI / 15, 3.5), _lean, 100, 100, 200
    ),
    "acrobot": Environment(
        "Acrobot-v1",
        (-1.0, -1.0, -1.0, -1.0, -4 * _PI, -9 * _PI),
        (1.0, 1.0, 1.0, 1.0, 4 * _PI, 9 * _PI),
        _oscillation,
        200,
        50,
        100,
    ),
    "pong": Environment(
        "ALE/Pong-v5",
        (0.0,) * 128,
        (255.0,) * 128,
        _anyhow,
        200,
        10,
        20,
        ("gymnasium", "ale_py"),
        {"obs_type": "ram", "frameskip": 4, "repeat_action_probability": 0.0},
        # Its seed would choose when an action is repeated, which never happens; and seeding takes long.
        False,
    ),
}

# How a package is called where it is installed from.
_INSTALLED = {"gymnasium": "gymnasium", "ale_py": "ale-py"}


def simulated(
    name: str,
    *,
    n_agents: int,
    seed: int,
    records: int | None = None,
    test_records: int | None = None,
    steps: int | None = None,
) -> Dataset:
    """Simulate trajectories of an environment.

    Args:
        name: of the environment.
        n_agents: their number.
        seed: public. Trajectory i of an agent depends on (seed, agent, i, steps) alone.
        records: of each agent; default the environment's.
        test_records: held out; default the environment's.
        steps: L, where episodes are cut off; default the environment's.

    Returns:
        Trajectories agent by agent, then the held-out ones; with `agent` and `split` columns.

    Raises:
        InputError: a wrong number, or gymnasium is missing.
    """
    return _played(name, n_agents, seed, records, test_records, steps)


# Of the same numbers the same episodes, whose steps take seconds: kept for the next run on them.
@lru_cache(maxsize=2)
def _played(
    name: str, n_agents: int, seed: int, records: int | None, test_records: int | None, steps: int | None
) -> Dataset:
    which = ENVIRONMENTS[name]
    usual = (("records", records, which.records, 1), ("test_records", test_records, which.test_records, 0))
    sizes = {key: default if given is None else given for key, given, default, _ in usual}
    for key, _, _, least in usual:
        if sizes[key] < least:
            raise InputError(
                f"problem.synthetic.{key}: got {sizes[key]}, but a whole number of at least {least} is wanted."
            )
    longest = which.steps if steps is None else steps
    if longest < 1:
        raise InputError(f"problem.synthetic.steps: got {longest}, but a whole number of at least 1 is wanted.")
    if n_agents < 1:
        raise InputError(f"topology.agents: got {n_agents}, but at least one agent is wanted.")
    made = _environment(name, which, longest)
    owners = [(agent, i) for agent in range(n_agents) for i in range(sizes["records"])]
    owners += [(n_agents, i) for i in range(sizes["test_records"])]
    d, n = len(which.low), len(owners)
    observations, rewards = np.zeros((n, longest + 1, d)), np.zeros((n, longest))
    lengths, terminal = np.zeros(n, dtype=np.int64), np.zeros(n)
    low, high = np.array(which.low), np.array(which.high)
    for row, (agent, i) in enumerate(owners):
        coins = public_generator(seed, f"{name} episode", agent, i)
        episode = _episode(made, which, coins, longest)
        lengths[row] = length = len(episode.rewards)
        observations[row, : length + 1] = np.clip(2.0 * (episode.observations - low) / (high - low) - 1.0, -1.0, 1.0)
        rewards[row, :length], terminal[row] = episode.rewards, episode.terminal
    made.close()
    held_out = np.arange(n) >= n_agents * sizes["records"]
    agents = np.where(held_out, np.arange(n) % n_agents, np.arange(n) // sizes["records"])
    split = np.where(held_out, "test", "train")
    made_up = trajectory_rows(observations, rewards, lengths, terminal, name, agents.astype(np.int64), split)
    for column in (made_up.features, made_up.labels, made_up.agent, made_up.split):
        if column is not None:
            column.setflags(write=False)
    return replace(made_up, made_up=True)


class _Episode(NamedTuple):
    """observations: (T + 1, d) as the environment gives them. rewards: (T,)."""

    observations: FloatArray
    rewards: FloatArray
    terminal: bool


def _environment(name: str, which: Environment, longest: int) -> Any:
    """The environment of gymnasium, quiet. Raises InputError where a package is missing."""
    found = {}
    for package in which.needs:
        try:
            found[package] = importlib.import_module(package)
        except ImportError as error:
            installed = _INSTALLED[package]
            raise InputError(
                f"problem.data: {name!r} is played by the package {installed}, which is not installed; pip install "
                f'{installed}, or give trajectories of your own in a .npz file with "observations", "rewards" and '
                '"lengths".'
            ) from error
    gymnasium = found["gymnasium"]
    if "ale_py" in found:
        ale = found["ale_py"]
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
        gymnasium.register_envs(ale)
    # Its checker warns of what is none of the user's business.
    return gymnasium.make(which.name, max_episode_steps=longest, disable_env_checker=True, **which.options)


def _episode(made: Any, which: Environment, coins: np.random.Generator, longest: int) -> _Episode:
    seen, _ = made.reset(seed=int(coins.integers(2**31))) if which.seeded else made.reset()
    observations, terminal = [np.array(seen, dtype=np.float64)], False
    rewards: list[float] = []
    while len(rewards) < longest and not terminal:
        seen, reward, terminal, _, _ = made.step(which.act(seen, coins))
        observations.append(np.array(seen, dtype=np.float64))
        rewards.append(float(reward))
    return _Episode(np.stack(observations), np.array(rewards), bool(terminal))
