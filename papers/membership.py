"""Reported AUCs of membership inference compared with the bound of the claimed ε, and an explanation of the AUCs.

Xu et al. 2025, Table 2, attacks models trained on 25 500 images of CIFAR-10, with 100 images of each of the classes 0
to 4 and all images of classes 5 to 9, at claimed ε of 0.1 to 10 and δ = n^(−1.1). If members and non-members have the
same distribution, (ε, δ)-DP bounds the AUC by (e^ε + δ)/(1 + e^ε). Otherwise an attack can use the difference of the
distributions. 98 % of the members are in classes 5 to 9, so a score that reads only the class has an AUC of 0.740
against non-members of all ten classes, and of 0.990 against non-members of classes 0 to 4. The published code takes
its non-members from the removed images. `shifted` is the bound for this case.

The experiment on 1797 digits trains linear softmax regression by full-batch gradient descent with clipping and noise
for (ε, δ). The attacks score a record by minus its loss, as in the code, or by the model's confidence, as in the paper.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from decentral_dp.auditing.membership import within_run
from decentral_dp.bounded import Array
from decentral_dp.data import load_dataset
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import IntArray
from decentral_dp.problems.bilevel.linear import SoftmaxHyperparameter, class_shares
from decentral_dp.problems.class_measures import auc
from decentral_dp.problems.records import take
from decentral_dp.simulation.statistics import Interval, over_seeds
from papers.draws import generator, mu_of, noised
from papers.findings import Check, Row, values

# Claimed ε → mean and standard deviation of the AUC over five runs.
CLAIMED = (0.1, 1.0, 3.0, 5.0, 8.0, 10.0)
DOUBLE, RECURSIVE = "Double-SPIDER", "Recursive-SPIDER"
REPORTED = {
    DOUBLE: (
        (0.9719, 0.0059), (0.9723, 0.0045), (0.9717, 0.0025), (0.9723, 0.0021), (0.9724, 0.0033), (0.9715, 0.0022),
    ),
    RECURSIVE: (
        (0.8234, 0.0127), (0.7932, 0.0072), (0.7958, 0.0240), (0.8014, 0.0383), (0.8001, 0.0302), (0.7825, 0.0149),
    ),
}  # fmt: skip
_REPORTS = 5
# Numbers of members in the last five classes, which are complete, and in the others, with 100 members each.
_WHOLE, _THINNED = 25_000, 500
DELTA_CLAIMED = float(_WHOLE + _THINNED) ** -1.1
NON_MEMBERS = ("random non-members", "non-members of all classes", "non-members of classes 0–4")
TABLE = "reported AUCs and bounds at the claimed ε"
ALIKE, BALANCED, DROPPED = (f"bound: {name}" for name in NON_MEMBERS)
DIGITS, BY_CONFIDENCE, CEILING = "AUCs of private models of digits", f"{NON_MEMBERS[2]}, by confidence", ALIKE
EPSILONS, DELTA = (0.5, 1.0, 8.0), 1e-4
# Number of kept digits 0 to 4, out of about 900, and the fraction of all kept digits in the training set.
_KEPT, _TRAINED = 18, 0.6
ROUNDS, STEP = 30, 1.0


class Split(NamedTuple):
    """Indices of members, and of three kinds of non-members: random, of all classes, and of the thinned classes."""

    members: IntArray
    non_members: tuple[IntArray, IntArray, IntArray]


def class_aucs() -> tuple[float, float]:
    """Return the AUCs of the class in the reported setting, against all ten classes and against classes 0 to 4."""
    members = np.repeat([0, 1], [_THINNED, _WHOLE])
    return class_only(members, np.array([0, 1])), class_only(members, np.array([0]))


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    balanced, dropped = class_aucs()
    for k, epsilon in enumerate(CLAIMED):
        aucs = {
            ALIKE: within_run(epsilon, DELTA_CLAIMED),
            BALANCED: shifted(epsilon, DELTA_CLAIMED, balanced),
            DROPPED: shifted(epsilon, DELTA_CLAIMED, dropped),
            **{name: scores[k][0] for name, scores in REPORTED.items()},
        }
        rows += [Row(TABLE, series, "claimed ε", epsilon, "AUC", 0, value) for series, value in aucs.items()]
    for epsilon in EPSILONS:
        rows.append(Row(DIGITS, CEILING, "ε", epsilon, "AUC", 0, within_run(epsilon, DELTA)))
        for repeat in range(8 if quick else 40):
            aucs = attacks(generator("e17", seed, repeat, EPSILONS.index(epsilon)), epsilon)
            rows += [Row(DIGITS, series, "ε", epsilon, "AUC", repeat, value) for series, value in aucs.items()]
    return rows


def shifted(epsilon: float, delta: float, distance: float) -> float:
    """Bound the AUC if members and non-members have different distributions.

        min{e^ε A + δ, 1 − e^(−ε)(1 − A − δ)}

    Let D₀ be a neighbour of D without the member z. Given M(D₀), the distributions of z and the non-member z' are
    unchanged, and S(M(D₀), ·) is a fixed function, so E f(M(D₀)) ≤ A. By (ε, δ)-DP, E f(M(D)) ≤ e^ε E f(M(D₀)) + δ
    and 1 − E f(M(D₀)) ≤ e^ε(1 − E f(M(D))) + δ. The bound assumes that z and z' are independent of the other records.

    Args:
        epsilon: ε ≥ 0.
        delta: δ in [0, 1].
        distance: A, the largest AUC of any fixed function of a record. If the distributions differ only in the
            shares of the classes, A is the AUC of the best order of the classes.

    Example:
        >>> round(shifted(epsilon=1.0, delta=0.0, distance=0.6), 4)
        0.8528
    """
    if math.isinf(epsilon):
        return 1.0
    low = math.exp(-epsilon)
    return min(1.0, distance / low + delta if low else 1.0, 1.0 - low * (1.0 - distance - delta))


def class_only(members: NDArray[Any], nonmembers: NDArray[Any]) -> float:
    """Return the largest AUC of a score that reads only the class of a record, ½ for equal shares of the classes.

    Args:
        members: labels of members, (n,).
        nonmembers: labels of non-members, (n',).

    Limits:
        With few records, the AUC exceeds ½ by chance.
    """
    classes = np.unique(np.concatenate([members, nonmembers]))
    p, q = (np.array([np.mean(labels == c) for c in classes]) for labels in (members, nonmembers))
    # Classes sorted by their likelihood ratio have the largest AUC.
    order = np.argsort(-p / np.maximum(p + q, np.finfo(np.float64).tiny), kind="stable")
    p, q = p[order], q[order]
    return float(np.sum(p * (1.0 - np.cumsum(q)) + 0.5 * p * q))


def attacks(rng: np.random.Generator, epsilon: float) -> dict[str, float]:
    """Train one model on a random split, and compute the AUC of the attack for each kind of non-members.

    Args:
        rng: random bits.
        epsilon: ε of the training; inf means no noise.

    Returns:
        Kind of non-members → AUC.
    """
    data = load_dataset("digits", n_agents=1, seed=0)
    features = data.features / np.linalg.norm(data.features, axis=1, keepdims=True)
    problem = SoftmaxHyperparameter(features.shape[1], tuple(map(float, range(10))), intercept=True)
    records = problem.prepare(features, data.labels.astype(np.float64), "l2")
    parts = split(rng, records.label)
    y = train(rng, problem, take(records, parts.members), epsilon)
    loss = problem.record_losses(y[None], records, slice(None))[0]
    confidence = class_shares(y.reshape(10, problem.p) @ records.features.T).max(axis=0)
    by_loss = [auc(-loss[parts.members], -loss[index]) for index in parts.non_members]
    by_confidence = auc(confidence[parts.members], confidence[parts.non_members[-1]])
    return dict(zip(NON_MEMBERS, by_loss, strict=True)) | {BY_CONFIDENCE: by_confidence}


def split(rng: np.random.Generator, label: IntArray) -> Split:
    """Remove most records of classes 0 to 4, and draw the members from the remaining records.

    Args:
        rng: random bits.
        label: classes (n,).
    """
    low, high = rng.permutation(np.flatnonzero(label < 5)), np.flatnonzero(label >= 5)
    kept, dropped = low[:_KEPT], low[_KEPT:]
    remaining = rng.permutation(np.concatenate([kept, high]))
    members, held_out = np.split(remaining, [int(_TRAINED * remaining.size)])
    complete = held_out[label[held_out] >= 5]
    return Split(members, (held_out, np.concatenate([complete, dropped[: complete.size]]), dropped))


def train(rng: np.random.Generator, problem: SoftmaxHyperparameter, members: Any, epsilon: float) -> Array:
    """Train weights by T noisy steps on all members.

    A record changes each sum by at most 2C, so the noise scale is 2C√T/μ.

    Args:
        rng: random bits of the noise.
        problem: problem with the lower loss to minimise.
        members: records from `problem.prepare`.
        epsilon: ε of the training, at `DELTA`.

    Returns:
        Weights (q,).
    """
    n, clip, y = len(members[0]), Clip("l2", y=1.0), np.zeros(problem.q)
    scale = 2.0 * math.sqrt(ROUNDS) / mu_of(epsilon, DELTA)
    z, no_records = np.zeros(problem.q), take(members, slice(0))
    for _ in range(ROUNDS):
        terms = problem.terms(np.zeros(problem.p), y, z, members, no_records, clip, ("lower_grad_y",))
        y = y - STEP / n * noised(rng, n * np.asarray(terms.lower_grad_y)[None], scale)[0]
    return y


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    high, low = (0.0, math.inf), (-math.inf, 0.0)
    checks = [
        Check(f"{name}, claimed ε up to {CLAIMED[k]:g}, {kind}: smallest excess over the bound", least, high)
        for name, k, ceiling, kind in (
            (DOUBLE, 2, ALIKE, NON_MEMBERS[0]),
            (RECURSIVE, 1, ALIKE, NON_MEMBERS[0]),
            (DOUBLE, 1, BALANCED, NON_MEMBERS[1]),
            (RECURSIVE, 0, BALANCED, NON_MEMBERS[1]),
        )
        for least in [min(_excess(rows, name, ceiling)[: k + 1], key=lambda i: i.low)]
    ]
    checks += [
        Check(
            f"{name}, {NON_MEMBERS[2]}: largest excess over the bound",
            max(_excess(rows, name, DROPPED), key=lambda i: i.high),
            low,
        )
        for name in REPORTED
    ]
    for epsilon in EPSILONS:
        random, ceiling = values(rows, DIGITS, NON_MEMBERS[0], epsilon), values(rows, DIGITS, CEILING, epsilon)[0]
        top = min(0.55, float(ceiling))
        checks.append(Check(f"digits, ε = {epsilon:g}, {NON_MEMBERS[0]}: AUC", over_seeds(random), (0.45, top)))
        thinned = over_seeds(values(rows, DIGITS, NON_MEMBERS[2], epsilon))
        checks.append(Check(f"digits, ε = {epsilon:g}, {NON_MEMBERS[2]}: AUC", thinned, (0.95, 1.0)))
    return checks, [
        "A reported AUC above a bound is impossible at the claimed ε with these non-members. An AUC below the bound is "
        "no evidence for or against the claim.",
        "With non-members of classes 0 to 4, every reported AUC is possible. Models with certified privacy have such "
        "AUCs too, because the attack separates classes and not members.",
        "With random non-members, the AUC of the same models is close to ½, far below the bound even at ε = 0.5.",
    ]


def _excess(rows: pd.DataFrame, name: str, ceiling: str) -> list[Interval]:
    """Return the reported mean minus a bound for each claimed ε, with Student's interval of the five reported runs."""
    out = []
    for k, epsilon in enumerate(CLAIMED):
        over = float(values(rows, TABLE, name, epsilon)[0] - values(rows, TABLE, ceiling, epsilon)[0])
        half = float(student.ppf(0.975, _REPORTS - 1)) * REPORTED[name][k][1] / math.sqrt(_REPORTS)
        out.append(Interval(over, over - half, over + half))
    return out
