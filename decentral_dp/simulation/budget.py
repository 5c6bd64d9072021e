"""Privacy budgets for several runs on the same records, in memory or in a file.

A run is charged before its first release, for all its planned rounds, and stays charged if it fails. The ledgers of all
runs on one data set are composed by `odometer`. The charge is the cost against an adversary that observes all messages.

Data sets are recognised by an HMAC of their features before scaling, in any order of the records. Labels, agents and
splits are omitted, so a different target, scaling or partition is the same data set. The key is drawn at random and
stored in the file, which contains no record. A changed, added or removed record changes the digest. Nearly equal data
sets, such as the folds of a cross-validation, have separate accounts unless `dataset` names one account.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from hmac import new as new_hmac
from pathlib import Path
from typing import Any, NamedTuple

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError, Refusal, converting, quoted_path, refuse
from decentral_dp.files.durable import OWNERS, lock_file, new_salt, require_locks, write_synced
from decentral_dp.files.regular import regular
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.privacy.accounting.odometer import RecordCost, compose_runs, record_costs
from decentral_dp.privacy.randomness import root_bytes
from decentral_dp.simulation.jobs.build import run_digest
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.summary import title_of

FORMAT = 1
# Seconds to wait for another process that charges the same file, and between two attempts.
_WAIT, _PAUSE = 120.0, 0.05
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


class BudgetError(InputError):
    """Error for a run that the budget does not cover, or whose charge cannot be recorded in the budget's file."""


class Quote(NamedTuple):
    """Privacy cost ε of a data set at the budget's δ, before and after one more run.

    Args:
        dataset: account of the data set.
        runs: number of runs so far.
        before: ε of these runs.
        cost: ε of the next run only.
        after: ε of all these runs.
    """

    dataset: str
    runs: int
    before: float
    cost: float
    after: float


_ARGUMENTS: tuple[Refusal[tuple[Any, Any]], ...] = (
    Refusal(
        lambda values: not (isinstance(values[0], int | float) and 0.0 < values[0] < math.inf),
        "epsilon",
        "out of range (got {of[0]!r}, expected a finite number above 0)",
        "use for example epsilon=4.0",
    ),
    Refusal(
        lambda values: not (isinstance(values[1], int | float) and 0.0 <= values[1] < 1.0),
        "delta",
        "out of range (got {of[1]!r}, expected a number in [0, 1))",
        "use for example delta=1e-5",
    ),
)


