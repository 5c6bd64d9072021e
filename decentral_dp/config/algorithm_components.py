"""The algorithm that a scenario names, built: registered, from a file, from an installed package, or an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pydantic import ValidationError, create_model

from decentral_dp.algorithms import ALGORITHMS, Entry, Options
from decentral_dp.algorithms.coordinator_protocol import Coordinated
from decentral_dp.algorithms.entry import example_of
from decentral_dp.algorithms.outside_algorithms import entry_of_class
from decentral_dp.algorithms.protocol import Algorithm, StepSize
from decentral_dp.config.algorithm_schema import (
    ALGORITHM_TABLES,
    AlgorithmTable,
    DomainTable,
    OutsideAlgorithmTable,
    Step,
    own_fields,
)
from decentral_dp.config.loading import explain
from decentral_dp.config.schema import Scenario, by_channel
from decentral_dp.data import nearest
from decentral_dp.errors import InputError, quoted
from decentral_dp.privacy.fingerprint import digest_of
from decentral_dp.user_code import blamed, call, find_outside, in_file


def entry_of(s: Scenario) -> Entry:
    """What is known of the algorithm; one from outside is found once. Raises InputError where there is none."""
    kind = s.algorithm.kind
    if s._outside is not None and s._outside[0] == kind:
        entry: Entry = s._outside[1]
        return entry
    if kind in ALGORITHMS:
        return ALGORITHMS[kind]
    found = find_outside("algorithm", kind, s.folder, "algorithm.kind")
    if found is None:
        raise InputError(f"algorithm.kind: no algorithm {kind!r}; {nearest(kind, ALGORITHMS)}.")
    entry = outside_entry(found, kind)
    s._outside = (kind, entry)
    return entry


def outside_source(s: Scenario) -> str:
    """What an algorithm from outside does, where no file that the scenario names says it; else nothing."""
    try:
        return entry_of(s).source if isinstance(s.algorithm, OutsideAlgorithmTable) else ""
    except InputError:
        # Refused where it is built.
        return ""


def outside_entry(found: Any, kind: str) -> Entry:
    """The entry of a class that a file or an installed package has. Raises InputError for what is no algorithm."""
    place = in_file(kind)
    if place is not None:
        # The file itself is hashed, wherever it is.
        return entry_of_class(found, kind, place.file)
    return entry_of_class(found, kind, "an installed package", digest_of(found))


def with_algorithm(s: Scenario, algorithm: Any) -> Scenario:
    """The scenario with an algorithm that is given as a Python object: a dataclass with its fields filled in.

    Raises InputError for what is no algorithm.
    """
    if isinstance(algorithm, type):
        raise InputError(
            f"algorithm: got the class {algorithm.__name__}; wanted an object of it, {algorithm.__name__}(…) with its "
            "options."
        )
    made = type(algorithm)
    ours = next((entry for entry in ALGORITHMS.values() if entry.algorithm is made), None)
    entry = ours or entry_of_class(made, made.__name__, "a Python object", digest_of(made))
    values = {o.key: getattr(algorithm, o.key) for o in entry.keys if o.key != "domain"}
    # Fields that are no keys are in no scenario.
    hidden = {f.name: getattr(algorithm, f.name) for f in fields(algorithm) if f.name not in values}
    steps = {k: {"scale": v.scale, "decay": v.decay} for k, v in values.items() if isinstance(v, StepSize)}
    lists = {k: list(v) for k, v in values.items() if isinstance(v, tuple)}
    given = {k: v for k, v in (values | steps | lists).items() if v is not None}
    if "domain" in s.algorithm.own_keys() and "domain" in (*entry.options, *entry.optional):
        given["domain"] = s.algorithm.own_keys()["domain"]
    common = {"kind": entry.kind, "rounds": s.algorithm.rounds, "init": s.algorithm.init}
    made_scenario = s.model_copy(update={"algorithm": OutsideAlgorithmTable.model_validate(common | given)})
    source = f"{entry.source} {digest_of(dict(sorted(hidden.items())))}"
    made_scenario._outside = (entry.kind, entry._replace(instance=algorithm, source=source))
    if entry.kind != s.algorithm.kind:
        made_scenario._replaced = s._replaced | {"algorithm"}
    if ours is None:
        made_scenario._objects = {**s._objects, "algorithm": made.__name__}
    return made_scenario


def is_coordinated(s: Scenario) -> bool:
    """Whether the algorithm is the program of a trusted coordinator."""
    return entry_of(s).trusted


def own_keys(s: Scenario) -> dict[str, Any]:
    """What the scenario says of the algorithm's own keys. Raises InputError for values that they cannot have."""
    if not isinstance(s.algorithm, OutsideAlgorithmTable):
        return s.algorithm.own_keys()
    made: Any = own_fields(entry_of(s).keys, ALGORITHM_TABLES)
    table = create_model("AlgorithmKeys", __base__=AlgorithmTable, **made)
    root = create_model("Scenario", algorithm=(table, ...))
    try:
        checked: Any = root.model_validate({"algorithm": s.algorithm.model_dump(exclude_unset=True)})
    except ValidationError as error:
        raise InputError(explain(error, root)) from None
    keys: dict[str, Any] = checked.algorithm.own_keys()
    return keys


