"""Advice after a run: it learned little, or clips cut many records.

Which share of records a clip cuts, at the values where a run ended: in the simulator's view, from private data.

A record is cut on a channel where a term that feeds it, unclipped, is longer than the clip. A clip that cuts nearly all
leaves of every record its direction alone, which is what happens to features that were never scaled.

Whether a run learned little, and what to change: from its metrics, so in the simulator's view.

Three signs:

    score   the interval of the test accuracy holds that of always the commonest class, or R² is next to that of always
            the mean label, or below it
    loss    it still fell in the last rounds, so that steps were too short or rounds too few
    rise    a loss ended above its start, so that steps were too long for it, or for the noise

None says whether noise is the cause. That is known only of the same run without noise, on public or made-up records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.gossip.single_level import DpDsgd
from decentral_dp.bounded import SPLITS, Array, Norm, Split
from decentral_dp.engines.protocol import Outcome
from decentral_dp.files.parquet import Columns
from decentral_dp.privacy.clipping import Clip, row_norms
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem
from decentral_dp.problems.records import take
from decentral_dp.problems.training.problem import Training
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.metrics import evenly_spaced
from decentral_dp.simulation.statistics import rate_at_least, rate_at_most
from decentral_dp.simulation.summary import baselines
from decentral_dp.user_code import USER_ERRORS

# A loss still falls where the last fifth of the rounds has at least this share of the whole fall.
_STILL_FALLING_SHARE = 0.08
# Evaluations below which nothing is said of the course of a loss.
_FEWEST = 10
_FEWEST_OF_A_RISE = 3
# R² less that of always the mean label, up to which little is explained.
_LEAST_R2_GAIN = 0.05
# A loss rose where the mean of its last fifth is above its start by more than this share of it.
_RISEN_SHARE = 0.1
_LOSSES = ("lower_loss", "train_loss", "upper_loss", "primal")
_ENDINGS = ("", "_unreleased")


def clipping(job: PlannedJob, outcome: Outcome) -> dict[str, Any]:
    """Which records a clip cuts at the last values; of agents that send clipped steps."""
    if not job.sends_steps or job.scenario.privacy.guarantee != "certified" or job.shards.is_elsewhere:
        return {}
    if isinstance(job.algorithm, DpDsgd) and job.algorithm.block:
        # What is clipped is all steps of an agent together, and no record.
        return {}
    values, table = outcome.last_snapshot.published, job.scenario.problem
    if not {"x", "y"} <= values.keys() or not all(np.isfinite(v).all() for v in values.values()):
        return {}
    try:
        shares = clipped_shares(job.problem, job.records, values, job.clip.at(job.rounds - 1))
    except USER_ERRORS:
        # No certified run ends because of what its records are.
        return {}
    return {"clipped": shares, "clip_advice": clip_advice(shares, table.scale != "none" or table.normalise != "none")}


def learning(
    job: PlannedJob, outcome: Outcome, metrics: Mapping[str, NDArray[Any]], ends: Mapping[str, float]
) -> list[str]:
    """What says that the run learned little, and what to change; empty where nothing does, and after divergence."""
    if outcome.last_snapshot.divergence is not None:
        return []
    score = score_sentence(ends, baselines(job), int(job.shards.test.size))
    step = "algorithm.y.scale" if job.sends_steps else "the steps"
    if job.components.one_level:
        metrics = {**metrics, "name": np.where(metrics["name"] == "lower_loss", "train_loss", metrics["name"])}
    rising = rise_sentence(metrics, step) if score else ""
    return [text for text in (score, loss_sentence(metrics, step), rising) if text]


def score_sentence(ends: Mapping[str, float], known: Mapping[str, float], records: int) -> str:
    """Say that the score is next to that of a guess; "" where it is not, or where nothing is known.

    Args:
        ends: last metrics.
        known: metric → its value for who always guesses the same.
        records: that were held out.

    Example:
        >>> score_sentence({"test_accuracy": 0.66}, {"test_accuracy": 0.65}, 100)[:44]
        'The run learned little: the test accuracy of'
    """
    if not records:
        return ""
    accuracy, explained = _last_value(ends, "test_accuracy"), _last_value(ends, "test_r2")
    guess, area = known.get("test_accuracy", math.nan), _last_value(ends, "test_auc")
    if math.isfinite(area):
        # Where classes are ranked, accuracy is no measure. Of a guess the variance is that of Mann and Whitney's U.
        commonest = guess * records
        chance = 2.0 * math.sqrt((records + 1) / (12.0 * commonest * (records - commonest))) if 0 < guess < 1 else 0.0
        if not chance or area > 0.5 + chance:
            return ""
        return (
            f"The run learned little: the test AUC of {area:.3f} over {records} held-out records is not above 0.5, "
            f"that of a guess, by more than chance explains ({chance:.2g})."
        )
    if math.isfinite(accuracy) and math.isfinite(guess):
        hits = round(accuracy * records)
        low, high = float(rate_at_least(hits, records, 0.025)), float(rate_at_most(hits, records, 0.025))
        if low <= guess:
            return (
                f"The run learned little: the test accuracy of {accuracy:.3f} (95 % interval {low:.3f} to {high:.3f} "
                f"over {records} held-out records) is not above {guess:.3f}, that of always the commonest class."
            )
    guess = known.get("test_r2", math.nan)
    if math.isfinite(explained) and math.isfinite(guess) and explained - guess < _LEAST_R2_GAIN:
        place = "next to" if explained - guess > -_LEAST_R2_GAIN else "below"
        return (
            f"The run learned little: its R² of {_decimals(explained)} on held-out records is {place} "
            f"{_decimals(guess)}, that of always the mean label."
        )
    return ""


def loss_sentence(metrics: Columns, steps: str) -> str:
    """Say that a loss still fell in the last fifth of the rounds; "" where it did not.

    Args:
        metrics: columns round, agent, name, value.
        steps: the key of the step to enlarge.
    """
    name, rounds, values = _loss_curve(metrics, _FEWEST)
    if not values.size:
        return ""
    end = rounds[-1]
    last, before = values[rounds > 0.8 * end], values[(rounds > 0.6 * end) & (rounds <= 0.8 * end)]
    whole = float(values[0] - last.mean())
    # Means over rounds, for under noise two single values may differ by chance.
    fell = float(before.mean() - last.mean()) if before.size else 0.0
    if _STILL_FALLING_SHARE * whole <= fell <= whole and fell > 0.0:
        return (
            f"The {name} still fell in the last rounds: {fell:.2g} of {whole:.2g} came in the last fifth. Enlarge "
            f"{steps} or algorithm.rounds."
        )
    return ""


def rise_sentence(metrics: Columns, steps: str) -> str:
    """Say that a loss ended above its start; "" where it did not.

    Args:
        metrics: columns round, agent, name, value.
        steps: the key of the step to make smaller.
    """
    name, rounds, values = _loss_curve(metrics, _FEWEST_OF_A_RISE)
    if not values.size:
        return ""
    last = float(values[rounds > 0.8 * rounds[-1]].mean())
    if last <= values[0] + _RISEN_SHARE * abs(values[0]):
        return ""
    return (
        f"The {name} rose, from {values[0]:.2g} to {last:.2g}: steps were too long, for the loss or for this noise. "
        f"Make {steps} smaller."
    )


def _loss_curve(metrics: Columns, fewest: int) -> tuple[str, Array, Array]:
    """The first loss that was measured often enough: its name in words, the rounds, and its mean at each."""
    agents, names = np.asarray(metrics["agent"]), np.asarray(metrics["name"])
    for name in (stem + ending for ending in _ENDINGS for stem in _LOSSES):
        rows = np.flatnonzero((agents == "mean") & (names == name))
        rounds, values = (np.asarray(metrics[column], dtype=np.float64)[rows] for column in ("round", "value"))
        if values.size >= fewest and np.isfinite(values).all():
            return name.replace("_", " ").replace(" unreleased", ""), rounds, values
    return "", np.empty(0), np.empty(0)


def _decimals(value: float) -> str:
    """Two decimals, and no 0 with a sign; fewer of what is large."""
    return f"{value:.3g}" if abs(value) >= 10.0 else f"{round(value, 2) + 0.0:.2f}"


def _last_value(ends: Mapping[str, float], stem: str) -> float:
    return next((ends[stem + ending] for ending in _ENDINGS if stem + ending in ends), math.nan)


# Records of each kind that are tried, of so many agents.
MOST_RECORDS, _AGENTS = 32, 8
# From this share on a sentence says how to mend it: of records that were scaled, and of others.
_NEARLY_ALL, _MANY = 0.9, 0.25


def clipped_shares(
    problem: Problem, records: Mapping[Split, Sequence[Any]], values: Mapping[str, Array], clip: Clip
) -> dict[str, float]:
    """Try a few records of a few agents, evenly spaced.

    Args:
        problem: whose terms are clipped.
        records: kind → those of each agent.
        values: channel → (m, ·); without z, terms that need it are left out.
        clip: what cuts.

    Returns:
        Channel → share of the tried records that are cut there; channels without a clip, or that read no record, are
        left out.
    """
    m = len(values["x"])
    agents = evenly_spaced(m, _AGENTS)
    cut: dict[str, list[bool]] = {}
    for agent in agents:
        own = {channel: rows[agent] for channel, rows in values.items()}
        for split in SPLITS:
            wanted = [t for t in TERMS if problem.reads_records.get(t) == split and _is_cut(t, clip, "z" in values)]
            if not wanted:
                continue
            shards = {s: records[s][agent] for s in SPLITS}
            for k in evenly_spaced(len(shards[split][0]), max(1, MOST_RECORDS // len(agents))):
                pair = {s: take(shards[s], slice(k, k + 1) if s == split else slice(0, 1)) for s in SPLITS}
                for channel, length in _lengths(problem, own, pair, clip.norm, wanted).items():
                    cut.setdefault(channel, []).append(not length <= clip.bound(channel) * (1.0 + 1e-9))
    return {channel: float(np.mean(cuts)) for channel, cuts in cut.items()}


def _lengths(
    problem: Problem, values: Mapping[str, Array], records: Mapping[Split, Any], norm: Norm, names: Sequence[str]
) -> dict[str, float]:
    """Channel → norm of the longest unclipped term that feeds it; of parts with a share of the clip, over this share.

    records: one of each kind.
    """
    x, y = values["x"], values["y"]
    z = values.get("z", np.zeros_like(y))
    longest: dict[str, float] = {}
    with np.errstate(all="ignore"):
        terms = problem.terms(x, y, z, records["train"], records["validation"], Clip(norm), names)
        for term in names:
            channel, value = CLIP_OF_TERM[term], np.ravel(getattr(terms, term))
            parts = problem.parts_of_clip if isinstance(problem, Training) else [(slice(None), 1.0)]
            lengths = [float(row_norms(value[None, part], norm)[0]) / share for part, share in parts]
            longest[channel] = max(longest.get(channel, 0.0), *lengths)
    return longest


def _is_cut(term: str, clip: Clip, has_z: bool) -> bool:
    return math.isfinite(clip.bound(CLIP_OF_TERM[term])) and (has_z or term not in ("lower_hvp", "lower_jvp"))


def clip_advice(shares: Mapping[str, float], scaled: bool) -> list[str]:
    """Say which clips cut nearly every record, and what mends it.

    Args:
        shares: of `clipped_shares`.
        scaled: whether the features were scaled or normalised.
    """
    tight = [channel for channel, share in shares.items() if share >= (_NEARLY_ALL if scaled else _MANY)]
    if not tight:
        return []
    named = ", ".join(tight)
    if not scaled:
        return [
            f"The features are neither scaled nor normalised, and the clips of {named} cut many records to their "
            'direction alone: set problem.scale and problem.normalise, for example problem.normalise = "l2".'
        ]
    return [
        f"The clips of {named} cut nearly every record to its direction alone. A larger privacy.clip.{tight[0]} keeps "
        "more of it, with more noise at the same ε."
    ]
