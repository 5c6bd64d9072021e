"""The runs of an audit's game: here, in processes of this machine, or as Ray tasks.

Every run has coins of its own, which follow from the audit's seed and the number of the run, so that it does not matter
where a run is made, nor in which order. Another process is told the scenario and the settings. It builds the job,
searches the two worlds and learns the score by itself, from the same seed.

How a run is scored: larger where the first of two worlds is likelier.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.adversaries.audit.likelihoods import log_ratio
from decentral_dp.adversaries.audit.loss_laws import (
    amplified,
    mixture_log_ratio,
    sampling_rates,
    separate,
    worst_worlds,
)
from decentral_dp.adversaries.audit.neighbours import Worlds
from decentral_dp.adversaries.audit.plan import AuditPlan, planned
from decentral_dp.adversaries.audit.transcripts import Transcript, observe, replay
from decentral_dp.bounded import Array
from decentral_dp.config.loading import load
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.tasks.outcomes import number
from decentral_dp.tasks.parallel import Workers, in_parallel

# Pairs of runs with common noise from which the direction of a projection is learnt.
_LEARNT = 16
# Runs on which it is tried whether likelihoods are known.
_PROBES = 4


@dataclass(frozen=True)
class Score:
    """of: a run's score. is_likelihood: whether it is the log-likelihood ratio of all that is seen."""

    of: Callable[[Transcript], float]
    is_likelihood: bool


def score_of(vantage: str, worlds: Worlds, roots: Callable[[int], bytes], lawful: bool) -> Score:
    """Choose the score for a vantage point.

    Args:
        vantage: "everybody", "published" or "agent:K", as of `audit`.
        worlds: the two neighbouring worlds.
        roots: number of a run → root of its coins, of the runs that the score may learn from.
        lawful: whether random choices have the law that they state.

    Returns:
        The log-likelihood ratio where it is known, else a projection learnt from these runs.
    """
    probes = [_probe(worlds, roots(k), k) for k in range(_PROBES)]
    if vantage == "everybody" and lawful and all(_replayed(worlds, probe) for probe in probes):
        if not amplified(worlds.first):
            return Score(partial(_ratio, worlds), True)
        rates = sampling_rates(worlds.first, worlds.victim, worlds.split)
        if rates is not None and all(separate(worlds, probe) for probe in probes):
            return Score(partial(mixture_log_ratio, worlds, rates=rates), True)
    return _projection(vantage, worlds, roots)


def _probe(worlds: Worlds, root: bytes, number: int) -> Transcript:
    world: Any = worlds.second if number % 2 else worlds.first
    return observe(world.keyed(root), worlds.victim)


def _replayed(worlds: Worlds, probe: Transcript) -> bool:
    """Whether a replay gives the law of everything that is said."""
    return probe.known and probe.said.keys() == replay(worlds.first, worlds.victim, probe).keys()


def _ratio(worlds: Worlds, transcript: Transcript) -> float:
    pair = [replay(world, worlds.victim, transcript) for world in (worlds.first, worlds.second)]
    return log_ratio(transcript, *pair)


def _projection(vantage: str, worlds: Worlds, roots: Callable[[int], bytes]) -> Score:
    """The inner product with the mean difference, learnt from runs of both worlds with common noise, over variances."""
    ours: list[Array] = []
    theirs: list[Array] = []
    for k in range(_LEARNT):
        for world, kept in ((worlds.first, ours), (worlds.second, theirs)):
            job: Any = world
            kept.append(seen(vantage, observe(job.keyed(roots(k)), worlds.victim), worlds))
    difference = np.mean(ours, axis=0) - np.mean(theirs, axis=0)
    variance = 0.5 * (np.var(ours, axis=0) + np.var(theirs, axis=0))
    # Of what never varies, any difference decides; of few runs a variance may be small by chance.
    floor = 0.1 * np.median(variance[variance > 0.0]) if (variance > 0.0).any() else 1.0
    direction = np.where(np.isfinite(difference), difference, 0.0) / np.maximum(variance, max(floor, 1e-300))
    centre = 0.5 * (np.mean(ours, axis=0) + np.mean(theirs, axis=0))

    def projected(transcript: Transcript) -> float:
        value = float(np.nansum(direction * (seen(vantage, transcript, worlds) - centre)))
        return value if np.isfinite(value) else 0.0

    return Score(projected, False)


def seen(vantage: str, transcript: Transcript, worlds: Worlds) -> Array:
    """All numbers that are seen from there, one after the other."""
    if vantage == "published":
        return transcript.published
    if vantage == "everybody":
        return _in_order(transcript.said)
    return _received(transcript, worlds, int(vantage.partition(":")[2]))


def _in_order(said: Mapping[Any, Array]) -> Array:
    return np.concatenate([v.ravel() for v in said.values()])


def _received(transcript: Transcript, worlds: Worlds, agent: int) -> Array:
    """The messages of the agent's neighbours; of an algorithm that asks a server, of everybody."""
    job: Any = worlds.first
    near: Sequence[int] = range(job.n_agents)
    if not job.central:
        row = job.topology.mixing.toarray()[agent] != 0.0
        row[agent] = False
        near = np.flatnonzero(row).tolist()
    return np.concatenate([np.concatenate(blocks)[list(near)].ravel() for blocks in transcript.messages])


# Runs of each world that a worker makes before it reports.
_BLOCK = 8
GROUPS = ("first", "second", "null")
Sizes = Mapping[str, tuple[int, float]]
"""Mechanism → how many numbers it noised, and the sum of their sizes."""