class Budget:
    """Privacy budget of all runs on a data set.

    Every run with this budget is charged before its first release, and a run that would exceed the budget raises
    InputError. Each data set has its own account. A record may belong to a different agent in every run, so the largest
    cost over all agents and splits is composed. A data set is recognised by its unscaled features, in any order of
    its records.

    Limits:
        Changing, adding or removing a record makes a different data set. Only `dataset` combines such data sets, for
        example the folds of a cross-validation, in one account. With privacy.unit = "agent", the partition must be the
        same in all runs. Settings must not depend on earlier results, except with Gaussian noise on all records or pure
        ε. Evaluation and runs without the budget are not covered. A process that can write the file can reset it.
        `run`, `resume`, `study`, `Job.steps` and fits of `DecentralisedClassifier` and `DecentralisedRegressor` are
        charged to a budget. Audits, `tune` and the estimators of one trusted server are not.

    Args:
        epsilon: largest ε over all runs.
        delta: δ over all runs, at least 0 and below 1. Choose δ below 1/N for N records.
        file: JSON file that stores the charges, created if it is missing; None keeps the charges in this process only.
        dataset: name of one account for all charges; None for one account per data set.

    Raises:
        InputError: an argument is invalid, or the file has a different budget or is damaged.

    Example:
        >>> import decentral_dp
        >>> budget = decentral_dp.Budget(epsilon=6.0, delta=1e-5)
        >>> job = decentral_dp.build("classification", set={"algorithm.rounds": 20})
        >>> run = job.run(budget=budget)
        >>> quote = job.plan(budget=budget).quote
        >>> quote.runs, round(quote.before, 2), round(quote.after, 2)
        (1, 4.0, 5.99)
    """

    def __init__(
        self, epsilon: float, delta: float, file: str | Path | None = None, dataset: str | None = None
    ) -> None:
        refuse((epsilon, delta), _ARGUMENTS)
        self.epsilon, self.delta, self.dataset = float(epsilon), float(delta), dataset
        self.file = None if file is None else Path(file).resolve()
        self._thread = threading.Lock()
        self._content = self._new_content()
        if self.file is not None:
            require_locks("budget", "budget files")
            with self._locked():
                if self.file.exists():
                    self._read()
                else:
                    self._write(self._content)

    @classmethod
    def open(cls, file: str | Path) -> Budget:
        """Read a budget from its file.

        Args:
            file: JSON file; a new one contains `{"epsilon": …, "delta": …}` only.

        Returns:
            The budget, with one account per data set.

        Raises:
            InputError: the file does not exist or is damaged.
        """
        path = _existing(Path(file))
        with _refusing_damage(path):
            content = json.loads(path.read_text("utf-8"))
            epsilon, delta = content["epsilon"], content["delta"]
        return cls(epsilon, delta, path)

    def quote(self, job: PlannedJob) -> Quote:
        """Compute ε before and after a run, without charging it.

        Args:
            job: internal job, as returned by `Job.simulation()`.

        Returns:
            The ε of the job's data set.

        Raises:
            InputError: the file is damaged, the records changed, or the adjacency differs from that of earlier runs.
        """
        with self._locked():
            content = self._read()
            dataset = self._account(content, job)
            return self._quote(dataset, _entries_of(content, dataset, _adjacency(job)), record_costs(job.ledger))

    def charge(self, job: PlannedJob, *, is_resumed: bool = False) -> None:
        """Write the charge for a run before its first release.

        Args:
            job: internal job, with its noise key.
            is_resumed: whether the run resumes. A resumed run with the same noise key and inputs is charged once.

        Raises:
            BudgetError: the run exceeds the budget, the file is damaged, the records changed, or the adjacency differs
                from that of earlier runs.
        """
        try:
            with self._locked():
                content = self._read()
                key = bytes.fromhex(content["key"])
                run = new_hmac(key, root_bytes(job.root) + run_digest(job).encode(), "sha256").hexdigest()
                dataset, unit = self._account(content, job), _adjacency(job)
                entries = _entries_of(content, dataset, unit)
                if is_resumed and any(entry["run"] == run for entry in entries):
                    return
                costs = record_costs(job.ledger)
                quote = self._quote(dataset, entries, costs)
                if not quote.after <= self.epsilon:
                    raise InputError(
                        f"budget: {describe_quote(self, quote)}. Nothing was released. Fix: lower privacy.epsilon."
                    )
                entry = {
                    "time": datetime.now(UTC).isoformat(timespec="seconds"),
                    "title": title_of(job.scenario),
                    "dataset": dataset,
                    "run": run,
                    "adjacency": unit,
                    "epsilon": quote.cost,
                    "costs": [cost.to_json() for cost in costs],
                }
                self._write({**content, "entries": [*content["entries"], entry]})
        except InputError as error:
            raise BudgetError(str(error)) from error

    def _quote(self, dataset: str, entries: list[dict[str, Any]], costs: list[RecordCost]) -> Quote:
        with _refusing_damage(self.file):
            runs = [[RecordCost.from_json(cost) for cost in entry["costs"]] for entry in entries]
        before, cost, after = (compose_runs(part, self.delta) for part in (runs, [costs], [*runs, costs]))
        return Quote(dataset, len(runs), before, cost, after)

    def _account(self, content: dict[str, Any], job: PlannedJob) -> str:
        return self.dataset or digest_data(job, bytes.fromhex(content["key"]))

    def _new_content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "key": new_salt().hex(),
            "entries": [],
        }

    def _read(self) -> dict[str, Any]:
        if self.file is None:
            return self._content
        path = _existing(self.file)
        with _refusing_damage(path):
            content: dict[str, Any] = json.loads(path.read_text("utf-8"))
            values = content["epsilon"], content["delta"]
            if content.keys() == {"epsilon", "delta"}:
                content = self._new_content()
            if content["format"] != FORMAT or len(bytes.fromhex(content["key"])) == 0:
                raise ValueError("another format")
            for entry in content["entries"]:
                entry["dataset"], entry["run"], entry["adjacency"], entry["costs"]
        if values != (self.epsilon, self.delta):
            raise InputError(
                f"budget: {quoted_path(path)} has another budget (got epsilon = {self.epsilon:g} and delta = "
                f"{self.delta:g}, expected {values[0]} and {values[1]}). Fix: use the expected values, or "
                "another file."
            )
        return content

    def _write(self, content: dict[str, Any]) -> None:
        if self.file is None:
            self._content = content
        else:
            write_synced(self.file, json.dumps(content, allow_nan=False).encode(), OWNERS)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other threads, and other processes that use the same file."""
        with self._thread, contextlib.ExitStack() as stack:
            if self.file is not None:
                path = self.file.with_name(f".{self.file.name}.lock")
                with converting(
                    OSError,
                    lambda error: (
                        f"budget: {quoted_path(path)} cannot be written or locked ({error}). Fix: use another folder."
                    ),
                ):
                    file = stack.enter_context(path.open("ab"))
                    end = time.monotonic() + _WAIT
                    while True:
                        try:
                            lock_file(file)
                            break
                        except BlockingIOError:
                            if time.monotonic() > end:
                                raise InputError(
                                    f"budget: another process is using {quoted_path(self.file)}. Fix: wait "
                                    "until it ends."
                                ) from None
                        time.sleep(_PAUSE)
            yield

    def __deepcopy__(self, memo: Any) -> Budget:
        # Clones of an estimator share one budget.
        return self

    def __reduce__(self) -> Any:
        if self.file is None:
            raise InputError(
                "budget: cannot be copied to another process, where it would be spent twice. Fix: create the "
                "budget with a file."
            )
        return _reopen, (self.epsilon, self.delta, self.file, self.dataset)

    def __repr__(self) -> str:
        place = "" if self.file is None else f", file={str(self.file)!r}"
        return f"<Budget: epsilon={self.epsilon:g}, delta={self.delta:g}{place}>"


def _reopen(epsilon: float, delta: float, file: Path, dataset: str | None) -> Budget:
    """Return a copy of a budget in another process."""
    return Budget(epsilon, delta, _existing(file), dataset)


def _existing(file: Path) -> Path:
    """Return the path of a budget's file. Without it, raise InputError, since a new one would forget all charges."""
    path = regular(file, "budget")
    if not path.is_file():
        raise InputError(
            f"budget: no file {quoted_path(path)} (removed, or on another machine). Fix: restore it, or for the first "
            'run write {"epsilon": 4.0, "delta": 1e-5} into it. A new budget forgets all charges.'
        )
    return path


