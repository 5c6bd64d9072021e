"""What `check` is asked to check, and the smallest scenario that it fits into."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from decentral_dp.algorithms import ALGORITHMS, Entry
from decentral_dp.config import outside as outside
from decentral_dp.config.algorithm_tables import algorithm_tables
from decentral_dp.config.components import outside_entry, resolve, with_objects
from decentral_dp.config.loading import load, scenario_names
from decentral_dp.config.scenario_components import deal
from decentral_dp.config.schema import Scenario
from decentral_dp.data import DATASETS, PARTITIONS, nearest
from decentral_dp.errors import InputError, quoted
from decentral_dp.privacy.mechanisms import MECHANISMS
from decentral_dp.problems import PROBLEMS
from decentral_dp.problems.minimax import MINIMAX
from decentral_dp.simulation.jobs.build import assemble
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.topology import GENERATORS
from decentral_dp.user_code import find_outside, in_file, installed

Content = Mapping[str, Any]

# Nothing bounds its records, so that the clip alone does.
_DATA = {"data": "breast_cancer"}
# Problem kind → the table of its smallest scenario; the first of each is what an algorithm is tried on.
_PROBLEMS: Mapping[str, Mapping[str, Content]] = {
    "bilevel": {kind: {"kind": kind} for kind in ("logistic_hyperparameter", "logistic_regularisation")},
    "minimax": {
        "auc_maximisation": {"kind": "auc_maximisation", "positive_share": 0.5},
        "group_dro": {"kind": "group_dro", "strength": 1.0, "cap": 1.0},
    },
}
# Which channels are clipped, in the order in which they are tried: a scenario that clips one too many is refused.
_CLIPS: tuple[tuple[str, ...], ...] = (("y", "z"), ("x", "y"), ("y",), ("x",), ("x", "y", "z"), ())
_FEWEST = 2
# Of a component that is named alone, in the scenario that is made for it.
_ROUNDS = 8


@dataclass(frozen=True)
class Subject:
    """A component in a scenario. name: as it was asked for. problem, algorithm: objects in place of what is named."""

    name: str
    scenario: Scenario
    problem: Any = None
    algorithm: Any = None

    def changed(self, **tables: Any) -> Scenario:
        """The scenario with other tables, and with the objects."""
        content = {**self.scenario.model_dump(exclude_unset=True), **tables}
        loaded = load(content, folder=self.scenario.folder)
        return with_objects(loaded, problem=self.problem, algorithm=self.algorithm)

    @property
    def rounds(self) -> int:
        """Those of the scenario."""
        return int(self.scenario.algorithm.rounds)

    def short(self, rounds: int = _FEWEST, **tables: Any) -> Scenario:
        """The same of so many rounds, and of no more than it has."""
        table = self.scenario.algorithm.model_dump(exclude_unset=True)
        table = {**table, "rounds": min(rounds, self.rounds)}
        # Noise that was calibrated to many rounds says nothing here, and device and engine are those of this process.
        return self.changed(algorithm=table, run={}, **tables)


def subject(what: Any) -> Subject:
    """What is checked, in a scenario that its names are looked up in.

    Args:
        what: a shipped scenario, a .toml file, a dict or a `Scenario`; a registered algorithm or problem;
            "file.py:Name"; an entry point; or an algorithm, a problem or an objective as a Python object, or a class
            without required fields.

    Raises:
        InputError: where nothing is called so, or what it names is not there.
    """
    found = _subject(what)
    scenario = found.changed()
    if scenario.problem.manifest is not None:
        raise InputError(
            "check: it tries one agent and other graphs, and this scenario's records are with their agents "
            "(problem.manifest). Give problem.data whole, as any public or made-up records, and leave the manifest out."
        )
    # Names are looked up here, so that a wrong one is a mistake of whoever asks, and no fault of a component.
    c = resolve(scenario)
    deal(c, c.topology.make().n_agents)
    return found


def _subject(what: Any) -> Subject:
    if isinstance(what, Scenario | Mapping):
        loaded = load(what)
        return Subject(loaded.title or "the scenario", loaded)
    if isinstance(what, Path):
        return Subject(str(what), load(what))
    if isinstance(what, type) and "<" not in what.__qualname__:
        file = inspect.getsourcefile(what)
        # A class by its file, so that what has no default is filled in as there.
        if file is not None and Path(file).is_file() and "." not in what.__qualname__:
            return _subject(f"{file}:{what.__name__}")
    if not isinstance(what, str):
        return _of_object(what)
    if what.lower().endswith(".toml"):
        return Subject(what, load(what))
    if what in ALGORITHMS:
        return Subject(what, load(what))
    if what in PROBLEMS or what in MINIMAX:
        return Subject(what, _of_problem(what))
    if in_file(what) is not None or what.lower().endswith(".py"):
        return _of_code(what, find_outside("algorithm", what, Path.cwd(), "check"))
    if what in scenario_names():
        return Subject(what, load(what))
    for group in ("algorithm", "problem", "objective"):
        if what in installed(group):
            return _of_code(what, find_outside(group, what, Path.cwd(), "check"))
    _refuse_untried(what)
    known = [*ALGORITHMS, *PROBLEMS, *MINIMAX, *scenario_names()]
    raise InputError(
        f"check: nothing is called {quoted(what)}; {nearest(what, known)}. Give an algorithm, a problem, a scenario, "
        'or "file.py:Name"; a topology, data, a partition or a mechanism is tried by checking a scenario that uses it.'
    )


def _refuse_untried(name: str) -> None:
    """Raises InputError for a name of ours, or of an installed package, that is no algorithm, problem or objective."""
    ours = {"topology": GENERATORS, "data": DATASETS, "partition": PARTITIONS, "mechanism": MECHANISMS}
    for group, registered in ours.items():
        if name in registered or name in installed(group):
            kind = "data" if group == "data" else f"a {group}"
            raise InputError(
                f"check: {quoted(name)} is {kind}, and check tries algorithms, problems and scenarios. Check a "
                "scenario that uses it: a .toml file."
            )


def _of_problem(kind: str) -> Scenario:
    """The first shipped certified scenario of a registered problem."""
    shipped = [load(name) for name in scenario_names()]
    fit = [s for s in shipped if s.problem.kind == kind and s.privacy.guarantee == "certified"]
    fit = [s for s in fit if not s.title.startswith("Figure")] or fit
    if fit:
        return min(fit, key=lambda s: s.algorithm.rounds)
    solves = "minimax" if kind in MINIMAX else "bilevel"
    table = {**_DATA, **_PROBLEMS[solves].get(kind, {"kind": kind})}
    return _first([_with_problem(table, solves, clip) for clip in _CLIPS])


def _of_code(name: str, found: Any) -> Subject:
    if hasattr(found, "step"):
        return Subject(name, _of_entry(outside_entry(found, name)))
    _refuse_mechanism(name, found)
    solves = _problem_type(found, name)
    missing = _without_default(found, name)
    if missing:
        raise InputError(
            f"check: {name} has no default for {' and '.join(missing)}, so nothing says what to try. Give a scenario "
            f"that names it and sets {'it' if len(missing) == 1 else 'them'}: a .toml file."
        )
    return Subject(name, _first([_with_problem({**_DATA, "kind": name}, solves, clip) for clip in _CLIPS]))


def _refuse_mechanism(name: str, found: Any) -> None:
    """Raises InputError for a mechanism, which draws and prices noise and reads no record."""
    if hasattr(found, "sample") and hasattr(found, "cost"):
        raise InputError(
            f"check: {name} is a mechanism, and check tries algorithms, problems and scenarios. Its tests are "
            "described in docs/add_a_mechanism.md."
        )


def _problem_type(found: Any, name: str) -> outside.ProblemType:
    """As `outside.problem_type`, whose refusal says here what is tried at all."""
    try:
        return outside.problem_type(found, name)
    except InputError as error:
        raise InputError(
            f"check: {name} is no algorithm, problem or objective. A topology, data or a partition is tried by "
            f"checking a scenario that uses it. If it is meant as a problem: {error}"
        ) from None


def _without_default(found: Any, name: str) -> list[str]:
    """The options of a class that a scenario has to set."""
    options = outside.option_fields(found, name) if isinstance(found, type) else {}
    return [key for key, (_, default) in options.items() if default is ...]


def _of_object(what: Any) -> Subject:
    name = what.__name__ if isinstance(what, type) else type(what).__name__
    _refuse_mechanism(name, what)
    if isinstance(what, type):
        try:
            what = what()
        except TypeError as error:
            raise InputError(
                f"check: {name} has fields without a default ({error}); give an object with all its fields set."
            ) from None
    if hasattr(what, "step"):
        for content in _around(outside_entry(type(what), name)):
            tried = Subject(name, _base(content), algorithm=what)
            if _builds(tried):
                return tried
        return Subject(name, _base(next(_around(outside_entry(type(what), name)))), algorithm=what)
    solves = _problem_type(what, name)
    table = {**_DATA, **next(iter(_PROBLEMS[solves].values()))}
    table = table if solves == "bilevel" else table | {"positive_share": 0.5}
    every = [Subject(name, load(_with_problem(table, solves, clip)), problem=what) for clip in _CLIPS]
    return next((tried for tried in every if _builds(tried)), every[0])


def _base(content: Content) -> Scenario:
    """A scenario whose algorithm an object takes the place of: its kind is one that is registered."""
    table = content["algorithm"]
    ours = "dp_sgda" if content["topology"]["kind"] == "star" else "ldp_dsbo"
    return load({**content, "algorithm": {"kind": ours, "rounds": table["rounds"]} | _steps(ours)})


def _steps(kind: str) -> dict[str, Any]:
    step = {"scale": 0.5}
    return {"x": step, "y": step} | ({"z": step} if kind == "ldp_dsbo" else {})


def _of_entry(entry: Entry) -> Scenario:
    return _first(list(_around(entry)))


def _around(entry: Entry) -> Iterator[Content]:
    """Scenarios of an algorithm, one after another."""
    written = tomllib.loads(algorithm_tables(entry))
    solves = _PROBLEMS[entry.solves].values()
    for problem, clip in product(solves, _CLIPS):
        yield {
            "seed": 1,
            "problem": {**_DATA, **problem},
            "topology": {"kind": "star" if entry.trusted else "ring", "agents": 4},
            "algorithm": {**written["algorithm"], "rounds": _ROUNDS},
            "privacy": _privacy(clip),
        }


def _with_problem(table: Content, solves: str, clip: Sequence[str]) -> Content:
    kind = "dp_sgda" if solves == "minimax" else "ldp_dsbo"
    return {
        "seed": 1,
        "problem": table,
        "topology": {"kind": "star" if solves == "minimax" else "ring", "agents": 4},
        "algorithm": {"kind": kind, "rounds": _ROUNDS} | _steps(kind),
        "privacy": _privacy(clip),
    }


def _privacy(clip: Sequence[str]) -> Content:
    return {"epsilon": 4.0, "delta": 1e-5, "clip": dict.fromkeys(clip, 1.0)}


def _first(contents: Sequence[Content]) -> Scenario:
    """The first scenario that builds; where none does, the first, whose refusal then says why."""
    refused: InputError | None = None
    kept: Scenario | None = None
    for content in contents:
        try:
            loaded = load(content)
        except InputError as error:
            refused = refused or error
            continue
        kept = kept or loaded
        if _builds(Subject("", loaded)):
            return loaded
    if kept is None:
        raise refused or InputError("check: no scenario fits; give one.")
    return kept


def _builds(tried: Subject) -> bool:
    try:
        job: Job = assemble(resolve(tried.short()))
    except InputError:
        return False
    return job.rounds > 0
