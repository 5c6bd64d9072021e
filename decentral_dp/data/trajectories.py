"""Trajectories: records that are whole logged episodes, read from a file or played (`simulated_trajectories`).

A record is everything that one person did: observations s_0 … s_T in R^d, rewards r_0 … r_{T−1}, and whether s_T is
terminal, in which case its value is 0 (else the record was cut off there). T, the length, is from 1 to a public L. A
trajectory is one row of `Dataset.features`, whose label is T:

    s_0, …, s_L (the observations one after the other), r_0, …, r_{L−1}, terminal (0 or 1)

with zeros for what comes after T. `Dataset.trajectory` is (L, d).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, TextArray, as_agents, as_split
from decentral_dp.data.record_files import opened
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
    arrays = opened(path, where, (), (*_ARRAYS, "terminal", *columns), "X=..., y=...")
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
    observations = _numbers(arrays["observations"], 3, f"{where}, array 'observations'", "(trajectories, L + 1, d)")
    n, points, d = observations.shape
    if n < 1 or points < 2 or d < 1:
        raise InputError(
            f"{where}, array 'observations' has the shape {observations.shape}, but (trajectories, L + 1, d) with at "
            "least one trajectory, one step and one number each is wanted."
        )
    longest = points - 1
    rewards = _shaped(arrays["rewards"], (n, longest), f"{where}, array 'rewards'")
    lengths = _whole(_shaped(arrays["lengths"], (n,), f"{where}, array 'lengths'"), 1, longest, f"{where}, 'lengths'")
    terminal = np.zeros(n)
    if "terminal" in arrays:
        flags = _shaped(arrays["terminal"], (n,), f"{where}, array 'terminal'")
        terminal = _whole(flags, 0, 1, f"{where}, 'terminal'").astype(np.float64)
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
    return trajectory_rows(
        observations,
        rewards,
        lengths,
        terminal,
        str(path),
        None if agent is None else as_agents(_named(arrays, agent, n, where), f"{where}, array {agent!r}"),
        None if split is None else as_split(_named(arrays, split, n, where), f"{where}, array {split!r}"),
    )


def _numbers(values: NDArray[Any], axes: int, where: str, wanted: str) -> FloatArray:
    if values.ndim != axes or values.dtype.kind not in "biuf":
        raise InputError(
            f"{where} has the shape {values.shape} and the type {values.dtype}, but {wanted} real numbers are wanted."
        )
    return np.asarray(values, dtype=np.float64)


def _shaped(values: NDArray[Any], shape: tuple[int, ...], where: str) -> FloatArray:
    numbers = _numbers(values, len(shape), where, str(shape))
    if numbers.shape != shape:
        raise InputError(
            f"{where} has the shape {numbers.shape}, but {shape} is wanted, as 'observations' of (trajectories, L + 1, "
            "d) say."
        )
    return numbers


def _whole(values: FloatArray, least: int, most: int, where: str) -> IntArray:
    # Written so that what is not a number fails, too.
    wrong = ~((values >= least) & (values <= most) & (values == np.floor(values)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{where}, trajectory {row + 1} has no whole number from {least} to {most}; mend it, or leave the "
            "trajectory out."
        )
    return values.astype(np.int64)


def _named(arrays: Mapping[str, NDArray[Any]], name: str, n: int, where: str) -> NDArray[Any]:
    if name not in arrays:
        raise InputError(f"{where} has no array {name!r}; it has {', '.join(arrays)}.")
    values = arrays[name]
    if values.shape != (n,) or values.dtype.kind not in "biufSU":
        raise InputError(
            f"{where}, array {name!r} has the shape {values.shape}, but one entry per trajectory is wanted."
        )
    return values.astype(np.str_) if values.dtype.kind == "S" else values


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
