"""Command `new`: write a commented scenario for a table of records, based on a shipped one.

It reads the names of the columns, and whether the first record contains numbers. Users declare labels, ranges and
categories, which are public facts.
"""

from __future__ import annotations

import math
import os
import textwrap
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.components import resolve
from decentral_dp.config.loading import (
    assign,
    explain,
    find,
    load_scenario,
    parse_change,
    read_toml,
    toml_key,
    toml_value,
)
from decentral_dp.config.schema import AlgorithmTable, PrivacyTable, ProblemTable, RunTable, TopologyTable
from decentral_dp.data import DATASETS
from decentral_dp.data.columns import ColumnRules
from decentral_dp.data.dataset import near_name
from decentral_dp.data.tables import DeclaredColumns, column_names, csv_format, require_numbers, select_columns
from decentral_dp.errors import InputError, converting, printable, quoted, quoted_path
from decentral_dp.files.tables import Table
from decentral_dp.problems import PROBLEMS, TYPES
from decentral_dp.topology import GENERATORS

# Algorithm → shipped scenario of its template. Default: the scenario of its name.
_BASES = {"dp_dsgd": "classification", "ldp_dsbo": "ring_breast_cancer"}
# Keys that describe records, and keys of all problems.
_OF_RECORDS = (
    *("data", "label", "classes", "label_range", "scale"),
    *("synthetic", "construction", "partition", "seed"),
)
_SHARED = ("validation", "test", "normalise", "sampling")
_PLACEHOLDER = {"low": 0, "high": 1, "placeholder": True}
_COLUMNS = """\
# Columns that are no numbers become features by public rules. Remove the signs of comment in front of what you need:
# [problem.columns]
# drop = ["patient_id"]                           # no feature
# categories = { ward = ["surgery", "icu"] }      # one feature of 0 and 1 for each word
# fill = { bmi = 27 }                             # the public constant for a missing value
# date = { admitted = "2015-01-01:2025-12-31" }   # the public range of dates
# log = ["income"]                                # log(1 + v)


"""
_RANGES = (
    "Public range of every feature, [low, high], from its meaning or unit, as [0, 120] for an age. Never take it from "
    "the records: that is a release without noise. Values outside are clipped."
)
_SEED = (
    "Without a seed the noise is secret, and the result is private. With one, such as seed = 1, a run can be repeated, "
    "and is a simulation."
)
_TABLES: Mapping[str, tuple[type[Table], str]] = {
    "problem": (ProblemTable, "The problem and its records."),
    "topology": (TopologyTable, "The graph of the agents."),
    "algorithm": (AlgorithmTable, "The algorithm."),
    "privacy": (PrivacyTable, "The guarantee and its budget."),
    "run": (RunTable, "How it is run. Nothing here changes the guarantee."),
}


def write_template(
    out: Path | None,
    *,
    data: str | None = None,
    label: str | None = None,
    classes: str = "",
    ranges: Sequence[str] = (),
    sites: str | None = None,
    algorithm: str = "dp_dsgd",
    agents: int | None = None,
    epsilon: float | None = None,
    changes: Sequence[str] = (),
) -> Path:
    """Write a scenario with a comment on every key, and print its placeholders.

    Args:
        out: output file; None for the name of the records' file, or scenario.toml.
        data: CSV or Parquet file, or bundled data set; None for the data of the shipped scenario.
        label: label column of a file.
        classes: all possible labels, separated by commas.
        ranges: public ranges "column=low:high" of columns of a file.
        sites: column that contains the agents' names, and all names, as "column=name,name"; it sets the number of
            agents.
        algorithm: registered kind of algorithm.
        agents: number of agents.
        epsilon: target ε of every agent.
        changes: changed keys as "table.key=value".

    Returns:
        The path of the scenario.

    Raises:
        InputError: the scenario is invalid, or the file exists. Nothing is written.
    """
    is_file = data is not None and data not in DATASETS
    path = out or Path(f"{Path(data).stem if data is not None and is_file else 'scenario'}.toml")
    content = {"title": "", **read_toml(find(_BASES.get(algorithm, algorithm)))}
    for key in ("seed", "description"):
        content.pop(key, None)
    partition = None if sites is None else _parse_sites(sites)
    count = agents if partition is None else len(partition["agents"])
    options = {"topology.agents": count, "privacy.epsilon": epsilon, "problem.partition": partition}
    assigned = [(key.split("."), value) for key, value in options.items() if value is not None]
    assigned += [parse_change(change) for change in changes]
    kind = {".".join(keys): value for keys, value in assigned}.get("problem.kind", content["problem"]["kind"])
    placeholders: list[str] = []
    content["problem"] = _base_problem(content["problem"], kind, data)
    for keys, value in assigned:
        content = assign(content, keys, value)
    if is_file:
        file, declared = Path(str(data)), (parse_classes(classes), parse_ranges(ranges))
        content["problem"], placeholders = _with_columns(content["problem"], file, path.parent, label, *declared)
    elif label is not None or classes or ranges or sites is not None:
        needing = "--label, --classes, --range and --sites"
        raise InputError(f"--data: no file, and required by {needing}. Fix: add --data with a file.")
    problem, m = content["problem"], content["topology"].get("agents", "the graph's")
    content["title"] = f"{algorithm} on {Path(str(problem['data'])).stem}: {problem['kind']}, {m} agents"
    text = template_text(content, placeholders)
    resolve(load_scenario(tomllib.loads(text), folder=path.parent.absolute()))
    path.parent.mkdir(parents=True, exist_ok=True)
    exists = converting(FileExistsError, lambda _: f"new: {quoted_path(path)} already exists. Fix: use another name.")
    with exists, path.open("x", encoding="utf-8") as output:
        output.write(text)
    typer.echo(printable(f"Written: {path} ({content['title']})"))
    if placeholders:
        typer.echo(printable(f"Fill in what is marked PLACEHOLDER, from public knowledge: {', '.join(placeholders)}."))
    typer.echo(printable(f"Next: decentral-dp plan {path}, then decentral-dp run {path}"))
    return path


