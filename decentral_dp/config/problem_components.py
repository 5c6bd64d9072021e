"""The problem that a scenario names, built from public facts of its data."""

from __future__ import annotations

from typing import Any

import numpy as np

from decentral_dp.config.components import Components
from decentral_dp.config.outside import Component
from decentral_dp.config.problem_schema import DECLARED_KEYS, ProblemTable
from decentral_dp.config.schema import Scenario, by_channel
from decentral_dp.data import Shards
from decentral_dp.errors import InputError
from decentral_dp.files.source_lines import place_in_class, place_of
from decentral_dp.models import devices
from decentral_dp.problems import BILEVEL, PROBLEMS, Facts
from decentral_dp.problems.entry import Entry
from decentral_dp.problems.minimax.protocol import Minimax
from decentral_dp.problems.protocol import Predictor, Problem
from decentral_dp.user_code import blamed, call

# What a whole problem of an author's has to have. One that is given as an object may be for a plan alone: what only
# evaluations ask for is not asked of it.
_WHOLE_BILEVEL = ("p", "q", "reads_records", "prepare", "terms", "regulariser")
_EVALUATED_BILEVEL = ("regulariser_value", "losses", "accuracy", "constants")
_WHOLE_MINIMAX = ("p", "q", "start", "terms", "width", "prepare", "public", "sums", "known", "project_x", "project_y")
_EVALUATED_MINIMAX = ("scores",)


def problem_options(c: Components) -> dict[str, Any]:
    """What a scenario says of its problem, by key of the [problem] table. Reads no record.

    Raises InputError for what the problem would leave unread, or lacks.
    """
    table = c.scenario.problem
    if c.problem.is_outside:
        return dict(vars(c.problem.make())) if isinstance(c.problem.value, type) else {}
    entry = PROBLEMS[table.kind]
    if c.levels == 1 and table.validation is not None:
        which = "a minimax problem" if entry.solves == "minimax" else table.kind
        raise InputError(f"problem.validation: {which} takes none. Leave it out.")
    return _declared_options(table, entry)


def _declared_options(table: ProblemTable, entry: Entry) -> dict[str, Any]:
    """The options of a registered problem. Raises InputError for what it would leave unread, or lacks."""
    given = {k: v for k in DECLARED_KEYS if (v := getattr(table, k)) is not None and v is not False}
    for key in given:
        if key not in entry.options:
            takers = ", ".join(kind for kind, e in PROBLEMS.items() if key in e.options)
            raise InputError(f"problem.{key}: {table.kind} takes none, only {takers}. Leave it out.")
    for key, share in entry.constructed.items():
        if (value := getattr(table.construction, share, None)) is not None:
            given.setdefault(key, value)
    for key in entry.needed:
        if key not in given:
            raise InputError(f"problem.{key}: missing. {table.kind} needs it.")
    return given


def _registered(c: Components, shards: Shards) -> Any:
    """The registered problem that the scenario names, from its keys and public facts of the data."""
    s, options = c.scenario, problem_options(c)
    entry = PROBLEMS[s.problem.kind]
    if entry.every_class and s.privacy.guarantee != "certified":
        _check_present(entry.kind, shards)
    if "losses" in options:
        options["losses"] = str(s.resolve(options["losses"]))
    if (loss := c.files.get(("problem", "loss"))) is not None:
        options["loss"] = str(loss)
    if isinstance(options.get("positive_share"), str):
        options["positive_share"] = _positive_share(options["positive_share"], shards)
    return entry.build(options, _facts(c, shards))


def predictor_of(s: Scenario, facts: Facts) -> Predictor | None:
    """The registered problem whose weights predict, from public facts alone; None where it does not predict.

    Args:
        s: the scenario.
        facts: of its data.
    """
    entry = BILEVEL.get(s.problem.kind)
    if entry is None or entry.in_torch:
        return None
    made = entry.build(_declared_options(s.problem, entry), facts)
    return made if isinstance(made, Predictor) else None


def _facts(c: Components, shards: Shards) -> Facts:
    s = c.scenario
    return Facts(
        shards.features.shape[1],
        len(shards.classes),
        shards.image,
        shards.n_agents,
        s.records_seed,
        s.run.device,
        s.folder,
        shards.l2,
        shards.trajectory,
        {} if s.privacy.guarantee == "none" else by_channel(s.privacy.clip),
    )


def minimax_of(c: Components, shards: Shards) -> Minimax:
    """The minimax problem, from public facts of the data."""
    problem: Minimax = _minimax_from_outside(c, shards) if c.problem.is_outside else _registered(c, shards)
    return problem


