"""Plans of releases: the sensitivities of releases from the formulas of an algorithm and public numbers.

A release is a sum of public values and of clipped means over records, each times a public factor. One replaced record
changes a mean over N contributions clipped to C by at most 2C/N, times the slack κ of float64 summation. The
contributions of several means add up.

A gossip algorithm states, for every channel that it sends each round, the terms that one release carries, each with the
name of the step size (or of the number) that multiplies it, and its plan is derived (`Derived`):

    channels = ("x", "y")
    RELEASES = {"y": {"lower_grad_y": "learning_rate"}}

    def init(self, dataset, x, y): ...           x, y: initial values, (b, p) and (b, q)
    def step(self, t, dataset, s): ...           one `Gossip` (or `Ask`) a round

Limits: an algorithm that keeps a private state, or whose releases change from round to round, defines `releases` and
`planned_releases` itself, with `plan_release` and the related functions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.protocol import Algorithm, AnyAlgorithm, Channel, Planned, Public
from decentral_dp.bounded import CHANNELS, SPLITS, Array, Split, split_rounding
from decentral_dp.errors import InputError, quoted
from decentral_dp.exchange import Response
from decentral_dp.participants import Network
from decentral_dp.problems.protocol import CLIP_OF_TERM, READS_AS
from decentral_dp.problems.statistics import statistics_width
from decentral_dp.user_code import convert_failures


class Use(NamedTuple):
    """Clipped mean that enters R releases.

    Args:
        term: averaged term.
        factor: public factor in each release, (R,).
        t: round whose records are read, (R,).
    """

    term: str
    factor: Array
    t: NDArray[np.int64]


def plan_release(public: Public, index: NDArray[np.int64], uses: Sequence[Use], kept: bool = False) -> Planned:
    """Compute the sensitivity of each release as the sum of the sensitivities of its uses.

    Args:
        public: public numbers.
        index: indices of the releases, (R,).
        uses: clipped means in the releases.
        kept: whether a batch is used again after its first release, so that sampling gives no amplification.
    """
    shape = (index.size, public.neighbour_weight.size)
    sensitivity: dict[Split, Array] = {}
    rate: dict[Split, Array] = {}
    largest: dict[Split, Array] = {}
    coins, unit = public.sampling == "poisson", public.unit
    for split in SPLITS:
        reading_uses = [u for u in uses if _kind(public, u.term) == split]
        if not reading_uses:
            continue
        sensitivity[split], largest[split] = np.zeros(shape), np.zeros(shape)
        for use in reading_uses:
            step, reach = use_sensitivity(public, split, use)
            sensitivity[split] += step
            largest[split] += reach
        batch_rate = public.rate[split] if coins else unit.rate(public.rate[split])
        rate[split] = np.ones(shape) if kept else np.broadcast_to(batch_rate, shape)
    for split, bound in sensitivity.items():
        added = split_rounding(sum((v for k, v in largest.items() if k != split), np.zeros(shape)))
        bound += np.where(bound > 0.0, added, 0.0)
    total = sum(largest.values(), np.zeros(shape))
    return Planned(sensitivity, rate, total, index, unit.sampling if coins else public.sampling)


def plan_block(public: Public, index: NDArray[np.int64], term: str, t: NDArray[np.int64] | None = None) -> Planned:
    """Compute the sensitivities of releases of clipped sums of local steps (`LocalDataset.local_steps`).

    Args:
        public: public numbers.
        index: indices of the releases, (R,).
        term: term of the local steps.
        t: round of each block, (R,). The default, index − 1, is for one release per round.
    """
    split = _kind(public, term)
    if split is None:
        return free_release(public, index)
    rates = np.ones((index.size, public.neighbour_weight.size))
    bounds = public.clip.bounds(CLIP_OF_TERM[term], index - 1 if t is None else t)
    sensitivities = [public.unit.block_sensitivity(bound, _width(public, term)) for bound in bounds.tolist()]
    return Planned({split: np.array(sensitivities)[:, None] * rates}, {split: rates}, bounds[:, None] * rates, index)


def plan_tracker(public: Public, releases_per_round: int, first: int, begins: str, sensitivity_to: str) -> Planned:
    """Plan a tracker, which starts every round as one mean and adds another mean in each later release.

    Args:
        public: public numbers.
        releases_per_round: number of exchanges of a round.
        first: position of the first exchange of a round that sends the tracker. All later exchanges send it too.
        begins: averaged term at `first`.
        sensitivity_to: averaged term that is added afterwards.

    Limits:
        A term that reads no record is a function of released values. Its releases are not listed.
    """
    reads_records = [any(reads(public, (term,), split) for split in SPLITS) for term in (begins, sensitivity_to)]
    positions = range(first if reads_records[0] else first + 1, releases_per_round if reads_records[1] else first + 1)
    if not positions:
        return free_release(public, grid(public.rounds, releases_per_round, [first])[0])
    index, t = grid(public.rounds, releases_per_round, positions)
    begun = index % releases_per_round == first
    return plan_release(public, index, [Use(begins, 1.0 * begun, t), Use(sensitivity_to, 1.0 - begun, t)], kept=True)


def use_sensitivity(public: Public, split: Split, use: Use) -> tuple[Array, Array]:
    """Return the sensitivity of a use to one privacy unit, and the largest norm of the use, both (R, g)."""
    factor = np.abs(use.factor)[:, None]
    counts = public.averaged_counts[split]
    # If every round averages the same number of records, one row suffices.
    n = counts[:1] if counts.strides[0] == 0 else counts[use.t]
    # A factor of 0 gives 0, even without clipping.
    with np.errstate(invalid="ignore"):
        reach = np.where(factor == 0.0, 0.0, factor * public.clip.bounds(CLIP_OF_TERM[use.term], use.t)[:, None])
    reach = np.broadcast_to(reach, (len(use.t), n.shape[1])) * public.weights.get(split, 1.0)
    width = _width(public, use.term)
    if public.sampling == "poisson":
        rate = public.rate[split]
        return public.unit.sampled_sensitivity(reach, n, width, rate), reach / rate
    return public.unit.sensitivity(reach, n, width), reach


def reads(public: Public, terms: Sequence[str], split: Split) -> bool:
    """Return whether any of the terms reads records of this split."""
    return any(_kind(public, term) == split for term in terms)


def free_release(public: Public, index: NDArray[np.int64]) -> Planned:
    """Plan releases with these indices, (n,), that read no record."""
    return plan_release(public, index, ())


def fading(change: Array, keep: Array | float, growth: Array | float = 1.0) -> Array:
    """Bound the sensitivity of a noiseless state to one record if gradients are evaluated at released points.

        D_{t+1} = |keep_t| γ_t D_t + change_t,   D_0 = 0

    Args:
        change: sensitivity of the update of round t, (T, g).
        keep: kept part of the state: (T, g), (T, 1), (g,) or one number.
        growth: growth γ_t due to float64 rounding, (T, g) (see `memory_slack`). The default is 1, as in exact
            arithmetic.

    Returns:
        D_1, …, D_T, (T, g).

    Sensitivity:
        The norm is that of `change`. No Lipschitz constant is needed, since the point of evaluation does not depend on
        the record. See docs/proofs/03.

    Example:
        >>> fading(np.ones((3, 1)), keep=0.5)[:, 0].tolist(), fading(np.ones((3, 1)), keep=0.0)[:, 0].tolist()
        ([1.0, 1.5, 1.75], [1.0, 1.0, 1.0])
    """
    factor = np.broadcast_to(np.abs(np.asarray(keep, dtype=np.float64)) * growth, change.shape)
    out, state = np.empty(change.shape), np.zeros(change.shape[1:])
    for t, bound in enumerate(change):
        with np.errstate(invalid="ignore"):
            state = np.where(factor[t] == 0.0, 0.0, factor[t] * state) + bound
        out[t] = state
    return out


def lag(series: Array) -> Array:
    """Shift the series (T, …) by one step: 0, s_1, …, s_{T−1}."""
    return np.concatenate([np.zeros_like(series[:1]), series[:-1]])


def grid(rounds: int, releases_per_round: int, positions: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the index and round t of the exchanges at these positions of every round, in the order of release."""
    t = np.repeat(np.arange(rounds), len(positions))
    return t * releases_per_round + np.tile(np.asarray(positions, dtype=np.int64), rounds), t


