"""What `check` is asked to check, and the smallest scenario that it fits into."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from decentral_dp.algorithms import ALGORITHMS, Entry
from decentral_dp.algorithms.entry import entry_of_class
from decentral_dp.config import outside as outside
from decentral_dp.config.components import Components, resolve, with_objects
from decentral_dp.config.loading import load, shipped_names
from decentral_dp.config.missing_keys import algorithm_tables
from decentral_dp.config.scenario_components import deal
from decentral_dp.config.schema import Scenario
from decentral_dp.data import DATASETS, PARTITIONS, nearest
from decentral_dp.errors import InputError, quoted
from decentral_dp.privacy.mechanisms import MECHANISMS
from decentral_dp.problems import PROBLEMS
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.probing.probe import ROUNDS
from decentral_dp.topology import GENERATORS
from decentral_dp.user_code import component, in_module

Content = Mapping[str, Any]

# Nothing bounds its records, so that the clip alone does.
_DATA = {"data": "breast_cancer"}
# Tables of problems that an algorithm is tried on, by what it solves.
_PROBLEMS: Mapping[str, tuple[Content, ...]] = {
    "bilevel": ({"kind": "logistic_hyperparameter"}, {"kind": "logistic_regularisation"}),
    "minimax": (
        {"kind": "auc_maximisation", "positive_share": 0.5},
        {"kind": "group_dro", "strength": 1.0, "cap": 1.0},
    ),
}
_STEP = {"scale": 0.5}
# Graph → the algorithm that a problem is tried with on it.
_ALGORITHMS: Mapping[str, Content] = {
    "ring": {"kind": "ldp_dsbo", "x": _STEP, "y": _STEP, "z": _STEP},
    "star": {"kind": "dp_sgda", "x": _STEP, "y": _STEP},
}
# Which channels are clipped, in the order in which they are tried: a scenario that clips one too many is refused.
_CLIPS: tuple[tuple[str, ...], ...] = (("y", "z"), ("x", "y"), ("y",), ("x",), ("x", "y", "z"), ())
# Of a component that is named alone, in the scenario that is made for it.
_ROUNDS = 8


@dataclass(frozen=True)
class Target:
    """A component in a scenario. name: as it was asked for. problem, algorithm: objects in place of what is named."""

    name: str
    scenario: Scenario
    problem: Any = None
    algorithm: Any = None

    @property
    def rounds(self) -> int:
        """Those of the scenario."""
        return int(self.scenario.algorithm.rounds)

    def with_tables(self, **tables: Any) -> Scenario:
        """The scenario with other tables, and with the objects."""
        content = {**self.scenario.model_dump(exclude_unset=True), **tables}
        loaded = load(content, folder=self.scenario.folder)
        return with_objects(loaded, problem=self.problem, algorithm=self.algorithm)

    def with_rounds(self, rounds: int = ROUNDS, **tables: Any) -> Scenario:
        """The same of so many rounds, and of no more than it has."""
        table = self.scenario.algorithm.model_dump(exclude_unset=True)
        table = {**table, "rounds": min(rounds, self.rounds)}
        # Noise that was calibrated to many rounds says nothing here, and device and engine are those of this process.
        return self.with_tables(algorithm=table, run={}, **tables)

    @property
    def builds(self) -> bool:
        """Whether two rounds of it are a job."""
        try:
            return build_job(resolve(self.with_rounds())).rounds > 0
        except InputError:
            return False


def target_of(what: Any) -> tuple[Target, Components]:
    """What is checked, in a scenario, and all that the scenario names.

    Args:
        what: a shipped scenario, a .toml file, a dict or a `Scenario`; a registered algorithm or problem;
            "module:Name"; or an algorithm, a problem or an objective as a Python object, or a class
            without required fields.

    Raises:
        InputError: where nothing is called so, or what it names is not there.
    """
    target = _target(what)
    scenario = target.with_tables()
    if scenario.problem.manifest is not None:
        raise InputError(
            "check: it tries one agent and other graphs, and this scenario's records are with their agents "
            "(problem.manifest). Give problem.data whole, as any public or made-up records, and leave the manifest out."
        )
    # Names are looked up here, so that a wrong one is a mistake of whoever asks, and no fault of a component.
    c = resolve(scenario)
    deal(c, c.topology.make().n_agents)
    return target, c


def _target(what: Any) -> Target:
    if isinstance(what, Scenario | Mapping):
        loaded = load(what)
        return Target(loaded.title or "the scenario", loaded)
    if isinstance(what, Path):
        return Target(str(what), load(what))
    if not isinstance(what, str):
        return _of_object(what)
    if what.lower().endswith(".toml") or what in ALGORITHMS:
        return Target(what, load(what))
    if what in PROBLEMS:
        return _of_problem(what)
    if in_module(what) is not None or what.lower().endswith(".py"):
        return _of_code(what, component(what, [Path.cwd()], "check"))
    if what in shipped_names("scenario"):
        return Target(what, load(what))
    _refuse_untried(what)
    known = [*ALGORITHMS, *PROBLEMS, *shipped_names("scenario")]
    raise InputError(
        f"check: nothing is called {quoted(what)}; {nearest(what, known)}. Give an algorithm, a problem, a scenario, "
        'or "module:Name"; a topology, data, a partition or a mechanism is tried by checking a scenario that uses it.'
    )


def _refuse_untried(name: str) -> None:
    """Raises InputError for a name of ours that is no algorithm, problem or objective."""
    ours = {"topology": GENERATORS, "data": DATASETS, "partition": PARTITIONS, "mechanism": MECHANISMS}
    for group, registered in ours.items():
        if name in registered:
            kind = "data" if group == "data" else f"a {group}"
            raise InputError(
                f"check: {quoted(name)} is {kind}, and check tries algorithms, problems and scenarios. Check a "
                "scenario that uses it: a .toml file."
            )


def _of_problem(kind: str) -> Target:
    """A registered problem in the shortest shipped certified scenario, or in one that is made for it."""
    shipped = [load(name) for name in shipped_names("scenario")]
    fit = [s for s in shipped if s.problem.kind == kind and s.privacy.guarantee == "certified"]
    fit = [s for s in fit if not s.title.startswith("Figure")] or fit
    if fit:
        return Target(kind, min(fit, key=lambda s: s.algorithm.rounds))
    solves = PROBLEMS[kind].solves
    table = next((table for table in _PROBLEMS[solves] if table["kind"] == kind), {"kind": kind})
    return _first_that_builds(kind, _around_problem(table, solves))


def _of_code(name: str, code: Any) -> Target:
    if hasattr(code, "step"):
        return _first_that_builds(name, _around_algorithm(entry_of_class(code, name)))
    solves = _problem_type(code, name)
    options = outside.option_fields(code, name) if isinstance(code, type) else {}
    missing = [key for key, (_, default) in options.items() if default is ...]
    if missing:
        raise InputError(
            f"check: {name} has no default for {' and '.join(missing)}, so nothing says what to try. Give a scenario "
            f"that names it and sets {'it' if len(missing) == 1 else 'them'}: a .toml file."
        )
    return _first_that_builds(name, _around_problem({"kind": name}, solves))


def _of_object(what: Any) -> Target:
    name = what.__name__ if isinstance(what, type) else type(what).__name__
    if isinstance(what, type):
        try:
            what = what()
        except TypeError as error:
            raise InputError(
                f"check: {name} has fields without a default ({error}); give an object with all its fields set."
            ) from None
    if hasattr(what, "step"):
        # An object takes the place of an algorithm that is registered.
        around = _around_algorithm(entry_of_class(type(what), name))
        contents = ({**c, "algorithm": _with_rounds(_ALGORITHMS[c["topology"]["kind"]])} for c in around)
        return _first_that_builds(name, contents, algorithm=what)
    solves = _problem_type(what, name)
    return _first_that_builds(name, _around_problem(_PROBLEMS[solves][0], solves), problem=what)


def _problem_type(code: Any, name: str) -> outside.ProblemType:
    """As `outside.problem_type`, whose refusal says here what is tried at all."""
    try:
        if (kind := outside.problem_type(code, name)) is None:
            raise InputError(f"{name} is a function. Check a scenario that names it.")
        return kind
    except InputError as error:
        raise InputError(
            f"check: {name} is no algorithm, problem or objective. A topology, data, a partition or a mechanism is "
            f"tried by checking a scenario that uses it. If it is meant as a problem: {error}"
        ) from None


def _around_algorithm(entry: Entry) -> Iterator[dict[str, Any]]:
    """Small scenarios of an algorithm, one after another."""
    table = _with_rounds(tomllib.loads(algorithm_tables(entry))["algorithm"])
    return _scenarios(_PROBLEMS[entry.solves], entry.rules.graph, table)


def _around_problem(table: Content, solves: str) -> Iterator[dict[str, Any]]:
    """Small scenarios of a problem, one after another."""
    graph = "star" if solves == "minimax" else "ring"
    return _scenarios([table], graph, _with_rounds(_ALGORITHMS[graph]))


def _with_rounds(algorithm: Content) -> Content:
    return {**algorithm, "rounds": _ROUNDS}


def _scenarios(problems: Iterable[Content], graph: str, algorithm: Content) -> Iterator[dict[str, Any]]:
    for problem, clip in product(problems, _CLIPS):
        yield {
            "seed": 1,
            "problem": {**_DATA, **problem},
            "topology": {"kind": graph, "agents": 4},
            "algorithm": algorithm,
            "privacy": {"epsilon": 4.0, "delta": 1e-5, "clip": dict.fromkeys(clip, 1.0)},
        }


def _first_that_builds(name: str, contents: Iterable[Content], problem: Any = None, algorithm: Any = None) -> Target:
    """The first scenario that builds; where none does, the first that loads, whose refusal then says why."""
    refusal: InputError | None = None
    first: Target | None = None
    for content in contents:
        try:
            target = Target(name, load(content), problem, algorithm)
        except InputError as error:
            refusal = refusal or error
            continue
        first = first or target
        if target.builds:
            return target
    if first is None:
        raise refusal or InputError("check: no scenario fits; give one.")
    return first
