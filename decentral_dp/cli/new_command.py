"""A new scenario from flags and answers. Of a CSV file the names of its columns are read, and no record."""

from __future__ import annotations

import math
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.cli.scenario_text import scenario_text
from decentral_dp.config.loading import find, load, nearest_of, read_toml, scenario_names
from decentral_dp.config.missing_keys import missing_keys
from decentral_dp.data import DATASETS, nearest
from decentral_dp.data.record_files import read_header
from decentral_dp.errors import InputError, printable, quoted, quoted_path
from decentral_dp.files.regular import regular
from decentral_dp.problems import PROBLEMS
from decentral_dp.problems.minimax import MINIMAX
from decentral_dp.topology import GENERATORS

_ALGORITHM, _DATA = "ldp_dsbo", "breast_cancer"
# The scenario that an algorithm's new ones start from; else the one of its own name.
_BASES = {"ldp_dsbo": "ring_breast_cancer"}
# Columns that say who holds a record, and its part, by their names alone.
_AGENT, _SPLIT = "agent", "split"
# Ranges of more columns are filled in with an editor, not one by one.
_MOST_ASKED = 20
_PLACEHOLDER = "PLACEHOLDER: put the public range here"
_RANGES = (
    "Public range of every feature, [low, high]: from its meaning or unit, as [0, 120] for an age. Never take it from "
    "the records: it would tell of them, and no noise covers that. Values outside are cut."
)


@dataclass(frozen=True)
class Wishes:
    """What is asked for; None and empty where nothing is said.

    Args:
        csv: the records.
        data: bundled records instead.
        label: of the CSV, its label column.
        classes: the labels that there may be.
        ranges: column → public range.
        agents, topology, problem, algorithm, rounds, epsilon, delta: as in a scenario.
    """

    csv: Path | None = None
    data: str | None = None
    label: str | None = None
    classes: Sequence[Any] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    agents: int | None = None
    topology: str | None = None
    problem: str | None = None
    algorithm: str | None = None
    rounds: int | None = None
    epsilon: float | None = None
    delta: float | None = None


def carry_out(out: Path | None, wishes: Wishes) -> None:
    """Ask for what is missing where somebody can answer, write the scenario, and say what to do next."""
    if out is not None:
        _require_new(out)
    if sys.stdin.isatty():
        wishes = asked(wishes)
    path = out or Path(f"{wishes.csv.stem if wishes.csv is not None else 'scenario'}.toml")
    _require_new(path)
    content, notes = made(wishes, path.parent)
    text = scenario_text(content, notes)
    # Refused here if anything in it could not be run; of the records nothing is read.
    load(tomllib.loads(text), folder=path.parent.absolute())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _require_new(path)
    except OSError as error:
        raise InputError(f"new: {quoted_path(path)} cannot be written ({error.strerror}). Give another path.") from None
    typer.echo(printable(f"Written: {path}"))
    for warning in placeholders(notes):
        typer.echo(printable(warning))
    typer.echo(printable(f"Next: decentral-dp plan {path}, then decentral-dp run {path}"))


def _require_new(path: Path) -> None:
    if path.exists():
        raise InputError(f"new: {quoted_path(path)} exists already, and nothing is written over. Give another name.")


def placeholders(notes: Mapping[str, str]) -> list[str]:
    """What has to be filled in before the scenario is worth running, a sentence each."""
    ranges = [key.rpartition(".")[2] for key, note in notes.items() if note == _PLACEHOLDER]
    said = []
    if "PLACEHOLDER" in notes.get("problem.classes", ""):
        said.append("Put the labels that there may be into problem.classes: they are not read off the records.")
    if ranges:
        named = ", ".join(ranges[:5]) + (" …" if len(ranges) > 5 else "")
        said.append(f"Put public ranges into [problem.scale] for {named}: [0, 1] is a placeholder, and values are cut.")
    return said


def parsed_range(text: str, columns: Sequence[str]) -> tuple[str, tuple[float, float]]:
    """Read "column=low:high". Raises InputError for what is none, or for a column that is not there."""
    name, equals, ends = text.rpartition("=")
    if not equals:
        raise InputError(f"--range: got {quoted(text)}, wanted COLUMN=LOW:HIGH, for example age=0:120.")
    if name not in columns:
        raise InputError(f"--range: {quoted(name)} is no feature column{nearest_of(name, columns)}.")
    return name, _ends(ends, f"--range {name}")


def _ends(text: str, where: str) -> tuple[float, float]:
    try:
        low, high = (_number(part) for part in text.split(":"))
    except ValueError:
        low, high = math.nan, math.nan
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"{where}: got {quoted(text)}, wanted LOW:HIGH, two numbers of which the first is smaller.")
    return low, high


