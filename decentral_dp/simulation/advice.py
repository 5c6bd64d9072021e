"""Diagnostics after a run: scores near a baseline, losses that increased or still decreased, clipped gradients.

All diagnostics are part of the non-private evaluation. Only the same run without noise, on public or synthetic records,
shows whether noise is the cause. A record is clipped on a channel if an unclipped term of the channel exceeds the clip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.gossip.adassp import AdaSsp
from decentral_dp.algorithms.gossip.centring import strip_centring
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.engines.protocol import Outcome
from decentral_dp.files.exports import Columns
from decentral_dp.privacy.clipping import Clip, row_norms
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem
from decentral_dp.problems.records import take
from decentral_dp.problems.training import Training
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.metrics import evenly_spaced
from decentral_dp.simulation.result import LossTrend, WeakScore
from decentral_dp.simulation.statistics import rate_at_least, rate_at_most
from decentral_dp.simulation.summary import baselines
from decentral_dp.user_code import USER_ERRORS

# A loss still decreases if the last fifth of the rounds has at least this share of the whole decrease.
_STILL_FALLING_SHARE = 0.08
# Evaluations that are needed to detect an increase, and a loss that still decreases.
_FEWEST_OF_A_RISE, _FEWEST = 3, 10
# A smaller gain in R² over the mean label counts as little.
_LEAST_R2_GAIN = 0.05
# A loss increased if the mean of its last fifth exceeds its start by more than this share of it.
_RISEN_SHARE = 0.1
_LOSSES = ("lower_loss", "upper_loss", "primal")
_ENDINGS = ("", "_unreleased")


def clipping(job: PlannedJob, outcome: Outcome) -> dict[str, Any]:
    """Return the clipped fraction of per-example gradients at the last values, for agents that send clipped steps."""
    if not job.sends_steps or job.scenario.privacy.guarantee != "certified" or not job.holds_records:
        return {}
    algorithm = strip_centring(job.algorithm)
    if isinstance(algorithm, AdaSsp) or (isinstance(algorithm, DpDsgd) and algorithm.local_steps):
        # Statistics are clipped, not gradients; or the steps of an agent together, not its records.
        return {}
    values = outcome.last_snapshot.published
    if not {"x", "y"} <= values.keys() or not all(np.isfinite(v).all() for v in values.values()):
        return {}
    try:
        shares = clipped_shares(job.problem, job.records, values, job.clip.at(job.rounds - 1))
    except USER_ERRORS:
        # A certified run must not end because of its records.
        return {}
    return {"clipped": shares}


def learning(
    job: PlannedJob, outcome: Outcome, metrics: Mapping[str, NDArray[Any]], ends: Mapping[str, float]
) -> dict[str, Any]:
    """Return diagnostics of a run that learned little, as fields of a result; none after divergence."""
    if outcome.last_snapshot.divergence is not None:
        return {}
    score = weak_score(ends, baselines(job), int(job.shards.test.size))
    signs = {"weak_score": score, "loss_trend": loss_trend(metrics, score is not None)}
    return {name: asdict(sign) for name, sign in signs.items() if sign is not None}


def weak_score(ends: Mapping[str, float], baseline_scores: Mapping[str, float], records: int) -> WeakScore | None:
    """Return the score if it does not exceed the score of a constant prediction.

    Args:
        ends: last metrics.
        baseline_scores: metric → value for the majority class or the mean label.
        records: number of held-out records.

    Example:
        >>> weak_score({"test_accuracy": 0.66}, {"test_accuracy": 0.65}, 100).baseline
        0.65
    """
    if not records:
        return None
    accuracy, r2 = _last_value(ends, "test_accuracy"), _last_value(ends, "test_r2")
    guess, area = baseline_scores.get("test_accuracy", math.nan), _last_value(ends, "test_auc")
    if math.isfinite(area):
        # The AUC replaces accuracy. A random score has the variance of Mann and Whitney's U.
        commonest = guess * records
        chance = 2.0 * math.sqrt((records + 1) / (12.0 * commonest * (records - commonest))) if 0 < guess < 1 else 0.0
        if not chance or area > 0.5 + chance:
            return None
        return WeakScore(name="test_auc", value=area, baseline=0.5, margin=chance)
    if math.isfinite(accuracy) and math.isfinite(guess):
        hits = round(accuracy * records)
        low, high = float(rate_at_least(hits, records, 0.025)), float(rate_at_most(hits, records, 0.025))
        if low <= guess:
            return WeakScore(name="test_accuracy", value=accuracy, baseline=guess, interval=(low, high))
    guess = baseline_scores.get("test_r2", math.nan)
    if r2 - guess < _LEAST_R2_GAIN:
        return WeakScore(name="test_r2", value=r2, baseline=guess, margin=_LEAST_R2_GAIN)
    return None


def loss_trend(metrics: Columns, learned_little: bool = False) -> LossTrend | None:
    """Return a loss that increased, or was still decreasing in the last fifth of the rounds.

    Args:
        metrics: table with columns round, agent, name, value.
        learned_little: whether the score equals the score of a constant prediction; an increase is reported only in
            this case.
    """
    agents, names = np.asarray(metrics["agent"]), np.asarray(metrics["name"])
    for ending, stem in itertools.product(_ENDINGS, _LOSSES):
        rows = np.flatnonzero((agents == "mean") & (names == stem + ending))
        rounds, values = (np.asarray(metrics[column], dtype=np.float64)[rows] for column in ("round", "value"))
        if values.size >= _FEWEST_OF_A_RISE and np.isfinite(values).all():
            break
    else:
        return None
    first, late, end = float(values[0]), (rounds > 0.6 * rounds[-1]), rounds > 0.8 * rounds[-1]
    last = float(values[end].mean())
    has_increased = learned_little and last > first + _RISEN_SHARE * abs(first)
    # Means over rounds, since noise moves single values.
    fell = float(values[late & ~end].mean()) - last if (late & ~end).any() else 0.0
    falls = values.size >= _FEWEST and fell > 0.0 and _STILL_FALLING_SHARE * (first - last) <= fell <= first - last
    return LossTrend(name=stem, first=first, last=last) if has_increased or falls else None


def _last_value(ends: Mapping[str, float], stem: str) -> float:
    return next((ends[stem + ending] for ending in _ENDINGS if stem + ending in ends), math.nan)


# Most records of each split, and most agents, that are tried.
MOST_RECORDS, _AGENTS = 32, 8


def clipped_shares(
    problem: Problem, records: Mapping[Split, Sequence[Any]], values: Mapping[str, Array], clip: Clip
) -> dict[str, float]:
    """Compute the clipped fraction of per-example gradients for a few evenly spaced records of a few agents.

    Args:
        problem: problem whose terms are clipped.
        records: split → records of each agent.
        values: channel → values (m, ·); without z, terms that need it are omitted.
        clip: norm and bounds of the clips.

    Returns:
        Channel → clipped fraction. Channels that have no clip or read no record are omitted. A part of a term that has
        a share of the clip counts as clipped if it exceeds this share.
    """
    m, is_clipped = len(values["x"]), dict[str, list[bool]]()
    agents = evenly_spaced(m, _AGENTS)
    needs_z = () if "z" in values else ("lower_hvp", "lower_jvp")
    clipped = [t for t in TERMS if math.isfinite(clip.bound(CLIP_OF_TERM[t])) and t not in needs_z]
    parts = problem.parts_of_clip if isinstance(problem, Training) else [(slice(None), 1.0)]
    for agent, split in itertools.product(agents, SPLITS):
        terms = [t for t in clipped if problem.reads_records.get(t) == split]
        if not terms:
            continue
        x, y = values["x"][agent], values["y"][agent]
        z = values["z"][agent] if "z" in values else np.zeros_like(y)
        shards = {s: records[s][agent] for s in SPLITS}
        for k in evenly_spaced(len(shards[split][0]), max(1, MOST_RECORDS // len(agents))):
            pair = {s: take(shards[s], slice(k, k + 1) if s == split else slice(0, 1)) for s in SPLITS}
            longest: dict[str, float] = {}
            with np.errstate(all="ignore"):
                unclipped = problem.terms(x, y, z, pair["train"], pair["validation"], Clip(clip.norm), terms)
                for term in terms:
                    channel, value = CLIP_OF_TERM[term], np.ravel(getattr(unclipped, term))
                    lengths = [float(row_norms(value[None, part], clip.norm)[0]) / share for part, share in parts]
                    longest[channel] = max(longest.get(channel, 0.0), *lengths)
            for channel, length in longest.items():
                is_clipped.setdefault(channel, []).append(not length <= clip.bound(channel) * (1.0 + 1e-9))
    return {channel: float(np.mean(cuts)) for channel, cuts in is_clipped.items()}
