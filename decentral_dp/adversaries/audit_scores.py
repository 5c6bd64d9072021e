"""How a run is scored: larger where the first of two worlds is likelier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from decentral_dp.adversaries.likelihoods import log_ratio
from decentral_dp.adversaries.neighbouring_worlds import Worlds
from decentral_dp.adversaries.sampled_releases import amplified, mixture_log_ratio, sampling_rates, separate
from decentral_dp.adversaries.transcripts import Transcript, observe, replay
from decentral_dp.bounded import Array

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