def _base_problem(base: Mapping[str, Any], kind: str, data: str | None) -> dict[str, Any]:
    """Return the keys of the table [problem] that still apply to other records or another kind."""
    if data is None and kind == base["kind"]:
        return dict(base)
    special = {key for key in base if key not in (*_OF_RECORDS, *_SHARED, "kind")} if kind == base["kind"] else set()
    kept = {key: value for key, value in base.items() if key in {*special, *_SHARED}}
    if data is None:
        return {"kind": kind} | {key: base[key] for key in _OF_RECORDS if key in base} | kept
    scale = {} if data not in DATASETS or data.startswith("synthetic_") else {"scale": "public_ranges"}
    return {"kind": kind, "data": data} | scale | kept


def _with_columns(
    problem: Mapping[str, Any],
    file: Path,
    folder: Path,
    label: str | None,
    classes: Sequence[Any],
    ranges: Mapping[str, tuple[float, float]],
) -> tuple[dict[str, Any], list[str]]:
    """Return the table [problem] of a file, and its placeholders for undeclared public facts."""
    if file.is_file() and file.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"--data: got {quoted_path(file)}, expected a bundled data set, or a .csv or .parquet file.")
    form = csv_format(problem.get("separator"), problem.get("decimal"), problem.get("encoding"))
    if label is None:
        # The first line may be a record.
        raise InputError(f"--label: missing. Fix: name the label column of {quoted_path(file)}.")
    partition = problem.get("partition")
    owner = partition.get("name") if isinstance(partition, Mapping) else None
    with converting(ValidationError, lambda error: f"problem.columns.{explain(error, ColumnRules)}"):
        rules = ColumnRules.model_validate(problem.get("columns", {}))
    names = column_names(file, f"new: {quoted_path(file)}", form)
    features, columns = select_columns(str(file), names, DeclaredColumns(label, owner, rules=rules, csv=form))
    needed = [name for name in rules.names(features) if name not in rules.ranges]
    for name in ranges:
        if name not in needed:
            raise InputError(
                f"--range: unknown column, or one without a range (got {quoted(name)}){near_name(name, names)}. "
                "Fix: use a column of numbers."
            )
    if file.suffix.lower() == ".csv":
        # Undeclared names must not be cells of a record.
        require_numbers(file, {*features} - {*ranges, *rules.rules_by_column}, f"new: {quoted_path(file)}", form)
    whole, start = file.absolute(), folder.absolute()
    place = os.path.relpath(whole, start) if whole.is_relative_to(start) else str(whole)
    entry = PROBLEMS.get(str(problem["kind"]))
    table: dict[str, Any] = {**problem, "data": place, "label": label}
    placeholders: list[str] = []
    if entry is not None and entry.labels == "numbers":
        placeholders += [] if "label_range" in problem else ["label_range"]
        table = {"classes": [], "label_range": [0, 1]} | table
    else:
        table["classes"] = problem.get("classes") or classes or [0, 1]
        placeholders += [] if classes or "classes" in problem else ["classes"]
        if len(table["classes"]) != 2 and table.get("loss") == "logistic":
            del table["loss"]
    if entry is not None and "intercept" in entry.options:
        # Scaled features need not have mean 0.
        table.setdefault("intercept", True)
    if columns.agent is not None and owner is None:
        table["partition"] = {"kind": "column", "name": columns.agent}
    if columns.agent is not None and entry is not None and entry.one_level:
        # The numbers of records are not read here, and often differ.
        table.setdefault("weights", "sites")
    if columns.split is not None:
        table.pop("test", None)
        if entry is not None and not entry.one_level and TYPES[entry.solves].levels == 2:
            table["validation"] = columns.split
    if "scale" not in problem:
        table["scale"] = {name: list(ranges[name]) if name in ranges else dict(_PLACEHOLDER) for name in needed}
        placeholders += [f"the range of {name}" for name in needed if name not in ranges]
    return table, placeholders


