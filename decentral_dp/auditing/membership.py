"""Membership inference against runs of a scenario: the AUC with its interval, and the upper bound that ε implies.

The train records of a run (members) are compared with its held-out test records. An adversary that can query the
published model scores a record by the negative loss of the record with its label.

The ceiling of `within_run` requires exchangeable members and non-members. Otherwise an attack distinguishes the groups,
and a guarantee for records does not bound its success. Such runs are not supported. Proof 31 derives the ceilings of
other games.

The AUC of one run depends on its noise and its split, and all pairs of the run share both. So the scenario is repeated
with fresh noise and another split, and the interval is Student's t over runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from scipy.special import expit

from decentral_dp.bounded import Array
from decentral_dp.config.loading import load_scenario
from decentral_dp.config.schema import Partition, Scenario
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.files.durable import OWNERS, write_whole
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.privacy.clipping import RECORD
from decentral_dp.problems.class_measures import auc
from decentral_dp.problems.protocol import Problem
from decentral_dp.problems.records import concatenate, take
from decentral_dp.reporting.privacy import adjacency_text, summary_text
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.folder.layout import require_new
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import PlannedJob, require_records
from decentral_dp.simulation.jobs.joined import most_joined
from decentral_dp.simulation.result import (
    is_private,
    plain,
    published_values,
    refuse_damaged,
    require_run_folder,
    text_of,
)
from decentral_dp.simulation.run import run_jobs
from decentral_dp.simulation.statistics import Interval, over_seeds
from decentral_dp.simulation.summary import claim_of, statement_of

# Scores of records


class ScoresRecords(Protocol):
    """Minimax problem that has a loss for each record."""

    def record_losses(self, x: Array, records: Any) -> Array:
        """Return the loss of each record, (n,), at a published x (p,)."""
        ...


def minimax_scores(problem: ScoresRecords, x: Array, records: Any) -> Array:
    """Return the negative loss of each record, (n,), as its score at a published x (p,).

    Records are shuffled, since rounding may depend on the position.
    """
    order = np.random.default_rng(0).permutation(len(records[0]))
    back, shuffled_records, model = np.argsort(order), take(records, order), _finite(x)
    with np.errstate(all="ignore"):
        losses = problem.record_losses(model, shuffled_records)
    return -losses[back]


def bilevel_scores(problem: Problem, x: Array, y: Array, records: Any) -> Array:
    """Return the negative lower loss of each record, (n,), as its score at a published x (p,) and y (q,)."""
    upper, lower, unit = _finite(x)[None], _finite(y)[None], np.ones(1)
    with np.errstate(all="ignore"):
        losses = [
            problem.losses(upper, lower, take(records, slice(k, k + 1)), unit)[0][0] for k in range(len(records[0]))
        ]
    return -np.array(losses)


def _finite(values: Array) -> Array:
    """Return the values, or zeros if some are not finite."""
    return values if np.isfinite(values).all() else np.zeros_like(values)


# One run


class AttackScore(NamedTuple):
    """Result of the attack on one run.

    Args:
        members: number of train records.
        nonmembers: number of held-out records.
        auc: area under the receiver operating characteristic, in [0, 1].
    """

    members: int
    nonmembers: int
    auc: float


def attack_run(job: PlannedJob, published: Mapping[str, Array]) -> AttackScore:
    """Score all train and test records by using the published values of a run.

    Args:
        job: job of the run.
        published: channel → values of the agents, (m, d), which are averaged, or values of a coordinator, (1, d).

    Raises:
        InputError: as in `require_attackable`, or the values have the wrong shapes.
    """
    require_attackable(job)
    widths = {"x": job.problem.p} if job.solves == "minimax" else {"x": job.problem.p, "y": job.problem.q}
    for name, width in widths.items():
        shape = published[name].shape if name in published else None
        if shape is None or len(shape) != 2 or shape[1] != width:
            raise InputError(
                f"audit: published {name} has the wrong shape (got {'none' if shape is None else shape}, expected "
                f"(agents, {width})). Fix: use the unchanged run folder and data, or a run of another algorithm."
            )
    model = {name: published[name].mean(axis=0) for name in widths}
    members = concatenate(job.records["train"])
    nonmembers = type(members)(*(job.test or ()))
    records = concatenate([members, nonmembers])
    if job.solves == "minimax":
        scores = minimax_scores(job.posed_problem, model["x"], records)
    else:
        scores = bilevel_scores(job.problem, model["x"], model["y"], records)
    n = len(members[0])
    return AttackScore(n, len(nonmembers[0]), auc(scores[:n], scores[n:]))


def require_attackable(job: PlannedJob) -> None:
    """Raise InputError if there is no valid attack on a job.

    Raises:
        InputError: records are stored by their agents or not exchangeable, no records are held out, no model scores
            records, or the unit is not one record.
    """
    require_records(job.records, "audit")
    refuse(job, _REFUSALS)


def _is_partitioned_at_random(job: PlannedJob) -> bool:
    """Return whether records were assigned to agents at random, and not by a column of a file."""
    table = job.scenario.problem
    if job.components.partition.value is not None:
        return False
    if isinstance(table.partition, Partition):
        return table.partition.kind == "iid"
    names_owners = job.shards.by_owner and table.data.lower().endswith((".csv", ".npz", ".parquet"))
    return table.partition == "iid" or (table.partition is None and not names_owners)


_REFUSALS: tuple[Refusal[PlannedJob], ...] = (
    Refusal(
        lambda job: job.unit != RECORD,
        "audit",
        "membership inference requires ε of one record (got {of.unit.noun})",
        "remove privacy.unit and privacy.neighbours",
    ),
    Refusal(
        lambda job: not job.shards.test.size,
        "audit",
        "this scenario has no held-out test records",
        "set problem.test, for example to 0.3",
    ),
    Refusal(
        lambda job: "" if job.shards.exchangeable else job.shards.why_not_exchangeable.rstrip("."),
        "audit",
        "train and test records are not exchangeable, so an attack would not measure membership. {it}",
        "hold out a random share of the data (problem.test)",
    ),
    Refusal(
        lambda job: job.solves == "minimax" and not hasattr(job.posed_problem, "record_losses"),
        "audit",
        "{of.scenario.problem.kind} publishes no model that scores records",
        "audit a run of a classifier or of a regression",
    ),
    Refusal(
        lambda job: (
            job.solves != "minimax"
            and (
                hasattr(job.problem, "place_records")
                or job.problem.accuracy(np.zeros((1, job.problem.p)), np.zeros((1, job.problem.q)), job.test) is None
            )
        ),
        "audit",
        "{of.scenario.problem.kind} has no classifier for both train and test records",
        "audit a run of a minimax problem, or of a bilevel one that classifies",
    ),
    Refusal(
        lambda job: not job.plans_ahead and not _is_partitioned_at_random(job),
        "audit",
        "the partition depends on the records, and each agent has its own ε, so train and test records are not "
        "exchangeable",
        'set problem.partition = "iid"',
    ),
)


# Several runs


def within_run(epsilon: float, delta: float) -> float:
    """Bound the AUC of members against exchangeable non-members, for the adjacency that replaces one record.

        (e^ε + δ)/(1 + e^ε) = 1 − (1 − δ)/(1 + e^ε)

    Let z ∈ D be a member, z' a non-member, and D' the data set D with z' instead of z. A = E f(S(M(D), z), S(M(D), z'))
    is at most e^ε E f(S(M(D'), z), S(M(D'), z')) + δ. Exchanging z and z' does not change the distribution of the
    records, and reverses their roles in D'. So the last expectation compares an excluded record with a member and
    equals 1 − A, and A ≤ e^ε(1 − A) + δ. This holds for each pair, and therefore for the mean over all pairs of a run.

    Args:
        epsilon: value of ε, at least 0.
        delta: value of δ, in [0, 1].

    Limits:
        The bound is attained: M receives two records in random order, publishes the first with probability δ, and
        otherwise uses randomised response. See docs/proofs/31.

    Example:
        >>> round(within_run(epsilon=1.0, delta=0.0), 4), within_run(epsilon=0.0, delta=0.0)
        (0.7311, 0.5)
    """
    return 1.0 - (1.0 - delta) * float(expit(-epsilon))


@dataclass(frozen=True)
class Inference:
    """Membership inference against runs of one scenario.

    Args:
        title: title of the scenario.
        scores: attack on each run, beginning with that of the run folder.
        epsilon, delta: certified (ε, δ) of the worst agent.
        adjacency: neighbouring relation, such as "replace one record of one agent".
        privacy: guarantee of the runs, from `reporting.privacy.summary_text`.
        ceiling: largest expected AUC at (epsilon, delta).
        claimed: (ε, δ, ceiling) of a paper's claim, or None if there is no claim.
        auc: mean AUC over runs with Student's 95 % interval, within [0, 1]. For one run, the ends are NaN.
    """

    title: str
    scores: tuple[AttackScore, ...]
    epsilon: float
    delta: float
    adjacency: str
    privacy: str
    ceiling: float
    claimed: tuple[float, float, float] | None
    auc: Interval

    def __repr__(self) -> str:
        return f"<Inference {self.title!r}: {len(self.scores)} runs, {self.status}>"

    @property
    def status(self) -> str:
        """Verdict: "refuted" if the interval of the AUC lies above the ceiling, otherwise "ok"."""
        return "refuted" if self.auc.low > self.ceiling else "ok"

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file of `audit --membership`, as JSON values."""
        claim = self.claimed and dict(zip(("epsilon", "delta", "ceiling"), self.claimed, strict=True))
        content = {
            "title": self.title,
            "status": self.status,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "adversary": "published",
            "privacy": self.privacy,
            "ceiling": self.ceiling,
            "claimed": claim,
            "runs": len(self.scores),
            "members": self.scores[0].members,
            "others": self.scores[0].nonmembers,
            "confidence": 0.95,
            "auc": self.auc.value,
            "low": self.auc.low,
            "high": self.auc.high,
            "each": [run.auc for run in self.scores],
            "sentences": describe_inference(self),
        }
        return cast(dict[str, Any], plain(content))


def read_run_folder(folder: Path) -> tuple[PlannedJob, dict[str, Array]]:
    """Return the job of a run folder, with all records, and its published values.

    Raises:
        InputError: the run is not complete, its scenario cannot be built, or its values cannot be read.
    """
    require_run_folder(folder, "audit", ("scenario.toml", "state.npz"), more=("result.json",))
    with refuse_damaged(folder, "audit"):
        job = build_job(load_scenario(folder / "scenario.toml"))
    return job, published_values(folder, "audit")


def infer_membership(
    folder: Path, runs: int = 10, progress: Callback | None = None, out: Path | None = None
) -> Inference:
    """Run a membership inference attack on the train records of a run through its published values.

    Args:
        folder: folder of a run.
        runs: number of runs, including the run in the folder.
        progress: callback that receives a `Progress` for "runs".
        out: path of a new JSON file for all numbers.

    Returns:
        The AUC with its interval over runs, and the ceiling that the certified ε implies.

    Raises:
        InputError: as in `read_run_folder` and `require_attackable`, or `out` exists.

    Example:
        >>> import tempfile, decentral_dp
        >>> few = {"algorithm.rounds": 2, "problem.partition": "iid"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = decentral_dp.run("ring_breast_cancer", set=few, out=f"{folder}/run")
        ...     inference = infer_membership(Path(folder) / "run", runs=2)
        >>> inference.status, len(inference.scores), 0.5 <= inference.ceiling <= 1.0
        ('ok', 2, True)
    """
    job, published = read_run_folder(folder)
    require_attackable(job)
    if out is not None:
        require_new("--out", out)
    report = Reporter(progress, "runs")
    with refuse_damaged(folder, "audit"):
        scores = [attack_run(job, published)]
    report(1, runs)
    step = most_joined(job)
    for first in range(1, runs, step):
        numbers = range(first, min(first + step, runs))
        for run in run_jobs([build_job(repetition(job.scenario, number)) for number in numbers]):
            scores.append(attack_run(run.simulation(), run.published))
            report(len(scores), runs)
    inference = judge_attacks(job, scores)
    if out is not None:
        # AUCs read the private records.
        write_whole(out, text_of(inference.to_dict()).encode(), OWNERS if is_private(folder) else 0o666)
    return inference


def judge_attacks(job: PlannedJob, scores: Sequence[AttackScore]) -> Inference:
    """Compare the AUC with the ceilings that the certified and the claimed ε imply.

    Args:
        job: job of the runs.
        scores: attack on each run, at least one.
    """
    statement = statement_of(job)
    epsilon, delta = float(job.budget.epsilon.max()), job.scenario.privacy.delta
    claim, claimed = claim_of(job), None
    if claim is not None:
        claimed_epsilon, claimed_delta = claim.epsilon_max or 0.0, claim.delta or 0.0
        claimed = claimed_epsilon, claimed_delta, within_run(claimed_epsilon, claimed_delta)
    return Inference(
        title=job.scenario.title or "Membership inference",
        scores=tuple(scores),
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency_text(statement),
        privacy=summary_text(statement),
        ceiling=within_run(epsilon, delta),
        claimed=claimed,
        auc=Interval(*np.clip(over_seeds([run.auc for run in scores]), 0.0, 1.0).tolist()),
    )


def repetition(s: Scenario, number: int) -> Scenario:
    """Return the scenario with different noise and a different split, on the same graph.

    Args:
        s: scenario of the first run. Without a seed, the noise remains secret.
        number: number of the repetition, which determines its seeds.
    """

    def drawn_seed(purpose: str, base: int) -> int:
        return int.from_bytes(blake2b(f"attack {purpose} {base} {number}".encode(), digest_size=6).digest(), "big")

    public = s.seed if s.seed is not None else 0
    content = s.model_dump(exclude_unset=True)
    split = s.problem.seed if s.problem.seed is not None else public
    content["problem"] = content["problem"] | {"seed": drawn_seed("split", split)}
    if s.seed is not None:
        content["seed"] = drawn_seed("noise", s.seed)
    if s.topology.kind is not None and s.topology.seed is None:
        content["topology"] = content["topology"] | {"seed": public}
    content["run"] = content.get("run", {}) | {"engine": "local", "evaluate_every": s.algorithm.rounds}
    return load_scenario(content, folder=s.folder)


def describe_inference(inference: Inference) -> list[str]:
    """Describe the result in sentences."""
    budget = f"ε = {epsilon_text(inference.epsilon)} at δ = {delta_text(inference.delta)}"
    many = len(inference.scores) > 1
    if inference.status == "refuted":
        verdict = (
            f"Refuted: the interval is above the ceiling of {budget}. This is a bug, or a broken guarantee, if AUCs of "
            "runs are about normal. Repeat with more --runs to be sure."
        )
    elif not many:
        verdict = "No verdict: one run has no interval. Fix: set --runs 10."
    elif inference.ceiling >= 1.0:
        verdict = f"No verdict: {budget} allows every AUC."
    else:
        verdict = f"Not refuted: the interval is not above the ceiling of {budget}."
    out = [verdict, f"The guarantee: {inference.privacy}"]
    if inference.claimed is not None:
        word = "Refuted" if inference.auc.low > inference.claimed[2] else "Not refuted"
        claim = f"ε = {epsilon_text(inference.claimed[0])} at δ = {delta_text(inference.claimed[1])}"
        out.append(f"{word}: the claim of {claim}.")
    out.append(
        "The ceiling holds for every attack, for one replaced record and exchangeable members and others. This "
        "attack queries a model about single records, and a low AUC does not certify a small ε."
    )
    out.append("AUCs read the private records: non-private evaluation, not covered by ε.")
    return out
