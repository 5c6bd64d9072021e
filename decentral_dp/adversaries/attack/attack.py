"""Membership inference against runs of one scenario: an AUC with its interval, beside the ceiling that ε sets.

The train records of a run, the members, are compared with its held-out test records, the others. A ceiling of
`auc_bounds.within_run` is about members and others that could have changed places. Where they could not, an
attack tells them apart as groups, of which a guarantee for records says nothing: that is refused.

One run's AUC moves with its noise, and with who happened to be held out: pairs of one run share both, and a thousand of
them are no thousand observations. So the scenario is repeated with fresh noise and another split, and the interval is
Student's over runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import rel_entr

from decentral_dp.adversaries.attack.scores import bilevel_scores, class_only, minimax_scores
from decentral_dp.bounded import Array
from decentral_dp.config.component_tables import Partition
from decentral_dp.config.loading import load
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.files.durable import OWNERS, digest
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.privacy.accounting.auc_bounds import within_run
from decentral_dp.privacy.unit import RECORD
from decentral_dp.problems.protocol import Placed
from decentral_dp.problems.records import concatenate, take
from decentral_dp.problems.saddle import Attackable
from decentral_dp.reporting.progress import show_progress
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.agent_records import require_records
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.metrics import pool
from decentral_dp.simulation.result import is_private, published_values, refuse_damaged, require_run_folder
from decentral_dp.simulation.run import run_job
from decentral_dp.simulation.statements.of_job import claim_of, statement_of
from decentral_dp.statistics import Interval, auc, over_seeds
from decentral_dp.tasks.outcomes import Request, fingerprint, keep_outcomes, number, refuse_foreign, write_json

# Scored one by one, losses of bilevel problems are slow: of more records a sample is scored.
_MOST_BILEVEL = 2000


class AttackScores(NamedTuple):
    """What came out of one run.

    Args:
        members: how many train records were scored.
        nonmembers: how many held-out records were scored.
        auc: attack → area under its receiver operating characteristic, over all pairs of a member and another, in
            [0, 1].
    """

    members: int
    nonmembers: int
    auc: Mapping[str, float]


def attack_run(job: Job, published: Mapping[str, Array]) -> AttackScores:
    """Score every member and every other record by what a run of the job published.

    Args:
        job: as it was run.
        published: variable → (m, d), of a coordinator (1, d). Of several agents' values the average counts.

    Returns:
        The AUC of every attack.

    Raises:
        InputError: as `require_attackable`; or values that are missing, or not of this job.
    """
    require_attackable(job)
    widths = {"x": job.problem.p} if job.solves == "minimax" else {"x": job.problem.p, "y": job.problem.q}
    for name, width in widths.items():
        if name not in published:
            raise InputError(
                f"attack: {job.scenario.algorithm.kind} publishes no {name}, and without it {job.scenario.problem.kind}"
                " gives no model that could be asked about a record. Attack a run of another algorithm."
            )
        if published[name].ndim != 2 or published[name].shape[1] != width:
            raise InputError(
                f"attack: the published {name} has shape {published[name].shape}, and the scenario beside it makes "
                f"{width} numbers of it. Give a run folder as it was written, with the data as they were."
            )
    model = {name: published[name].mean(axis=0) for name in widths}
    agents = list(zip(job.records["train"], job.records["validation"], strict=True))
    members = pool(agents)[0]
    others = type(members)(*(job.test or ()))
    if job.solves != "minimax":
        members, others = _sample(members, others)
    records = concatenate([members, others])
    if job.solves == "minimax":
        scores = minimax_scores(job.posed_problem, model["x"], records)
    else:
        scores = bilevel_scores(job.problem, model["x"], model["y"], records)
    n = len(members[0])
    values_by_score = {name: auc(values[:n], values[n:]) for name, values in scores.items()}
    return AttackScores(n, len(others[0]), values_by_score)


def _sample(members: Any, others: Any) -> tuple[Any, Any]:
    """As many members and others as are scored, drawn by a public key: of both where there are more, half of each.

    Who is drawn depends on the numbers of both alone. A random part of groups whose members could have changed places
    is such a pair of groups again, so the ceiling holds for it, and the mean of its AUC is that of all.
    """
    counts = len(members[0]), len(others[0])
    if sum(counts) <= _MOST_BILEVEL:
        return members, others
    half = _MOST_BILEVEL // 2
    sizes = [min(n, max(half, _MOST_BILEVEL - other)) for n, other in (counts, counts[::-1])]
    key = blake2b(f"attack sample {counts[0]} {counts[1]}".encode(), digest_size=8).digest()
    draw = np.random.default_rng(int.from_bytes(key, "big"))
    chosen = [np.sort(draw.choice(n, size, replace=False)) for n, size in zip(counts, sizes, strict=True)]
    return take(members, chosen[0]), take(others, chosen[1])


def require_attackable(job: Job) -> None:
    """Refuse what cannot be attacked, or attacked fairly.

    Args:
        job: to be attacked, with its records.

    Raises:
        InputError: records that are with their agents or not exchangeable, no held-out records, no model that could be
            asked about a record, or another unit than one record.
    """
    require_records(job.records, "attack")
    if job.unit != RECORD:
        raise InputError(
            f"attack: it tells whether one record was among those that were read, and this ε is for {job.unit.noun}. "
            "Leave privacy.unit and privacy.neighbours out."
        )
    kind, shards = job.scenario.problem.kind, job.shards
    if not shards.test.size:
        raise InputError(
            "attack: this scenario holds out no test records, so there is nothing to tell its train records from. "
            "Set problem.test, for example to 0.3."
        )
    if not shards.exchangeable:
        raise InputError(
            f"attack: {shards.why_not_exchangeable} An attack would measure how these groups "
            f"differ{_class_only_text(job)}, not membership. Hold out a random share (problem.test) of data as they "
            "are."
        )
    if job.solves == "minimax":
        if not isinstance(job.posed_problem, Attackable):
            raise InputError(
                f"attack: what {kind} publishes is no model that could be asked about a record. Attack a run of a "
                "classifier or of a regression."
            )
    elif isinstance(job.problem, Placed) or not _classifies(job):
        raise InputError(
            f"attack: {kind} has no classifier that treats train and test records alike, so their losses cannot be "
            "compared. Attack a run of a minimax problem, or of a bilevel one that classifies."
        )
    if not job.plans_ahead and not _dealt_at_random(job):
        raise InputError(
            "attack: the records were dealt to the agents by what they hold, and each agent has a budget of its own, "
            'so a train and a test record could not have changed places. Set problem.partition = "iid".'
        )


def _dealt_at_random(job: Job) -> bool:
    """Whether agents got their records whatever those are: owners that a file names are no draw."""
    table = job.scenario.problem
    if job.components.partition.is_outside:
        return False
    if isinstance(table.partition, Partition):
        return table.partition.kind == "iid"
    named = job.shards.by_owner and table.data.lower().endswith((".csv", ".npz", ".parquet"))
    return table.partition == "iid" or (table.partition is None and not named)


def _classifies(job: Job) -> bool:
    problem = job.problem
    return problem.accuracy(np.zeros((1, problem.p)), np.zeros((1, problem.q)), job.test) is not None


def _class_only_text(job: Job) -> str:
    """How well classes alone tell the groups apart, where there are classes."""
    shards = job.shards
    if not shards.classes:
        return ""
    class_auc = class_only(shards.labels[np.concatenate(shards.train)], shards.labels[shards.test])
    return f" (their classes alone tell them apart with an AUC of {class_auc:.2f})"


class Verdict(NamedTuple):
    """An attack's AUC over runs beside a ceiling.

    Args:
        auc: the mean over runs, in [0, 1].
        interval: Student's 95 % interval of that mean, within [0, 1]; None of one run.
        is_above: whether its lower end exceeds the ceiling.
        chance: the probability that the mean of so many AUCs is as large although their expectation keeps to the
            ceiling is at most this, whatever their law (Hoeffding 1963, Theorem 1); 1 where the mean is below.
    """

    auc: float
    interval: Interval | None
    is_above: bool
    chance: float


def judge(aucs: Sequence[float], ceiling: float) -> Verdict:
    """Set the AUCs of one attack beside a ceiling.

    Args:
        aucs: one of each run, at least one.
        ceiling: the largest expected AUC that a guarantee allows, in [1/2, 1].

    Example:
        >>> judge([0.52, 0.55, 0.53], ceiling=0.6).is_above
        False
    """
    mean = float(np.mean(aucs))
    interval = Interval(*np.clip(over_seeds(aucs), 0.0, 1.0).tolist()) if len(aucs) > 1 else None
    chance = 1.0
    if mean > ceiling:
        chance = math.exp(-len(aucs) * float(rel_entr(mean, ceiling) + rel_entr(1.0 - mean, 1.0 - ceiling)))
    return Verdict(mean, interval, interval is not None and interval.low > ceiling, chance)


@dataclass(frozen=True)
class Inference:
    """What an attack on runs of one scenario found.

    Args:
        scenario: of the runs.
        scores: run by run, those of the given folders first.
        folders_given: how many folders were given.
        eligible: how many records could be scored in a run, its train and test records.
        epsilon, delta: the certified budget of the worst agent.
        privacy: the guarantee of the runs, as in `PrivacyStatement.summary`.
        ceiling: the largest expected AUC that it allows.
        claimed: (ε, δ, ceiling) of what a paper says of its own noise; None where it says nothing.
        verdicts: attack → its AUC beside the certified ceiling.
        against_claim: the same beside the claim; empty without one.

    Example:
        >>> import tempfile, decentral_dp
        >>> few = {"algorithm.rounds": 2, "problem.partition": "iid"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = decentral_dp.run("ring_breast_cancer", set=few, out=f"{folder}/run")
        ...     decentral_dp.attack(f"{folder}/run", runs=2).broken
        False
    """

    scenario: Scenario
    scores: tuple[AttackScores, ...]
    folders_given: int
    eligible: int
    epsilon: float
    delta: float
    privacy: str
    ceiling: float
    claimed: tuple[float, float, float] | None
    verdicts: Mapping[str, Verdict]
    against_claim: Mapping[str, Verdict]

    def __repr__(self) -> str:
        verdict = "above what is certified" if self.broken else "within what is certified"
        return f"<Inference {self.scenario.title!r}: {len(self.scores)} runs, {verdict}>"

    @property
    def broken(self) -> bool:
        """Whether an attack does better than the certificate allows."""
        return any(v.is_above for v in self.verdicts.values())


class RunFolder(NamedTuple):
    """A run folder read back.

    Args:
        folder: of the run.
        job: built again from its scenario, with all records.
        published: variable → (m, d) published values.
    """

    folder: Path
    job: Job
    published: Mapping[str, Array]


def read_run_folder(folder: Path) -> RunFolder:
    """Read a run folder back.

    Args:
        folder: of a complete run.

    Raises:
        InputError: it is none, its scenario cannot be built here, or its values cannot be read.
    """
    require_run_folder(folder, "attack", ("scenario.toml", "state.npz"), more=("result.json",))
    with refuse_damaged(folder, "attack"):
        job = build(load(folder / "scenario.toml"))
    return RunFolder(folder, job, published_values(folder, "attack"))


def attack(
    folders: str | Path | Sequence[str | Path], *, runs: int = 10, callbacks: Sequence[Callback] = ()
) -> Inference:
    """Try to tell the train records of runs from held-out ones by what was published.

    Args:
        folders: a run folder, or several of one scenario with other seeds.
        runs: runs in all; the scenario is repeated with fresh noise and another split until there are so many.
        callbacks: functions that are called with a `Progress` of "runs"; by default notebooks show a bar.

    Returns:
        AUC of every attack with its interval over runs, beside the AUC that the certified ε allows.

    Raises:
        InputError: a folder is none of a run, or its scenario cannot be attacked fairly.

    Example:
        >>> import tempfile, decentral_dp
        >>> scenario = decentral_dp.load("ring_breast_cancer", set={"algorithm.rounds": 2, "problem.partition": "iid"})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = decentral_dp.run(scenario, out=f"{folder}/run")
        ...     found = decentral_dp.attack(f"{folder}/run", runs=2)
        >>> found.broken, len(found.scores), 0.5 <= found.ceiling <= 1.0
        (False, 2, True)
    """
    listed = [folders] if isinstance(folders, str | Path) else folders
    if not listed:
        raise InputError("attack: no run folder is given. Give at least one.")
    with show_progress(callbacks, "runs") as callback:
        return infer([Path(folder) for folder in listed], runs, callback)


def infer(folders: Sequence[Path], runs: int, progress: Callback | None = None, out: Path | None = None) -> Inference:
    """Attack the runs of these folders, and repeat their scenario until there are `runs` in all.

    Args:
        folders: of runs.
        runs: in all.
        progress: called with a `Progress` of "runs".
        out: a file that keeps what was found so far; one that an interrupted attack left is gone on with.

    Raises:
        InputError: as `attack`, or the file holds something else.
        Stopped: interrupted, and the file has what was found.
    """
    results = [read_run_folder(folder) for folder in folders]
    for one in results:
        require_attackable(one.job)
    _require_alike(results)
    total, report = max(runs, len(results)), Reporter(progress, "runs")
    published = [
        {name: digest(np.ascontiguousarray(values).tobytes()) for name, values in one.published.items()}
        for one in results
    ]
    request = Request(
        "attack",
        {"folders": [str(folder.resolve()) for folder in folders], "runs": total},
        partial(fingerprint, [one.job.scenario for one in results], published),
        "on other runs, on ones that have changed since",
        lambda k: f"what {k} of {total} runs show is",
    )
    with keep_outcomes(out, request, _read_scores) as outcomes:
        for k in range(total):
            if str(k) not in outcomes.done:
                outcomes.add(str(k), _attack(results, k))
                report(k + 1, total)
    return judge_attacks(results[0].job, [outcomes.done[str(k)] for k in range(total)], len(results))


def resume_attack(out: Path, request: Any, progress: Callback | None = None) -> Inference:
    """Go on with an attack that was cut off: its runs so far are kept, the others are attacked. Its file is written.

    Args:
        out: its JSON file.
        request: of the file.
        progress: called with a `Progress` of "runs".

    Returns:
        As without the interruption.

    Raises:
        InputError: what it is of has changed since, or the file does not say it.
        Stopped: interrupted again.
    """
    with refuse_foreign(out, "Attack the runs again with another --out."):
        folders, runs = [Path(folder) for folder in request["folders"]], int(request["runs"])
    inference = infer(folders, runs, progress, out)
    write(inference, folders, out)
    return inference


def _read_scores(stored: Any) -> AttackScores:
    members, others, auc = stored
    return AttackScores(int(members), int(others), {str(name): number(value) for name, value in auc.items()})


def _attack(folders: Sequence[RunFolder], k: int) -> AttackScores:
    """Attack the run of this number: those of folders come first, then repetitions."""
    if k < len(folders):
        with refuse_damaged(folders[k].folder, "attack"):
            return attack_run(folders[k].job, folders[k].published)
    done = run_job(build(repetition(folders[0].job.scenario, k)))
    return attack_run(done.simulation(), done.published)


def judge_attacks(job: Job, each: Sequence[AttackScores], folders_given: int) -> Inference:
    """Set every attack's AUCs beside what the job's budget, and the claim, allow.

    Args:
        job: that was run, whose ε and δ count.
        each: what came out of each run, at least of one.
        folders_given: how many of these are of folders that were given.
    """
    epsilon, delta = float(job.budget.epsilon.max()), job.scenario.privacy.delta
    ceiling, claim = within_run(epsilon, delta), claim_of(job)
    aucs = {name: [one.auc[name] for one in each] for name in each[0].auc}
    scores = None
    if claim is not None:
        said, at = claim.epsilon_max or 0.0, claim.delta or 0.0
        scores = said, at, within_run(said, at)
    return Inference(
        scenario=job.scenario,
        scores=tuple(each),
        folders_given=folders_given,
        eligible=int(job.shards.train_counts.sum() + job.shards.test.size),
        epsilon=epsilon,
        delta=delta,
        privacy=statement_of(job).summary,
        ceiling=ceiling,
        claimed=scores,
        verdicts={name: judge(values, ceiling) for name, values in aucs.items()},
        against_claim={} if scores is None else {name: judge(values, scores[2]) for name, values in aucs.items()},
    )


def repetition(s: Scenario, number: int) -> Scenario:
    """The scenario with other noise and another split; its graph stays.

    Args:
        s: of the first run. Without a seed the noise stays secret.
        number: of the repetition, from which its seeds follow.
    """
    public = s.seed if s.seed is not None else 0
    content = s.model_dump(exclude_unset=True)
    split = s.problem.seed if s.problem.seed is not None else public
    content["problem"] = content["problem"] | {"seed": _seed("split", split, number)}
    if s.seed is not None:
        content["seed"] = _seed("noise", s.seed, number)
    if s.topology.kind is not None and s.topology.seed is None:
        content["topology"] = content["topology"] | {"seed": public}
    content["run"] = content.get("run", {}) | {"engine": "local", "evaluate_every": s.algorithm.rounds}
    return load(content, folder=s.folder)


def _seed(purpose: str, base: int, number: int) -> int:
    return int.from_bytes(blake2b(f"attack {purpose} {base} {number}".encode(), digest_size=6).digest(), "big")


def _require_alike(folders: Sequence[RunFolder]) -> None:
    """Refuse several runs that are no repetitions of one another."""
    for k, one in enumerate(folders):
        for other in folders[:k]:
            if _content(one.job.scenario) != _content(other.job.scenario):
                raise InputError(
                    f"attack: {one.folder} and {other.folder} are runs of different scenarios, and their AUCs have no "
                    "common mean. Give runs that differ in their seeds alone."
                )
            if one.job.scenario.seed is not None and one.job.scenario.seed == other.job.scenario.seed:
                raise InputError(
                    f"attack: {one.folder} and {other.folder} have the same noise (both have seed = "
                    f"{one.job.scenario.seed}), so their AUCs are not independent. Fix: give runs of different seeds."
                )
            if np.array_equal(one.job.shards.test, other.job.shards.test) and np.array_equal(
                one.job.shards.features, other.job.shards.features
            ):
                raise InputError(
                    f"attack: {one.folder} and {other.folder} hold out the same records, and an interval over such "
                    "runs would not tell how an AUC moves with the split. Give runs of different problem.seed, or one "
                    "run, which --runs repeats."
                )


def _content(s: Scenario) -> dict[str, Any]:
    """Everything but names, seeds, and where and how often it is looked at."""
    content = s.model_dump(mode="json", exclude={"seed", "title", "description", "versions", "objects", "run"})
    for table in ("problem", "topology"):
        content[table].pop("seed", None)
    return content


# A chance above which a mean over a ceiling may still be chance, if AUCs of runs follow no normal law.
_CHANCE_LEVEL = 0.05


def sentences(inference: Inference) -> list[str]:
    """What the numbers say, and do not."""
    out = [_verdict(inference), f"The guarantee: {inference.privacy}"]
    scored = inference.scores[0]
    if scored.members + scored.nonmembers < inference.eligible:
        out.append(
            f"Of {inference.eligible} records {scored.members + scored.nonmembers} are scored, drawn by a public key: "
            "an AUC is an estimate of that of all."
        )
    if inference.claimed is not None:
        out.append(_on_the_claim(inference))
    if inference.epsilon == float("inf"):
        out.append("No finite ε is certified here, so no AUC contradicts the certificate.")
    if len(inference.scores) == 1:
        out.append(
            "There is no interval of one run: its AUC moves with its noise and with who is held out, which all its "
            "pairs share. Give --runs 10 for fresh noise and another split in each."
        )
    out.append(
        "The ceiling is for members and others that could have changed places, and for one record replaced. It holds "
        "for every attack; those here ask a model about single records, and a low AUC certifies nothing."
    )
    out.append("AUCs read the private records: they are the simulator's view, and no budget covers them.")
    return out


def _verdict(inference: Inference) -> str:
    budget = f"ε = {epsilon_text(inference.epsilon)} at δ = {delta_text(inference.delta)}"
    above = {name: v for name, v in inference.verdicts.items() if v.is_above}
    if above:
        return (
            f"Above the ceiling: by {' and by '.join(above)} the lower end of the interval exceeds what {budget} "
            f"allows. A bug, or a broken guarantee{_caveat(inference.verdicts)}."
        )
    if len(inference.scores) == 1:
        return "No verdict: one run cannot tell."
    if inference.ceiling >= 1.0:
        return f"No verdict: {budget} allows every AUC."
    if all(
        v.interval is not None and v.interval.high >= 1.0 and v.interval.low <= 0.5 for v in inference.verdicts.values()
    ):
        return "No verdict: the intervals are too wide to tell. Take more --runs."
    return f"Within: no attack's interval lies above what {budget} allows."


def _on_the_claim(inference: Inference) -> str:
    said, at, _ = inference.claimed if inference.claimed is not None else (0.0, 0.0, 0.0)
    claim = f"the claim, ε = {epsilon_text(said)}" + (f" at δ = {delta_text(at)}" if at else "")
    above = {name: v for name, v in inference.against_claim.items() if v.is_above}
    if above:
        caveat = _caveat(inference.against_claim)
        return f"Refuted is {claim}: by {' and by '.join(above)} the lower end lies above what it implies{caveat}."
    return f"Not refuted is {claim}: no attack's interval lies above what it implies."


def _caveat(verdicts: Mapping[str, Verdict]) -> str:
    """Where the interval leans on AUCs being about normal; the chance is that of any of the attacks."""
    chance = min(1.0, len(verdicts) * min(v.chance for v in verdicts.values()))
    if chance <= _CHANCE_LEVEL:
        return ""
    return (
        f", if AUCs of runs are about normal; whatever their law, so few runs show as much with a chance of up to "
        f"{chance:.2g} where the guarantee holds, so give more --runs to be sure"
    )


def summary(inference: Inference, folders: Sequence[Path]) -> dict[str, Any]:
    """List what was found, as the file of an attack has it.

    Args:
        inference: by `infer`.
        folders: of the runs that were given.

    Returns:
        Keys with JSON values; infinite numbers are floats, which `write` turns to "inf".
    """
    claim = None
    if inference.claimed is not None:
        claim = dict(zip(("epsilon", "delta", "ceiling"), inference.claimed, strict=True))
    return {
        "title": inference.scenario.title,
        "folders": [str(folder) for folder in folders],
        "guarantee": inference.scenario.privacy.guarantee,
        "game": "within one run, members and others exchangeable, one record replaced",
        "epsilon": inference.epsilon,
        "delta": inference.delta,
        "privacy": inference.privacy,
        "ceiling": inference.ceiling,
        "claimed": claim,
        "runs": len(inference.scores),
        "runs_given": inference.folders_given,
        "members": inference.scores[0].members,
        "others": inference.scores[0].nonmembers,
        "confidence": 0.95,
        "attacks": {
            name: {
                "auc": verdict.auc,
                "low": None if verdict.interval is None else verdict.interval.low,
                "high": None if verdict.interval is None else verdict.interval.high,
                "above_ceiling": verdict.is_above,
                "chance_at_most": verdict.chance,
                "above_claim": inference.against_claim[name].is_above if inference.claimed is not None else None,
                "each": [one.auc[name] for one in inference.scores],
            }
            for name, verdict in inference.verdicts.items()
        },
        "verdict": "above" if inference.broken else "none" if len(inference.scores) == 1 else "within",
        "sentences": sentences(inference),
    }


def write(inference: Inference, folders: Sequence[Path], out: Path) -> None:
    """Write the file of an attack.

    Args:
        inference: by `infer`.
        folders: of the runs that were given.
        out: JSON file, put in place whole.

    Raises:
        OSError: it cannot be written.
    """
    # AUCs read the records, as metrics do.
    mode = OWNERS if any(is_private(folder) for folder in folders) else 0o666
    write_json(out, summary(inference, folders), mode)