def _kind(public: Public, term: str) -> Split | None:
    return public.reads_records.get(READS_AS.get(term, term))


def _width(public: Public, term: str) -> int:
    sizes: Mapping[str, int] = {
        "lower_hessian": public.q * public.q,
        "lower_hessian_product": public.q * public.p,
        "lower_jacobian": public.p * public.q,
        "statistics": statistics_width(public.q),
    }
    return sizes.get(term, public.p if CLIP_OF_TERM[term] == "x" else public.q)


@dataclass(frozen=True)
class Wrapper(AnyAlgorithm):
    """Wrapper around an algorithm, `program`, that starts from constants plus the problem's own start."""

    program: Any

    def __post_init__(self) -> None:
        """Check nothing, since fields of a wrapper are no options."""

    def init(self, context: Any) -> Any:
        return self.program.init(context, context.start("x", self.start), context.start("y", self.start))

    def step(self, t: int, context: Any, s: Any) -> Generator[Any, Response, Any]:
        running: Generator[Any, Response, Any] = self.program.step(t, context, s)
        return running


@dataclass(frozen=True)
class Derived(Algorithm, Protocol):
    """Gossip algorithm whose plan is derived from its `RELEASES`.

    Args:
        WIDTHS: number of coordinates of each channel, "p" or "q", by default the width of its first term.
        keeps_batches: whether a state keeps means of earlier minibatches, so that sampling gives no amplification.
    """

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]]
    WIDTHS: ClassVar[Mapping[str, int | str]] = {}

    @property
    def _author(self) -> Any:
        """Object with `RELEASES` and the factors that it names."""
        return self

    def _terms(self, channel: str) -> Mapping[str, str | float]:
        terms: Mapping[str, str | float] = self._author.RELEASES.get(channel, {})
        return terms

    def _sent_channels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.channels, *self._author.RELEASES)))

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        out = {}
        for channel in self._sent_channels():
            terms = tuple(self._terms(channel))
            family = channel if channel in CHANNELS else CLIP_OF_TERM[terms[0]] if terms else "y"
            width = getattr(self._author, "WIDTHS", {}).get(channel, "p" if family == "x" else "q")
            out[channel] = Channel(family, {"p": p, "q": q}.get(width, width), terms)
        return out

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Plan the releases. Release t + 1 contains the terms of round t, each multiplied by its factor.

        Only `channels` are released after the last round.
        """
        indices, kept = np.arange(1, public.rounds + 1), bool(getattr(self._author, "keeps_batches", False))
        out = {}
        for channel in self._sent_channels():
            terms = self._terms(channel)
            sent = indices if channel in self.channels else indices[:-1]
            factors = {term: self._series(factor, public.rounds)[: sent.size] for term, factor in terms.items()}
            uses = [Use(term, factor, sent - 1) for term, factor in factors.items()]
            # A channel that reads no record is published at the end; listed in RELEASES, it is sent in every round.
            free = indices if channel in self._author.RELEASES else indices[-1:]
            out[channel] = plan_release(public, sent, uses, kept) if uses else free_release(public, free)
        return out

    def _series(self, factor: str | float, rounds: int) -> Array:
        """Compute the factor of each round, (T,), from a number or the name of a step size or method of t."""
        factor_text = quoted(factor) if isinstance(factor, str) else repr(factor)
        place = f"algorithm.kind: the factor {factor_text} in RELEASES of {type(self._author).__name__}"
        fix = "use a step size, a number of at least 0, or the name of a field or of a method of t"
        with convert_failures(place, fix):
            value = getattr(self._author, factor) if isinstance(factor, str) else factor
            if hasattr(value, "series"):
                numbers = value.series(rounds)
            else:
                numbers = [value(t) if callable(value) else value for t in range(rounds)]
            out = np.array(list(numbers), dtype=np.float64).reshape(rounds)
        if not (np.isfinite(out) & (out >= 0.0)).all():
            raise InputError(f"{place} is negative or not finite in some round. Fix: {fix}.")
        return out


@dataclass(frozen=True)
class DeclaredGossip(Wrapper, Derived):
    """Custom gossip algorithm with a derived plan."""

    @property
    def _author(self) -> Any:
        return self.program

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(self.program.channels)

    @property
    def has_server(self) -> bool:
        return bool(getattr(self.program, "has_server", False))

    @property
    def conserves_mass(self) -> bool:
        return bool(getattr(self.program, "conserves_mass", False))

    def solution(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        solve = getattr(self.program, "solution", None)
        return {} if solve is None else dict(solve(values))

    @property
    def has_local_rounds(self) -> bool:
        return hasattr(self.program, "sends")

    def sends(self, t: int) -> bool:
        if not self.has_local_rounds:
            return True
        name = type(self.program).__name__
        with convert_failures(f"algorithm.kind: sends of {name}"):
            return bool(self.program.sends(t))

    def senders(self, network: Network) -> Iterator[Any] | None:
        choose = getattr(self.program, "senders", None)
        return None if choose is None else choose(network)


def stated_terms(algorithm: type) -> tuple[str, ...]:
    """Return the terms in `QUERIES` or `RELEASES` of a class."""
    if hasattr(algorithm, "QUERIES"):
        return tuple(getattr(algorithm, "QUERIES"))  # noqa: B009 # The class may have none.
    releases = getattr(algorithm, "RELEASES", {})
    return tuple(term for terms in releases.values() for term in terms)
