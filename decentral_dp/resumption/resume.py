"""`resume`: goes on with a run, a study, an audit or an attack, and gives what it would have given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decentral_dp.errors import InputError
from decentral_dp.resumption.begun import Kind, begun_in
from decentral_dp.simulation import runner

if TYPE_CHECKING:
    import pandas as pd

    from decentral_dp.adversaries.attack.attack import Inference
    from decentral_dp.adversaries.audit.result import AuditResult
    from decentral_dp.problems.protocol import Problem
    from decentral_dp.simulation.plan import Plan
    from decentral_dp.simulation.runner import Run
    from decentral_dp.studies.study import Findings


def resume(
    folder: str | Path,
    problem: Problem | None = None,
    progress: Callable[..., None] | None = None,
    algorithm: Any = None,
    mechanism: Any = None,
    topology: Any = None,
    data: Any = None,
    partition: Any = None,
    rounds: int | None = None,
    priced: Callable[[Plan], None] | None = None,
    charge_again: bool = False,
) -> Run | Findings | AuditResult | Inference | pd.DataFrame:
    """Go on with a run, a study, an audit or an attack that was cut off: to the bit as without the interruption.

    A run goes on from the last state in its folder. What was released after that state is released again with the same
    draws: the same values, and no second release. With more rounds it is, to the bit, a run of so many rounds with the
    noise of this one: its schedule stays, and a budget that was a target is passed. Where secret noise was not kept
    (`run(keep_secret=False)`), what was in flight is released with other noise, and is charged once more: the ledger
    and the budget have both passes.

    Of a study finished cells are kept, and the others are computed; of an audit and an attack the runs so far are kept,
    and the others are made. Processes and Ray cluster are those that were asked for at the beginning.

    Args:
        folder: of a run, a study or a table of audits; of a complete run whose audit was interrupted; or the JSON file
            of an audit or an attack.
        progress: told of progress; of a run as by `run`, of a study as by `study`, else runs done and runs in all.
        problem, algorithm, mechanism, topology, data, partition: the objects that `run` was given, if any.
        rounds: of a run, in all, more than planned; by default as planned.
        priced: of a run, told of the plan of what is run, where it costs more than planned first, before any of it is
            run.
        charge_again: of a run, whether you agree to pay once more for what was in flight where secret noise was not
            kept; default False.

    Returns:
        The finished run; of a study its findings, of an audit or an attack what it shows, of several audits their
        table.

    Raises:
        InputError: there is nothing to go on with, it is complete or under way, or it is told something that is for
            runs alone; the records, the scenario or the versions are others than those of the beginning; the secret
            noise of a run was not kept and nobody agreed to pay again, or it would pass a cap or have other noise.
        Stopped: interrupted again.

    Limits:
        Attacks on a run without a seed have secret noise, and their missing runs draw it anew.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.resume("scenarios")
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(",")[0])
        resume: scenarios is no run folder
    """
    kind, place = begun_in(Path(folder))
    objects = {
        "problem": problem,
        "algorithm": algorithm,
        "mechanism": mechanism,
        "topology": topology,
        "data": data,
        "partition": partition,
    }
    if kind is Kind.RUN:
        return runner.resume(
            place, **objects, progress=progress, rounds=rounds, priced=priced, charge_again=charge_again
        )
    given = objects | {"rounds": rounds, "priced": priced, "charge_again": charge_again or None}
    refuse_for_others(kind, place, [name for name, value in given.items() if value is not None])
    # What is not asked for is not imported: studies and audits draw, and drawing is slow to import.
    if kind is Kind.STUDY:
        from decentral_dp.studies.study import resume_study

        return resume_study(place, progress)
    from decentral_dp.adversaries.resumed import resume_file, resume_table

    return resume_table(place, progress) if kind is Kind.AUDITS else resume_file(place, progress)


def refuse_for_others(kind: Kind, place: Path, given: list[str]) -> None:
    """Refuse what only a run can be told when it goes on.

    Args:
        kind: what goes on.
        place: where it is.
        given: names of what was given.

    Raises:
        InputError: something was, and it is no run.
    """
    if given and kind is not Kind.RUN:
        raise InputError(
            f"resume: {' and '.join(given)} {'is' if len(given) == 1 else 'are'} for a single run, and {place} is of "
            f"{kind.value}, which goes on as it was begun. Leave {'it' if len(given) == 1 else 'them'} out."
        )