def parsed_classes(text: str) -> list[Any]:
    """Labels separated by commas; those that are numbers as numbers."""
    return [_label(part.strip()) for part in text.split(",") if part.strip()]


def _number(text: str) -> float:
    """A whole number stays one. Raises ValueError."""
    return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)


def _label(text: str) -> Any:
    try:
        return _number(text)
    except ValueError:
        return text


def columns_of(path: Path) -> list[str]:
    """The names of a CSV file's columns."""
    return read_header(regular(path, "new"), f"new: {quoted_path(path)}")


def features_of(columns: Sequence[str], label: str | None) -> list[str]:
    """The columns that are neither label, nor owner, nor part."""
    return [column for column in columns if column not in (label, _AGENT, _SPLIT)]


def made(wishes: Wishes, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The content of a scenario, and notes by dotted key. folder: where it will be, from which paths start."""
    kind = wishes.algorithm or _ALGORITHM
    if kind not in ALGORITHMS:
        raise InputError(f"--algorithm: no algorithm {quoted(kind)}; {nearest(kind, ALGORITHMS)}.")
    base_name = _BASES.get(kind, kind)
    base = read_toml(find(base_name)) if base_name in scenario_names() else {}
    notes: dict[str, str] = {}
    content: dict[str, Any] = {
        "title": "",
        "problem": _problem(wishes, base.get("problem", {}), folder, notes),
        "topology": _topology(wishes, base.get("topology", {})),
        "algorithm": {**base.get("algorithm", {}), "kind": kind},
        "privacy": dict(base.get("privacy", {})),
        "run": dict(base.get("run", {})),
    }
    if wishes.rounds is not None:
        content["algorithm"]["rounds"] = wishes.rounds
    for key, wanted in (("epsilon", wishes.epsilon), ("delta", wishes.delta)):
        if wanted is not None and content["privacy"].get("guarantee") == "none":
            raise InputError(f"--{key}: {kind} adds no noise and has no ε. Leave it out, or take another algorithm.")
        content["privacy"] |= {} if wanted is None else {key: wanted}
    for key, usual in missing_keys(content).items():
        table, *rest = key.split(".")
        _put(content[table], rest, tomllib.loads(f"v = {usual or 2}")["v"])
    problem, m = content["problem"], content["topology"]["agents"]
    content["title"] = f"{kind} on {Path(problem['data']).stem}: {problem['kind']}, {m} agents"
    return content, notes


def _put(table: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    table[keys[-1]] = value


def _topology(wishes: Wishes, base: Mapping[str, Any]) -> dict[str, Any]:
    kind = wishes.topology or base.get("kind", "ring")
    if kind not in GENERATORS:
        raise InputError(f"--topology: no generator {quoted(kind)}; {nearest(kind, GENERATORS)}.")
    same = kind == base.get("kind")
    kept = {key: value for key, value in base.items() if same or key == "weights"}
    return {**kept, "kind": kind, "agents": wishes.agents if wishes.agents is not None else base.get("agents", 10)}


def _problem(wishes: Wishes, base: Mapping[str, Any], folder: Path, notes: dict[str, str]) -> dict[str, Any]:
    kind = wishes.problem or str(base.get("kind", "logistic_hyperparameter"))
    if kind not in PROBLEMS and kind not in MINIMAX:
        raise InputError(f"--problem: no problem {quoted(kind)}; {nearest(kind, [*PROBLEMS, *MINIMAX])}.")
    if wishes.csv is not None and wishes.data is not None:
        raise InputError("--data: --csv names the records already. Give one of the two.")
    if wishes.csv is None:
        if wishes.label is not None or wishes.ranges or wishes.classes:
            raise InputError("--csv: missing. --label, --classes and --range are about a CSV file; name it.")
        data = wishes.data or str(base.get("data", _DATA))
        if data not in DATASETS:
            raise InputError(
                f"--data: no data set {quoted(data)}; {nearest(data, DATASETS)}. A CSV file goes to --csv."
            )
        kept = dict(base) if wishes.problem in (None, base.get("kind")) and data == base.get("data") else _shared(base)
        scaled = {} if data.startswith("synthetic_") else {"scale": "public_ranges", "normalise": "l2"}
        return {"kind": kind, "data": data, **(scaled if data != base.get("data") else {}), **_without(kept)}
    if kind in MINIMAX and MINIMAX[kind].trajectories:
        raise InputError(f"--csv: {kind} reads trajectories, and a CSV file has none. Take another --algorithm.")
    kept = dict(base) if wishes.problem in (None, base.get("kind")) else _shared(base)
    return _csv_problem(wishes, kind, _without(kept), folder, notes)


# Keys of a problem that are about its records, and those that any problem may have.
_OF_RECORDS = ("data", "label", "classes", "scale", "synthetic", "construction", "limit", "files", "partition", "seed")
_SHARED = ("validation", "test", "normalise", "stream")


def _shared(base: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in base.items() if key in (*_SHARED, *_OF_RECORDS)}


def _without(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in ("kind", "data")}


def _csv_problem(
    wishes: Wishes, kind: str, kept: Mapping[str, Any], folder: Path, notes: dict[str, str]
) -> dict[str, Any]:
    """The table of records in a CSV file, with what is not said as placeholders."""
    if wishes.csv is None:
        raise TypeError("a CSV file is wanted")
    columns = columns_of(wishes.csv)
    label = wishes.label
    if label is None:
        raise InputError(f"--label: missing. Name the label column; {quoted_path(wishes.csv)} has {_named(columns)}.")
    if label not in columns:
        raise InputError(
            f"--label: {quoted_path(wishes.csv)} has no column {quoted(label)}{nearest_of(label, columns)}."
        )
    features = features_of(columns, label)
    for name in wishes.ranges:
        if name not in features:
            raise InputError(f"--range: {quoted(name)} is no feature column{nearest_of(name, features)}.")
    if len(wishes.classes) == 1:
        raise InputError(f"--classes: got {quoted(wishes.classes[0])} alone, wanted at least two labels, as in no,yes.")
    ranged = "ridge" in kind
    classes = [] if ranged else list(wishes.classes) or [0, 1]
    if len(classes) > 2 and wishes.problem is None and kind == "logistic_hyperparameter":
        kind = "softmax_hyperparameter"
    if not ranged and not wishes.classes:
        notes["problem.classes"] = "PLACEHOLDER: put all labels that there may be here"
    notes["problem.scale"] = _RANGES
    for name in features:
        if name not in wishes.ranges:
            notes[f"problem.scale.{name}"] = _PLACEHOLDER
    table: dict[str, Any] = {"kind": kind, "data": _relative(wishes.csv, folder), "label": label, "classes": classes}
    if _AGENT in columns:
        table["partition"] = {"kind": "column", "name": _AGENT}
    held = {key: value for key, value in kept.items() if key not in _OF_RECORDS}
    if _SPLIT in columns:
        held.pop("test", None)
        # Of a minimax problem there is one level, and the column is found by its name.
        held |= {} if kind in MINIMAX else {"validation": {"column": _SPLIT}}
    ranges = {name: list(wishes.ranges.get(name, (0, 1))) for name in features}
    return {**table, "normalise": "l2", **held, "scale": ranges}


def _relative(path: Path, folder: Path) -> str:
    """A path as the scenario's folder sees it; absolute where it is not below."""
    whole, start = path.absolute(), folder.absolute()
    return os.path.relpath(whole, start) if whole.is_relative_to(start) else str(whole)


def _named(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns[:8])) + (" …" if len(columns) > 8 else "")