def parse_ranges(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Parse every "column=low:high". Raises InputError."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        # The name of a column may have "=".
        column, _, ends = text.rpartition("=")
        try:
            low, high = map(_number, ends.split(":"))
        except ValueError:
            low = high = 0.0
        if not column or low >= high:
            raise InputError(f"--range: got {quoted(text)}, expected COLUMN=LOW:HIGH, such as age=18:100.")
        ranges[column] = (low, high)
    return ranges


def _parse_sites(text: str) -> dict[str, Any]:
    """Return the table of the partition by a column "column=name,name". Raises InputError."""
    column, _, names = text.rpartition("=")
    if not column or not names:
        raise InputError(f"--sites: got {quoted(text)}, expected COLUMN=NAME,NAME, such as hospital=Bern,Zug.")
    return {"kind": "column", "name": column, "agents": parse_classes(names)}


def parse_classes(text: str) -> list[Any]:
    """Split labels or names at commas, and convert numbers."""
    labels: list[Any] = []
    for part in map(str.strip, text.split(",") if text else []):
        try:
            labels.append(_number(part))
        except ValueError:
            labels.append(part)
    return labels


def _number(text: str) -> float:
    """Convert to a finite number, an int if it is whole. Raises ValueError."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return int(value) if value.is_integer() else value


def template_text(content: Mapping[str, Any], placeholders: Collection[str]) -> str:
    """Write a scenario as TOML with a comment on every key, and mark keys of [problem] that are placeholders."""
    lines = [f"title = {toml_value(content['title'])}", "", *_comment(_SEED), ""]
    for name, (schema, head) in _TABLES.items():
        table = dict(content.get(name) or {})
        if not table:
            continue
        texts, kind = dict.fromkeys(schema.model_fields, "") | schema.key_texts(), str(table.get("kind"))
        if name == "algorithm" and kind in ALGORITHMS:
            texts |= {option.key: option.description for option in ALGORITHMS[kind].keys}
        if name == "problem" and kind in PROBLEMS:
            texts |= {key.name: key.description for key in PROBLEMS[kind].keys}
        if name == "topology" and kind in GENERATORS:
            texts |= {p.name: p.description for p in GENERATORS[kind].parameters}
        # Greek letters stay lower-case.
        texts = {key: text[:1].upper() + text[1:] if text[:1].isascii() else text for key, text in texts.items()}
        ranges = table.pop("scale") if isinstance(table.get("scale"), Mapping) else None
        columns = table.pop("columns", None)
        lines += [*_comment(head), f"[{name}]"]
        for key, value in table.items():
            note = "  # PLACEHOLDER: put the public facts here" if name == "problem" and key in placeholders else ""
            lines += [*_comment(texts.get(key, "")), f"{toml_key(key)} = {toml_value(value)}{note}"]
        if columns:
            rules = [f"{toml_key(key)} = {toml_value(value)}" for key, value in columns.items()]
            lines += ["", *_comment(texts["columns"]), f"[{name}.columns]", *rules]
        if ranges is not None:
            lines += ["", *([] if columns else _COLUMNS.splitlines()), *_comment(_RANGES), f"[{name}.scale]"]
            for key, value in ranges.items():
                note = "  # PLACEHOLDER: put [low, high] here" if value == _PLACEHOLDER else ""
                lines.append(f"{toml_key(key)} = {toml_value(value)}{note}")
        lines.append("")
    return "\n".join(lines)


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, 100)]
