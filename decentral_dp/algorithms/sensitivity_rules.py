"""From the formulas of an algorithm to the sensitivities of its releases, by public numbers alone.

A release is a sum of public values and of clipped means over records, each times a public factor. One replaced record
moves a mean over N records of contributions clipped to C by at most 2C/N, times the slack κ of float64 summation; what
several means contribute adds up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.protocol import Planned, Public
from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES


class Use(NamedTuple):
    """A clipped mean that enters releases: its term, its factor in each release, and the round of its records.

    factor, t: (R,), R the number of releases.
    """

    term: str
    factor: Array
    t: NDArray[np.int64]


def plan_release(public: Public, index: NDArray[np.int64], uses: Sequence[Use], kept: bool = False) -> Planned:
    """State the sensitivities of releases, each the sum of its uses.

    Args:
        public: what is known before the run.
        index: (R,) of the releases.
        uses: clipped means that enter them.
        kept: whether a batch outlives its first release, so that sampling amplifies nothing; default False.
    """
    shape = (index.size, public.neighbour_weight.size)
    sensitivity: dict[Split, Array] = {}
    rate: dict[Split, Array] = {}
    largest, coins, unit = np.zeros(shape), public.sampling == "poisson", public.unit
    for split in SPLITS:
        read = [u for u in uses if _kind(public, u.term) == split]
        if not read:
            continue
        bound = np.zeros(shape)
        for use in read:
            step, reach = use_sensitivity(public, split, use)
            bound += step
            largest = largest + reach
        sensitivity[split] = bound
        drawn = public.rate[split] if coins else unit.rate(public.rate[split])
        rate[split] = np.ones(shape) if kept else np.broadcast_to(drawn, shape)
    return Planned(sensitivity, rate, largest, index, unit.sampling if coins else public.sampling)


def plan_block(public: Public, index: NDArray[np.int64], term: str, t: NDArray[np.int64] | None = None) -> Planned:
    """State the sensitivities of releases that carry a clipped block of local steps each (`LocalDataset.local_steps`).

    Args:
        public: what is known before the run.
        index: (R,) of the releases.
        term: that the steps follow.
        t: (R,) the round of each block; default index − 1, of one release a round.
    """
    split = _kind(public, term)
    if split is None:
        return free_release(public, index)
    ones = np.ones((index.size, public.neighbour_weight.size))
    bounds = public.clip.bounds(CLIP_OF_TERM[term], index - 1 if t is None else t)
    moved = [public.unit.block_sensitivity(bound, _width(public, term)) for bound in bounds.tolist()]
    return Planned({split: np.array(moved)[:, None] * ones}, {split: ones}, bounds[:, None] * ones, index)


def plan_tracker(public: Public, releases_per_round: int, first: int, begins: str, sensitivity_to: str) -> Planned:
    """Plan a tracker: in every round it begins as one mean, and each later release moves it by another.

    Args:
        public: what is known before the run.
        releases_per_round: exchanges of a round.
        first: position from which on every exchange of a round sends it.
        begins: term of the mean that it is at `first`.
        sensitivity_to: term of the mean that moves it afterwards.

    Limits:
        Where a term reads no record its releases are functions of released values, and not listed.
    """
    read = [any(reads(public, (term,), split) for split in SPLITS) for term in (begins, sensitivity_to)]
    positions = range(first if read[0] else first + 1, releases_per_round if read[1] else first + 1)
    if not positions:
        return free_release(public, grid(public.rounds, releases_per_round, [first])[0])
    index, t = grid(public.rounds, releases_per_round, positions)
    begun = index % releases_per_round == first
    return plan_release(public, index, [Use(begins, 1.0 * begun, t), Use(sensitivity_to, 1.0 - begun, t)], kept=True)


def use_sensitivity(public: Public, split: Split, use: Use) -> tuple[Array, Array]:
    """How far a unit of this kind of records moves one use, and the use's largest norm: both (R, g)."""
    factor = np.abs(use.factor)[:, None]
    averaged = public.averaged_counts[split]
    # Where every round averages as many records, one row stands for all.
    n = averaged[:1] if averaged.strides[0] == 0 else averaged[use.t]
    # 0 for a factor of 0 even where nothing is clipped.
    with np.errstate(invalid="ignore"):
        reach = np.where(factor == 0.0, 0.0, factor * public.clip.bounds(CLIP_OF_TERM[use.term], use.t)[:, None])
    reach = np.broadcast_to(reach, (len(use.t), n.shape[1]))
    width = _width(public, use.term)
    if public.sampling == "poisson":
        rate = public.rate[split]
        return public.unit.sampled_sensitivity(reach, n, width, rate), reach / rate
    return public.unit.sensitivity(reach, n, width), reach