def describe_quote(budget: Budget, quote: Quote) -> str:
    """Return one sentence, without a full stop, on the cost of a run and the remaining budget.

    Args:
        budget: privacy budget of several runs.
        quote: cost of the run.
    """
    runs = f"{quote.runs} run{'' if quote.runs == 1 else 's'}"
    verb = "exceeds the budget" if quote.after > budget.epsilon else "fits the budget"
    # Rounded down.
    left = math.floor(1e3 * max(0.0, budget.epsilon - quote.before)) / 1e3
    return (
        f"the run {verb} of data set {budget.dataset or quote.dataset[:12]} (ε = {epsilon_text(quote.before)} spent by "
        f"{runs}, {left:g} left of {budget.epsilon:g}; the run costs {epsilon_text(quote.cost)}, and all runs "
        f"together {epsilon_text(quote.after)}, at δ = {delta_text(budget.delta)})"
    )


def digest_data(job: PlannedJob, key: bytes) -> str:
    """Return the keyed digest of a job's data set.

    Args:
        job: planned job, whose records are loaded again because it keeps scaled features only.
        key: key of the digest.

    Raises:
        InputError: the records changed after the job was planned.
    """
    c = job.components
    if c.scenario.problem.manifest is not None:
        # The manifest has digests of the agents' files.
        return new_hmac(key, job.shards.digest, "sha256").hexdigest()
    dataset = c.data.make(c.scenario.problem.parts or job.n_agents, c.strict, True)
    if dataset.digest != job.shards.digest:
        raise InputError("budget: the records changed after the job was planned. Fix: build the job again.")
    return digest_features(dataset.features, key)


def digest_features(features: Array, key: bytes) -> str:
    """Return the HMAC of records (n, d), which does not depend on their order.

    Example:
        >>> import numpy as np
        >>> records = np.array([[0.0, 1.0], [2.0, 3.0]])
        >>> digest_features(records, b"key") == digest_features(records[::-1], b"key")
        True
    """
    # Adding 0 turns −0 into 0.
    rows = (blake2b((row + 0.0).tobytes(), digest_size=32).digest() for row in features)
    return new_hmac(key, b"".join(sorted(rows)), "sha256").hexdigest()


def _entries_of(content: dict[str, Any], dataset: str, adjacency: str) -> list[dict[str, Any]]:
    """Return the charges of a data set. Raises InputError if their adjacency differs."""
    entries = [entry for entry in content["entries"] if entry["dataset"] == dataset]
    if any(entry["adjacency"] != adjacency for entry in entries):
        raise InputError(
            f"budget: runs with different adjacencies do not compose (got {adjacency}, expected "
            f"{entries[0]['adjacency']}). Fix: set privacy.unit and privacy.neighbours as in earlier runs."
        )
    return entries


def _adjacency(job: PlannedJob) -> str:
    unit = job.unit
    neighbours = "zero_out" if unit.zeroed else "replace"
    return f"{neighbours} {'agent' if unit.records is None else f'{unit.records} record(s)'}"


def _refusing_damage(path: Path | None) -> contextlib.AbstractContextManager[None]:
    return converting(
        _DAMAGED, lambda error: f"budget: {path} is damaged ({type(error).__name__}). Fix: restore a copy of the file."
    )
