"""An audit of PrivateDiff Minimax as published and with a private y, on a problem with a large difference.

    f(x, y; z) = K y sin x + z y − (μ/2) y²,     z ∈ [−1, 1]

All records are 0 except one, which is +1 or −1. This record determines the sign of y for any number of records, and the
sign of y determines the sign of every record's ∇_x f = K y cos x. If y has no noise and K is large, all clipped
gradients are C or all are −C, so the sensitivity is 2C and not 2C/n. Assumption 1 of the paper is the only condition of
its privacy theorem. It requires μ-strong concavity in y, which holds, and no bound on K.

The audit runs the algorithm with its noise. As published, the noise is that of Remark 5.1 for ε = 1 and R = 100 rounds,
and the attack observes x after the first round. With a private y, the attack is the likelihood ratio of the whole
transcript. The frequencies of its events give a lower bound on ε (Clopper & Pearson, 95 %).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Array, Norm
from decentral_dp.central.clients import MinimaxClientBlock
from decentral_dp.central.context import MinimaxContext
from decentral_dp.central.minimax.privatediff import PrivateDiff
from decentral_dp.central.problems.saddle import PublicBall, Scores
from decentral_dp.central.vocabulary import Coordinated
from decentral_dp.exchange import ClippedQuery, Released
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon, largest_mu
from decentral_dp.privacy.clipping import Clip, clip_factors, row_norms
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import mechanism_of
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.privacy.releasers import PlannedReleaser
from decentral_dp.simulation.statistics import rate_at_least, rate_at_most
from papers.findings import Check, Row, exactly, values
from papers.published.minimax import PublishedPrivateDiff
from papers.rounds import finish_round

PUBLISHED, SAMPLED, SOUND = "as published, all records", "as published, samples of 250", "with a private y"
PANEL, CERTIFIED, OF_Y = "lower bound on ε", "certified ε", "certified ε of y"
RECORDS, DELTA = 1000, 5e-4
# Claimed ε and rounds as published, and certified ε and rounds with a private y.
CLAIMED, ROUNDS = 1.0, 100
TARGETS, SOUND_ROUNDS = (1.0, 8.0), 2
_CONFIDENCE = 0.95
_FACTOR, _STRENGTH, _INNER, _STEP = 1e4, 1.0, 3, 1e-8


class Marks(NamedTuple):
    """Records z, (n,)."""

    z: Array


@dataclass(frozen=True)
class Swing:
    """The problem K y sin x + z y − (μ/2) y², whose last term reads no record."""

    p: int = 1
    q: int = 1

    @property
    def terms(self) -> Mapping[str, bool]:
        return {"grad_x": True, "grad_y": True}

    @property
    def start(self) -> Mapping[str, Array]:
        return {"x": np.zeros(1), "y": np.zeros(1)}

    def width(self, term: str) -> int:
        return 1

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Marks:
        return Marks(np.asarray(labels, dtype=np.float64))

    def project_x(self, x: Array) -> Array:
        return x

    def project_y(self, y: Array) -> Array:
        return np.clip(y, -1.0, 1.0)

    def public_ball(self, term: str, x: Array, y: Array) -> PublicBall | None:
        return None

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        return -_STRENGTH * y if term == "grad_y" else np.zeros(1)

    def _gradients(self, records: Marks, term: str, x: Array, y: Array) -> Array:
        if term == "grad_x":
            return np.full((records.z.size, 1), _FACTOR * float(y[0]) * math.cos(float(x[0])))
        return (_FACTOR * math.sin(float(x[0])) + records.z)[:, None]

    def sums(
        self, records: Marks, queries: Sequence[ClippedQuery], drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        out, counted = [], np.ones(records.z.size) if drawn is None else drawn.astype(np.float64)
        for asked in queries:
            rows = self._gradients(records, asked.term, asked.x, asked.y)
            if asked.earlier_point is not None:
                rows = rows - self._gradients(records, asked.term, *asked.earlier_point)
            out.append((counted * clip_factors(row_norms(rows, "l2"), asked.bound)) @ rows)
        return out

    def scores(self, x: Array, y: Array, train: Marks, test: Marks | None) -> Scores:
        return {}


class NoisyRelease(NamedTuple):
    """One release with its query and the scale of its noise."""

    asked: ClippedQuery
    released: float
    scale: float


class Audit(NamedTuple):
    """An algorithm with its context.

    Attributes:
        program: program of the coordinator.
        context: context of the coordinator.
        plan: ledger of the planned releases.
        seen: number of rounds to run.
        fixed: whether the plan contains the noise scales.
    """

    program: Coordinated
    context: MinimaxContext
    plan: Ledger
    seen: int
    fixed: bool

    def run(self, sign: float, root: bytes) -> tuple[float, list[NoisyRelease]]:
        """Run the algorithm with the record `sign`, and return the final x and the releases."""
        program, context = self.program, self.context
        releases: list[NoisyRelease] = []
        client_block = MinimaxClientBlock(
            np.zeros(1, dtype=np.int64), context.problem, [data_set(sign)], Streams(root, "coins", [0])
        )
        releaser, state, index, number = PlannedReleaser(self.plan, root, self.fixed), program.init(context), 0, 0
        asked: Mapping[str, ClippedQuery] = {}

        def ask(values: Mapping[str, ClippedQuery]) -> Any:
            nonlocal number, asked
            number, asked = number + 1, values
            return context.combine(number, asked, client_block.answer(number, asked))

        def release(values: Mapping[str, Any]) -> Released:
            nonlocal index
            index += 1
            reply = releaser.release(index, values)
            releases.extend(
                NoisyRelease(asked[c], float(reply.released[c][0, 0]), reply.scale[c]) for c in values if c in asked
            )
            return reply

        for t in range(self.seen):
            state = finish_round(program.step(t, context, state), ask, release)
        return float(program.published(state)["x"][0]), releases


def data_set(sign: float) -> Marks:
    """Return the records of one of the two neighbouring data sets.

    Args:
        sign: value +1 or −1 of the record that differs.
    """
    z = np.zeros(RECORDS)
    z[0] = sign
    return Marks(z)


def as_published(rate: float) -> Audit:
    """Build the audit of the published algorithm with the noise of Remark 5.1 for ε = 1.

    Args:
        rate: sampling rate; 1 means all records.
    """
    ascent = StepSize(1.0 / _STRENGTH, 1.0)
    program = PublishedPrivateDiff(StepSize(_STEP), 2, ascent, _INNER, 1.0, rate)
    program, context = program.resolve_defaults(_context(ROUNDS))
    charges = program.planned_releases(context, ROUNDS)
    lines = []
    for channel, noise in program.calibration(context, ROUNDS, CLAIMED, DELTA).items():
        charge = charges[channel]
        lines.append(_line(channel, charge.mechanism, charge.indices, noise.scale, noise.sensitivity["train"]))
    return Audit(program, context, Ledger(1, tuple(lines), program.releases_per_round), 1, True)


def certified_audit(epsilon: float) -> Audit:
    """Build the audit of the certified algorithm on all records, with the planned split of the budget.

    Args:
        epsilon: certified ε at `DELTA`.
    """
    program = PrivateDiff(StepSize(_STEP), 2, StepSize(1.0 / _STRENGTH, 1.0), _INNER, 1.0)
    program, context = program.resolve_defaults(_context(SOUND_ROUNDS))
    charges = program.planned_releases(context, SOUND_ROUNDS)
    whole = math.sqrt(sum(float((c.weight["train"] ** 2).sum()) for c in charges.values()))
    factor = largest_mu(epsilon, DELTA) / whole
    lines = [
        _line(name, "gaussian", c.indices, np.ones(c.indices.size), factor * c.weight["train"])
        for name, c in charges.items()
    ]
    return Audit(program, context, Ledger(1, tuple(lines), program.releases_per_round), SOUND_ROUNDS, False)


def _context(rounds: int) -> MinimaxContext:
    return MinimaxContext(Swing(), {"train": RECORDS, "validation": 0}, 1, Clip("l2", x=1.0, y=1.0), rounds)


def _line(channel: str, mechanism: str, indices: Any, scale: Array, sensitivity: Array) -> ChannelLedger:
    one = np.ones((indices.size, 1))
    group = np.zeros(1, dtype=np.int64)
    return ChannelLedger(
        channel,
        mechanism_of(mechanism),
        1,
        group,
        indices,
        scale[:, None],
        {"train": sensitivity[:, None]},
        {"train": one},
    )


def likelihood(releases: Sequence[NoisyRelease], problem: Swing) -> float:
    """Compute the log-likelihood ratio of +1 over −1 of a transcript on all records.

    Args:
        releases: releases of the transcript.
        problem: problem of the releases.
    """
    total = 0.0
    for release in releases:
        means = [float(problem.sums(data_set(s), [release.asked])[0][0]) / RECORDS for s in (1.0, -1.0)]
        if means[0] != means[1]:
            total += (release.released - 0.5 * (means[0] + means[1])) * (means[0] - means[1]) / release.scale**2
    return total


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    trials = {PUBLISHED: 1600, SAMPLED: 2800, SOUND: 400} if quick else {PUBLISHED: 6000, SAMPLED: 6000, SOUND: 3000}
    # The mean of the first release is C or −C, or 0 if the record was not sampled. Thresholds are halfway between.
    thresholds = {PUBLISHED: 0.0, SAMPLED: 0.5}
    # The batch of the remark, n√(ε/(8T)) with T = 2.
    batch = math.sqrt(CLAIMED / 16.0)
    rows = []
    for name, rate in ((PUBLISHED, 1.0), (SAMPLED, batch)):
        audit = as_published(rate)

        def first(sign: float, root: bytes, audit: Audit = audit) -> float:
            return -audit.run(sign, root)[0] / _STEP

        scores = _scores(first, f"{name} {seed}", trials[name])
        empirical = lower_bound(scores, [thresholds[name]])
        rows.append(Row(PANEL, name, "claimed or certified ε", CLAIMED, "ε", 0, empirical))
    for target in TARGETS:
        audit = certified_audit(target)

        def ratio(sign: float, root: bytes, audit: Audit = audit) -> float:
            return likelihood(audit.run(sign, root)[1], Swing())

        scores = _scores(ratio, f"{SOUND} {target} {seed}", trials[SOUND])
        cuts = np.quantile(scores[1], 1.0 - np.geomspace(0.01, 0.5, 12))
        empirical = max(0.0, lower_bound(scores, cuts.tolist()))
        rows.append(Row(PANEL, SOUND, "claimed or certified ε", target, "ε", 0, empirical))
        squares = {c.channel: float((c.sensitivity["train"] ** 2).sum()) for c in audit.plan.channels}
        for name, total in ((CERTIFIED, sum(squares.values())), (OF_Y, squares["gy"])):
            certified = float(gaussian_epsilon(math.sqrt(total), DELTA))
            rows.append(Row(PANEL, name, "claimed or certified ε", target, "ε", 0, certified))
    return rows


def _scores(score: Callable[[float, bytes], float], name: str, trials: int) -> tuple[Array, Array]:
    """Return scores of runs on each data set, with independent noise."""
    plus, minus = (
        np.array([score(sign, seeded_root(k, f"e14 {name} {sign}".encode())) for k in range(trials)])
        for sign in (1.0, -1.0)
    )
    return plus, minus


def lower_bound(scores: tuple[Array, Array], cuts: Sequence[float]) -> float:
    """Compute the largest lower bound on ε at δ from events {score > cut}, with confidence 0.95 for all cuts together.

    Args:
        scores: scores under each data set, (n,) each.
        cuts: thresholds.
    """
    tail = 0.5 * (1.0 - _CONFIDENCE) / len(cuts)
    best = -math.inf
    for cut in cuts:
        true_positives, false_positives = (int((s > cut).sum()) for s in scores)
        tpr = float(rate_at_least(true_positives, scores[0].size, tail))
        fpr = float(rate_at_most(false_positives, scores[1].size, tail))
        best = max(best, math.log((tpr - DELTA) / fpr) if tpr > DELTA else -math.inf)
    return best


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    published = {name: float(values(rows, PANEL, name)[0]) for name in (PUBLISHED, SAMPLED)}
    checks = [
        Check(f"{name}, claimed ε = {CLAIMED:g}: lower bound on ε", exactly(empirical), (6.0, math.inf))
        for name, empirical in published.items()
    ]
    for target in TARGETS:
        empirical, certified, of_y = (float(values(rows, PANEL, name, target)[0]) for name in (SOUND, CERTIFIED, OF_Y))
        statement = f"{SOUND}, ε = {target:g}: lower bound over certified ε"
        checks.append(Check(statement, exactly(empirical / certified), (0.0, 1.0)))
        # A small number of runs gives no positive lower bound on a small ε.
        window = (0.0 if target == TARGETS[0] else 0.1, 1.0)
        checks.append(Check(f"{statement} of the releases of y", exactly(empirical / of_y), window))
    return checks, [
        "As published, one release reveals the record: its two possible values change x by 26 standard deviations.",
        "As published, the lower bound grows with the logarithm of the number of runs, without a limit.",
        "With a private y, the record affects x only through the releases of y, with their share of the budget.",
    ]