def algorithm_of(s: Scenario) -> Algorithm | Coordinated:
    """The algorithm, with every key that it needs and none that it would leave unread."""
    table, entry = s.algorithm, entry_of(s)
    if table.protocol == "private" and not entry.private:
        raise InputError(f'algorithm.protocol: {table.kind} knows no "private" protocol. Leave it out.')
    given, taken = own_keys(s), {o.key: o for o in entry.keys}
    _check_taken(table.kind, [key for key in given if key not in taken])
    _check_sampler(table, entry)
    for key in entry.options:
        if key not in given:
            add = example_of(taken[key])
            raise InputError(f"algorithm.{key}: missing. {table.kind} needs it; add for example {add}.")
    if s.privacy.constants is not None and s.privacy.guarantee in entry.loss_range:
        raise InputError(
            f"privacy.constants: {table.kind} draws by losses, and how far losses of records differ no declared "
            'constant says, so that nothing bounds what one record moves. Take "second_order_dp_bilevel", or a problem '
            "with analytic constants."
        )
    values = {k: _value(v) for k, v in given.items() if not isinstance(v, DomainTable)}
    options = Options(values, by_channel(table.init), table.protocol)
    if not entry.origin:
        return entry.build(options, s.privacy.guarantee)
    if s.privacy.guarantee == "as_printed" and entry.complete is not None:
        raise InputError(f'privacy.guarantee: {table.kind} states no noise of a paper. Use "certified", or "none".')
    made: Algorithm | Coordinated = call(
        entry.build,
        {"options": options, "guarantee": s.privacy.guarantee},
        lambda e: f"algorithm.kind: {table.kind} cannot be made: {blamed(e)}. Mend it, or its keys.",
    )
    return made


def _check_taken(kind: str, unread: Sequence[str]) -> None:
    """Refuse keys that the algorithm would leave unread, all at once. Raises InputError."""
    out = " ".join(f"--unset algorithm.{key}" for key in unread)
    if len(unread) == 1:
        takers = [name for name, e in ALGORITHMS.items() if unread[0] in (*e.options, *e.optional)]
        raise InputError(f"algorithm.{unread[0]}: {kind} takes none, only {', '.join(takers)}. Leave it out ({out}).")
    if unread:
        named = ", ".join(f"algorithm.{key}" for key in unread)
        raise InputError(f"{named}: {kind} takes none of these. Leave them out ({out}).")


def _value(given: Any) -> Any:
    """The value of a field."""
    if isinstance(given, Step):
        return StepSize(given.scale, given.decay)
    return tuple(given) if isinstance(given, list) else given


def _check_sampler(table: AlgorithmTable, entry: Entry) -> None:
    """Refuse samples that are no Poisson samples, and a sampler where nothing is sampled. Raises InputError."""
    if table.sampler is None:
        return
    if entry.solves != "minimax" or "rate" not in (*entry.options, *entry.optional):
        raise InputError(f"algorithm.sampler: {table.kind} takes none. Leave it out.")
    if table.sampler != "poisson":
        raise InputError(
            f"algorithm.sampler: {quoted(table.sampler)} samples cannot be priced, only Poisson samples can: batches "
            "with fixed counts per class are none, and how many records a class has is private. Leave it out, or set "
            '"poisson".'
        )