def _minimax_from_outside(c: Components, shards: Shards) -> Minimax:
    """The minimax problem of an author's class or object: an objective on a model's outputs, or the whole."""
    table, name = c.scenario.problem, c.problem.name
    facts = _facts(c, shards)
    author = _for_data(c.problem.make(), facts, name)
    if hasattr(author, "sums"):
        _check_whole(c.problem, author, _WHOLE_MINIMAX, _EVALUATED_MINIMAX)
        whole: Minimax = author
        return whole
    from decentral_dp.problems.minimax.composite import Composite
    from decentral_dp.problems.minimax.losses import recordwise_objective

    objective = author if hasattr(author, "statistics") else recordwise_objective(author, len(shards.classes), name)
    outputs = objective.outputs if hasattr(objective, "outputs") else max(1, len(shards.classes))
    return Composite(facts.model(outputs, table.model), objective)


def _positive_share(stated: str, shards: Shards) -> float:
    """A stand-in for what is released before it is used; or the counted share, which nothing certifies."""
    if stated == "released":
        return 0.5
    return float(np.mean(shards.labels[np.concatenate(shards.train)] == 1))


def _check_present(kind: str, shards: Shards) -> None:
    """Refuse a declared class without a train record, where the problem says nothing of the others without it.

    Which classes have records is private, so that a certified run goes on: its normalisers are public, the number of
    records and the declared shares, and an empty class adds 0 to every sum. Raises InputError.
    """
    if not shards.classes or shards.elsewhere or not shards.drawn:
        return
    counts = np.bincount(shards.labels[np.concatenate(shards.train)], minlength=len(shards.classes))
    if (counts == 0).any():
        label = shards.classes[int(np.argmin(counts))]
        raise InputError(
            f"problem.data: no train record of {shards.source!r} has the class {label!r}, and {kind} needs "
            "records of every class. Give other records, or other classes."
        )


def check_device(c: Components) -> None:
    """Refuse a device that is not there, or that the problem would not compute on. Reads no record.

    Raises InputError.
    """
    s, given = c.scenario, c.problem.is_object
    device, kind = s.run.device, s.problem.kind
    if device != "cpu" and not given and kind in BILEVEL and not BILEVEL[kind].in_torch:
        raise InputError(_on_processor(kind))
    devices.check_device(device, "run.device")
    wanted = {device, getattr(c.problem.value, "device", "cpu") if given else "cpu"}
    if s.run.engine == "ray" and wanted != {"cpu"}:
        raise InputError(
            'run.device: Ray starts actors without a GPU. Take run.engine = "local", or compute on the "cpu".'
        )


def _on_processor(kind: str) -> str:
    return (
        f"run.device: {kind} computes in numpy, on the CPU; only from_losses, other problems in torch and models of "
        'minimax problems can use "cuda". Leave it out.'
    )


def _for_data(found: Any, facts: Any, name: str) -> Any:
    """What an author's `for_data` gives for these public facts; without one, the object itself.

    Raises:
        InputError: it raises, or gives no problem.
    """
    if not hasattr(found, "for_data"):
        return found
    place = place_in_class(type(found), "for_data")
    made = call(
        found.for_data, {"facts": facts}, lambda e: f"problem.kind: {name}: for_data fails with {blamed(e, place)}."
    )
    if not any(hasattr(made, method) for method in ("lower_grad_y", "slopes", "terms", "sums", "statistics")):
        raise InputError(
            f"problem.kind: {name}: for_data gives {type(made).__name__}{place}; wanted an object with the methods of "
            "a problem. Mend it."
        )
    return made


def _check_whole(problem: Component, found: Any, needed: tuple[str, ...], evaluated: tuple[str, ...]) -> None:
    """Refuse a whole problem of an author's that lacks something. Raises InputError."""
    wanted = needed if problem.is_object else (*needed, *evaluated)
    missing = [part for part in wanted if not hasattr(found, part)]
    if missing:
        raise InputError(
            f"problem.kind: {problem.name} lacks {', '.join(missing)}, which a whole problem that clips by itself has"
            f"{place_of(type(found))}. Define it, or give formulas of single records."
        )


def problem_of(c: Components, shards: Shards) -> Problem:
    """The problem, from public facts of the data, on its device."""
    problem, device = _problem_of(c, shards), c.scenario.run.device
    if device == "cpu":
        # What is handed over as an object is where its maker put it.
        return problem
    from decentral_dp.problems.bilevel.losses import LossProblem, on_device

    if isinstance(problem, LossProblem):
        return on_device(problem, device)
    if getattr(problem, "device", "cpu") != device:
        raise InputError(_on_processor(c.problem.name))
    return problem


def _problem_of(c: Components, shards: Shards) -> Problem:
    if not c.problem.is_outside:
        registered: Problem = _registered(c, shards)
        return registered
    facts = _facts(c, shards)
    name = c.problem.name
    author = _for_data(c.problem.make(), facts, name)
    if hasattr(author, "terms"):
        _check_whole(c.problem, author, _WHOLE_BILEVEL, _EVALUATED_BILEVEL)
        whole: Problem = author
        return whole
    from decentral_dp.problems.bilevel.recordwise import recordwise

    return recordwise(author, facts.n_features, facts.n_classes, name)