def reads(public: Public, terms: Sequence[str], split: Split) -> bool:
    """Whether any of the terms reads records of this kind."""
    return any(_kind(public, term) == split for term in terms)


def nothing_proven(public: Public, index: NDArray[np.int64], met: NDArray[np.bool_] | bool = True) -> Planned:
    """Releases of a private state that meets records unclipped; met: (R,) whether it has by then."""
    shape = (index.size, public.neighbour_weight.size)
    bound = np.where(np.broadcast_to(np.asarray(met).reshape(-1, 1), shape), np.inf, 0.0)
    ones = np.ones(shape)
    return Planned(dict.fromkeys(SPLITS, bound), dict.fromkeys(SPLITS, ones), ones * np.inf, index)


def free_release(public: Public, index: NDArray[np.int64]) -> Planned:
    """Plan releases that read no record. index: (n,) of the releases."""
    return plan_release(public, index, ())


def fading(change: Array, keep: Array | float, growth: Array | float = 1.0) -> Array:
    """Bound how far one record moves a value that is remembered un-noised, with gradients taken at released points.

        D_{t+1} = |keep_t| γ_t D_t + change_t,   D_0 = 0

    Args:
        change: (T, g) how far one record moves the update of round t.
        keep: the part that is remembered: (T, g), (T, 1), (g,) or one number.
        growth: γ_t, (T, g), 1 in exact arithmetic, what float64 adds (`memory_slack`); default 1.

    Returns:
        D_1, …, D_T, (T, g).

    Sensitivity:
        In the norm of `change`. No Lipschitz constant enters, since the point of evaluation does not depend on the
        record. See docs/proofs/03.

    Example:
        >>> fading(np.ones((3, 1)), keep=0.5)[:, 0].tolist(), fading(np.ones((3, 1)), keep=0.0)[:, 0].tolist()
        ([1.0, 1.5, 1.75], [1.0, 1.0, 1.0])
    """
    factor = np.broadcast_to(np.abs(np.asarray(keep, dtype=np.float64)) * growth, change.shape)
    out, now = np.empty(change.shape), np.zeros(change.shape[1:])
    for t, bound in enumerate(change):
        with np.errstate(invalid="ignore"):
            now = np.where(factor[t] == 0.0, 0.0, factor[t] * now) + bound
        out[t] = now
    return out


def lag(series: Array) -> Array:
    """The series (T, …) one step earlier: 0, s_1, …, s_{T−1}."""
    return np.concatenate([np.zeros_like(series[:1]), series[:-1]])


def grid(rounds: int, releases_per_round: int, positions: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(index, t) of the exchanges at these positions of every round t, in order of release."""
    t = np.repeat(np.arange(rounds), len(positions))
    return t * releases_per_round + np.tile(np.asarray(positions, dtype=np.int64), rounds), t


def _kind(public: Public, term: str) -> Split | None:
    return public.reads_records.get(MATRICES.get(term, term))


def _width(public: Public, term: str) -> int:
    sizes: Mapping[str, int] = {
        "lower_hessian": public.q * public.q,
        "lower_hessian_product": public.q * public.p,
        "lower_jacobian": public.p * public.q,
    }
    return sizes.get(term, public.p if CLIP_OF_TERM[term] == "x" else public.q)