def asked(wishes: Wishes) -> Wishes:
    """The wishes with answers where nothing is said; an empty answer is the usual value."""

    def ask(question: str, usual: str = "") -> str:
        return str(typer.prompt(question, default=usual, show_default=bool(usual))).strip()

    if wishes.csv is None and wishes.data is None:
        given = ask(f"CSV file of your records (empty: the bundled {_DATA} records)")
        wishes = replace(wishes, csv=Path(given)) if given else replace(wishes, data=_DATA)
    if wishes.csv is not None:
        wishes = _asked_of_records(wishes, ask)
    if wishes.algorithm is None:
        wishes = replace(wishes, algorithm=ask('Algorithm ("decentral-dp list algorithms" lists them)', _ALGORITHM))
    if wishes.topology is None and not getattr(ALGORITHMS.get(str(wishes.algorithm)), "trusted", True):
        wishes = replace(wishes, topology=ask("Graph of the agents", "ring"))
    if wishes.agents is None:
        wishes = replace(wishes, agents=int(typer.prompt("Agents", default=10, type=int)))
    if wishes.epsilon is None:
        wishes = replace(
            wishes, epsilon=float(typer.prompt("ε of every agent, for the whole run", default=4.0, type=float))
        )
    return wishes


def _asked_of_records(wishes: Wishes, ask: Any) -> Wishes:
    columns = columns_of(wishes.csv or Path())
    if wishes.label is None:
        wishes = replace(wishes, label=ask(f"Label column, of {_named(columns)}", columns[-1]))
    if not wishes.classes and "ridge" not in (wishes.problem or ""):
        wishes = replace(wishes, classes=parsed_classes(ask("Labels that there may be, separated by commas")))
    features = [name for name in features_of(columns, wishes.label) if name not in wishes.ranges]
    ranges = dict(wishes.ranges)
    for name in features if len(features) <= _MOST_ASKED else []:
        given = ask(f"Public range of {name} as LOW:HIGH, from its meaning, not from the records (empty: later)")
        if given:
            ranges[name] = _ends(given, name)
    return replace(wishes, ranges=ranges)