class Run(NamedTuple):
    """group: "first", "second" or "null". sizes: of the noise that was drawn."""

    group: str
    score: float
    sizes: Sizes


def read_runs(stored: Any) -> list[Run]:
    """Read the runs of one number as JSON has them; ValueError, TypeError or AttributeError where they are none."""
    runs = [
        Run(group, number(score), {str(name): (int(n), float(total)) for name, (n, total) in sizes.items()})
        for group, score, sizes in stored
    ]
    if tuple(run.group for run in runs) != GROUPS:
        raise ValueError("a run of some world is missing")
    return runs


def noise_sizes(residuals: Mapping[str, Array]) -> Sizes:
    """Measure the noise of one run.

    Args:
        residuals: mechanism's name → its noise in units of the scale.

    Returns:
        Mechanism's name → how many numbers, and the sum of their sizes: of Gaussian noise squares, else absolute
        values.
    """
    return {
        name: (values.size, float((values**2 if name == GAUSSIAN.name else np.abs(values)).sum()))
        for name, values in residuals.items()
        if name in (GAUSSIAN.name, LAPLACE.name) and np.isfinite(values).all()
    }


def summed(sizes: Iterable[Sizes]) -> list[tuple[str, int, float]]:
    """The noise of several runs, for `likelihoods.drawn_noise`."""
    sums: dict[str, tuple[int, float]] = {}
    for run in sizes:
        for name, (n, total) in run.items():
            before = sums.get(name, (0, 0.0))
            sums[name] = before[0] + n, before[1] + total
    return [(name, n, total) for name, (n, total) in sums.items()]


class Game(NamedTuple):
    """worlds: what is told apart. null: a world that is equal to the first. score: of a run."""

    plan: AuditPlan
    worlds: Worlds
    null: Job
    score: Score


def check_workers(plan: AuditPlan, workers: Workers) -> None:
    """Refuse what cannot be done by other processes, before anything is played.

    Raises:
        InputError: a job that no other process can build, canaries, or a Ray cluster without ray.
    """
    if workers.here:
        return
    workers.check()
    if plan.canaries is not None:
        raise InputError("audit: canaries are one single run, which is made here; leave --jobs and --address out.")
    if plan.source is None:
        raise InputError(
            "audit: a built job is audited in this process only, for another cannot build it again. Give a scenario "
            "whose components are in files, or leave jobs and address out."
        )


def game_of(plan: AuditPlan, worlds: Worlds, null: Job, lawful: bool) -> Game:
    """Choose the score of a game between two worlds.

    Args:
        plan: what is asked.
        worlds: the two.
        null: the world that is passed off as the first one.
        lawful: whether random choices have the law that they state.

    Returns:
        The game.
    """
    return Game(plan, worlds, null, score_of(plan.vantage, worlds, lambda k: plan.root("learn", k), lawful))


def runs_of(game: Game, numbers: Sequence[int]) -> list[Run]:
    """Make these runs of every world, number by number."""
    runs = []
    for k in numbers:
        for group, world in zip(GROUPS, (game.worlds.first, game.worlds.second, game.null), strict=True):
            job: Any = world
            transcript = observe(job.keyed(game.plan.root(group, k)), game.worlds.victim)
            sizes = noise_sizes(transcript.residuals) if game.score.is_likelihood else {}
            runs.append(Run(group, game.score.of(transcript), sizes))
    return runs


def made(
    game: Game, numbers: Sequence[int], workers: Workers, lawful: bool
) -> Generator[tuple[Sequence[int], list[list[Run]]], None, None]:
    """Make the runs with these numbers.

    Args:
        game: what is played.
        numbers: of the runs.
        workers: who makes them.
        lawful: as of `game_of`.

    Returns:
        Some numbers with the runs of each, in the order in which they are done.

    Raises:
        InputError: a worker that ended.
    """
    if workers.here:
        for k in numbers:
            yield [k], [runs_of(game, [k])]
        return
    blocks = [tuple(numbers[k : k + _BLOCK]) for k in range(0, len(numbers), _BLOCK)]
    work: Callable[[tuple[int, ...]], list[Run] | str] = partial(_elsewhere, _order(game.plan, lawful))
    with closing(in_parallel(work, blocks, _lost, workers)) as outcomes:
        for block, runs in outcomes:
            if isinstance(runs, str):
                raise InputError(f"audit: {runs}")
            yield block, [runs[k : k + len(GROUPS)] for k in range(0, len(runs), len(GROUPS))]


def _lost(reason: str) -> list[Run] | str:
    return f"{reason}. What was played before is kept, if --out names a file; start again."


def _order(plan: AuditPlan, lawful: bool) -> str:
    """What another process must know of a game, as a text that stands for it."""
    content, folder = plan.source if plan.source is not None else ({}, Path())
    settings = (plan.runs, plan.vantage, plan.confidence, plan.seed, plan.curve)
    return json.dumps([content, str(folder), settings, lawful], default=str)


def _elsewhere(order: str, numbers: tuple[int, ...]) -> list[Run] | str:
    return runs_of(_game_there(order), numbers)


@lru_cache(maxsize=1)
def _game_there(order: str) -> Game:
    """The same game, found again from the same seed."""
    content, folder, (runs, vantage, confidence, seed, curve), lawful = json.loads(order)
    plan = planned(load(content, folder=Path(folder)), runs, vantage, confidence, seed, curve=curve)
    worlds = worst_worlds(plan.job, plan.root("search", 0))
    return game_of(plan, worlds, worlds.first, lawful)
