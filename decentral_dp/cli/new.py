"""The command `new`: a scenario file from flags, and from answers where somebody sits at a terminal.

Of a CSV file the names of its columns are read, and whether the first record holds numbers below them. What a name
alone suggests is proposed and said.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.cli import new_template as template
from decentral_dp.config.loading import assign, explain, find, load, read_toml, shipped_names, toml_value
from decentral_dp.config.missing_keys import ROUNDS, fill_planned_settings, missing_keys
from decentral_dp.data import DATASETS, nearest
from decentral_dp.data.columns import ANY_DATE, ColumnRules
from decentral_dp.data.dataset import near_name
from decentral_dp.data.scaling import read_ranges
from decentral_dp.data.tables import (
    INDEX_NAMES,
    DeclaredColumns,
    column_names,
    csv_format,
    require_numbers,
    select_columns,
)
from decentral_dp.errors import InputError, printable, quoted, quoted_path
from decentral_dp.models.build import ModelTable
from decentral_dp.problems import MINIMAX, PROBLEMS, SOLVED
from decentral_dp.problems import Facts as ProblemFacts
from decentral_dp.simulation.jobs.settings import TAIL_OF_LINEAR, TAIL_OF_NETWORK, noise_leaves_little, stable_momentum
from decentral_dp.topology import build

# Where nothing is to be tuned, and where a problem of two levels is asked for.
TRAINING, DEFAULT_BILEVEL, DEFAULT_DATA = "dp_dsgd", "ldp_dsbo", "breast_cancer"
_TRAIN = (TRAINING, "ldp_single_level")
# The scenario that an algorithm's new ones start from; else the one of its own name.
_BASES = {"ldp_dsbo": "ring_breast_cancer"}
# Problems in which records are read for x.
_READS_RECORDS_FOR_X = ("from_losses", "hyper_cleaning", "meta_learning")
_PLACEHOLDER = "PLACEHOLDER: put the public range here, as [low, high]"
# Known as a placeholder by the runs and plans of a scenario in which it is left.
_UNKNOWN = {"low": 0, "high": 1, "placeholder": True}
_DATES = "PLACEHOLDER: put the first and the last date that there may be"
# Rule → names of columns that suggest it.
_BY_NAME = {
    "drop": re.compile(r"(^|[_ .-])(id|uuid|guid|mrn|ssn)$|[a-z]I[dD]$"),
    "date": re.compile(r"(^|[_ ])(date|datetime|timestamp|dob|admitted|discharged)$|^date[_ ]|[_ ]at$", re.IGNORECASE),
    "binary": re.compile(r"^(is|has)[_ ]", re.IGNORECASE),
}
_RULES = (
    "How columns of words, gaps, dates and skewed numbers become features. All of it is public: never take a word, a "
    "date or what fills a gap from the records."
)
_RANGES = (
    "Public range of every feature, [low, high]: from its meaning or unit, as [0, 120] for an age. Never take it from "
    "the records: it would tell of them, and no noise covers that. Values outside are cut."
)


@dataclass(frozen=True)
class Options:
    """What is asked for; None and empty where nothing is said.

    Args:
        csv: the records.
        data: bundled records instead.
        label: of the CSV, its label column.
        classes: the labels that there may be.
        ranges: column → public range.
        label_range: public range of a label that is a number to predict.
        separator, decimal, encoding: of the CSV file, as in a scenario.
        columns: as in [problem.columns].
        owner: column → names of the agents in it.
        agents, topology, problem, algorithm, rounds, epsilon, delta: as in a scenario.
        model: "mlp" or "cnn" of usual sizes, or as in a scenario.
        colluders: how many agents may tell what they know, where neighbours share noise.
    """

    csv: Path | None = None
    data: str | None = None
    label: str | None = None
    classes: Sequence[Any] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    label_range: tuple[float, float] | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    owner: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    agents: int | None = None
    topology: str | None = None
    problem: str | None = None
    model: str | None = None
    algorithm: str | None = None
    rounds: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    colluders: int | None = None


def carry_out(out: Path | None, options: Options) -> None:
    """Write the scenario, and say what to do next. Raises InputError for options that make none, or a file there."""
    path = out or Path(f"{options.csv.stem if options.csv is not None else 'scenario'}.toml")
    require_new(path)
    content, notes = scenario_content(options, path.parent)
    text = template.scenario_text(content, notes)
    # Refused here if anything in it could not be run; of the records nothing is read.
    template.require_buildable(load(tomllib.loads(text), folder=path.parent.absolute()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"new: {quoted_path(path)} cannot be written ({error.strerror}). Give another path.") from None
    typer.echo(printable(f"Written: {path} ({content['title']})"))
    if options == Options():
        typer.echo(
            "Nothing was asked for, so all of it is a default: --csv FILE --label COLUMN takes your records, and "
            '"decentral-dp new --help" lists the rest.'
        )
    for warning in [*placeholders(notes), *(notes[key] for key in (template.WARNING, "problem.model") if key in notes)]:
        typer.echo(printable(warning))
    typer.echo(printable(f"Next: decentral-dp plan {path}, then decentral-dp run {path}"))


def one_file(argument: Path | None, option: Path | None) -> Path | None:
    """The scenario to write, given as FILE or as --out FILE. Raises InputError where two are named."""
    if argument is not None and option is not None and argument != option:
        raise InputError(
            f"--out: got {quoted_path(option)}, and {quoted_path(argument)} as the file to write. Give one of the two."
        )
    return option if argument is None else argument


def require_new(path: Path) -> None:
    """Raises InputError where there is a file."""
    if path.exists():
        raise InputError(f"new: {quoted_path(path)} exists already, and nothing is written over. Give another name.")


def placeholders(notes: Mapping[str, str]) -> list[str]:
    """What has to be filled in before the scenario is worth running, a sentence each."""
    empty = [key for key, note in notes.items() if note.startswith("PLACEHOLDER")]
    ranges = [key.removeprefix("problem.scale.") for key in empty if key.startswith("problem.scale.")]
    named = ", ".join(ranges[:5]) + (" …" if len(ranges) > 5 else "")
    sentences = {
        "problem.classes": "Put the labels that there may be into problem.classes: they are not read off the records.",
        "problem.label_range": "Put the label's public range into problem.label_range: [0, 1] is a placeholder, and "
        "labels are cut.",
        "problem.columns.date": f"Put public dates into problem.columns.date: {ANY_DATE} is a placeholder.",
        f"problem.scale.{ranges[0] if ranges else ''}": f"Put public ranges into [problem.scale] for {named}: [0, 1] "
        "is a placeholder, and values are cut.",
    }
    return [sentence for key, sentence in sentences.items() if key in empty]


def columns_of(options: Options) -> list[str]:
    """Return the names of the columns of the records. Raises InputError where the first line is a record."""
    path = options.csv or Path()
    if path.is_file() and path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"--csv: got {quoted_path(path)}, expected a file that ends in .csv or .parquet.")
    return column_names(path, f"new: {quoted_path(path)}", csv_format(**_csv_keys(options), prefix="--"))


def _csv_keys(options: Options) -> dict[str, str | None]:
    return {"separator": options.separator, "decimal": options.decimal, "encoding": options.encoding}


def _count_records(path: Path) -> int:
    """Return how many records a file has, which is public. It looks at no cell."""
    if path.suffix.lower() == ".parquet":
        # Slow to import.
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    with path.open("rb") as file:
        return sum(1 for _ in file) - 1


def feature_columns(columns: Sequence[str], options: Options) -> list[str]:
    """The columns that are neither label, nor owner, nor part."""
    return [
        column
        for column in columns
        if column not in (options.label, template.SPLIT, *(options.owner or (template.AGENT,)))
    ]


def rules_of(options: Options) -> tuple[ColumnRules, dict[str, Any], dict[str, str]]:
    """The rules for the columns of the CSV file: those that are given, and those that names suggest.

    Returns:
        The rules, what of them is to be written, and notes by key.

    Raises:
        InputError: rules that do not fit together.
    """
    features = feature_columns(columns_of(options), options)
    table: dict[str, Any] = {key: value.copy() for key, value in options.columns.items() if value}
    named, notes = {c for rule in table.values() for c in rule}, {}
    for key, pattern in _BY_NAME.items():
        for column in features:
            is_index = key == "drop" and column in INDEX_NAMES
            if column in named or column in options.ranges or not (is_index or pattern.search(column)):
                continue
            if key == "date":
                table.setdefault(key, {})[column] = ANY_DATE
            else:
                table.setdefault(key, []).append(column)
            notes[key] = _DATES if key == "date" else "proposed by the names; mend it if that is wrong"
    try:
        rules = ColumnRules.model_validate(table)
    except ValidationError as error:
        raise InputError(f"new: {explain(error, ColumnRules).removeprefix(': ')}") from None
    return rules, table, notes


def scenario_content(options: Options, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The content of a scenario, and notes by dotted key. folder: where it will be, from which paths start.

    Raises InputError: options that contradict each other.
    """
    kind = options.algorithm or (TRAINING if _is_training(options.problem) else DEFAULT_BILEVEL)
    options = replace(options, algorithm=kind)
    base_name, trains = _BASES.get(kind, kind), kind in _TRAIN and _is_training(options.problem)
    base = read_toml(find(base_name)) if base_name in shipped_names("scenario") else {}
    notes: dict[str, str] = {}
    if trains:
        # Rounds, step and clip are planned.
        base = dict(_TRAINING)
        notes["algorithm"] = "Rounds, step and clip are planned from public numbers: `plan` prints them."
        notes["run.average"] = "Tail average: the mean over this share of the rounds is published."
    content: dict[str, Any] = {
        "title": "",
        "problem": _problem(options, base.get("problem", {}), folder, notes),
        "topology": _topology(options, base.get("topology", {})),
        "algorithm": {**base.get("algorithm", {}), "kind": kind},
        "privacy": dict(base.get("privacy", {})),
        "run": dict(base.get("run", {})),
    }
    if options.rounds is not None:
        content["algorithm"]["rounds"] = options.rounds
    if options.model is not None:
        if not trains:
            raise InputError("--model: it is of problems of one level, classification and regression. Leave it out.")
        content["problem"]["model"] = _MODELS.get(options.model, options.model)
    for key, wanted in (("epsilon", options.epsilon), ("delta", options.delta)):
        if wanted is not None and content["privacy"].get("guarantee") == "none":
            raise InputError(f"--{key}: {kind} adds no noise and has no ε. Leave it out, or take another algorithm.")
        content["privacy"] |= {} if wanted is None else {key: wanted}
    if options.colluders is not None:
        if getattr(ALGORITHMS.get(kind), "trusts_coordinator", False):
            raise InputError(
                f"--colluders: the noise of {kind} is its coordinator's, whom all agents trust. Leave it out, or take "
                "an algorithm of neighbours such as dp_dsgd."
            )
        content["privacy"] |= {
            "observer": {"colluders": options.colluders},
            "correlation": {"across": "pairwise"},
        }
        notes["privacy.observer"] = "ε holds while no more agents tell what they know. `plan` says it for each number."
    for key, usual in missing_keys(fill_planned_settings(content)).items():
        content = assign(content, key.split("."), tomllib.loads(f"v = {usual or 2}")["v"])
    if content["problem"]["kind"] in _READS_RECORDS_FOR_X:
        # Shares are of the channels that have a price, and there x is one more.
        content["privacy"].pop("share", None)
    if options.csv is not None and not trains:
        rules = ColumnRules.model_validate(content["problem"].get("columns", {}))
        content = template.with_settings_that_learn(
            content, len(content["problem"]["scale"]) + len(rules.ranges), notes
        )
    if trains:
        content = _with_default_parts(content)
    if options.csv is not None and options.model in _MODELS:
        content = _with_model_that_learns(content, options.csv, notes)
    problem, m = content["problem"], content["topology"]["agents"]
    content["title"] = f"{kind} on {Path(problem['data']).stem}: {problem['kind']}, {m} agents"
    return content, notes


def _is_training(problem: str | None) -> bool:
    """Whether a problem, if one is asked for, has one level: nothing is tuned."""
    return problem is None or (problem in PROBLEMS and PROBLEMS[problem].one_level)


def _with_default_parts(content: dict[str, Any]) -> dict[str, Any]:
    """Ask for the parts of the default hyper-parameters that the algorithm has: momentum, centring, tail average."""
    table, linear = content["algorithm"], content["problem"].get("model") in (None, "linear")
    parts: dict[str, Any] = {}
    if table["kind"] == TRAINING:
        parts = {"heavy_ball": _momentum(content["topology"]), "centring": linear}
    average = TAIL_OF_LINEAR if linear else TAIL_OF_NETWORK
    run = {"average": average} | content["run"]
    return {**content, "algorithm": {**table, **{k: v for k, v in parts.items() if v}}, "run": run}


def _momentum(table: Mapping[str, Any]) -> float:
    """The momentum that dies out on this graph; none where its parameters do not make one."""
    try:
        options = {key: value for key, value in table.items() if key not in ("kind", "agents", "weights")}
        return stable_momentum(build(table["kind"], table["agents"], options, table.get("weights")), TRAINING)
    except InputError:
        # Refused with the whole scenario.
        return 0.0


# What a scenario of training starts from.
_TRAINING: Mapping[str, Any] = {
    "problem": {"kind": "classification", "data": DEFAULT_DATA, "scale": "public_ranges"},
    "topology": {"kind": "ring"},
    "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5},
}

_MODELS: Mapping[str, Any] = {"mlp": {"kind": "mlp", "widths": [64]}, "cnn": {"kind": "cnn", "channels": [8, 16]}}


def _with_model_that_learns(content: dict[str, Any], csv: Path, notes: dict[str, str]) -> dict[str, Any]:
    """The content with a linear model, and why, where noise leaves a network little by the number of records."""
    # A number of agents that cannot be is refused with the whole scenario.
    problem, agents, privacy = content["problem"], max(1, int(content["topology"]["agents"])), content["privacy"]
    records = _count_records(csv) * (1.0 - problem.get("test", 0.0)) / agents
    rules = ColumnRules.model_validate(problem.get("columns", {}))
    features = len(problem["scale"]) + len(rules.ranges)
    facts = ProblemFacts(features, len(problem.get("classes") or ()), l2=math.sqrt(features))
    made = PROBLEMS[problem["kind"]].build({"model": ModelTable.model_validate(problem["model"])}, facts).step_facts()
    epsilon, delta = float(privacy["epsilon"]), float(privacy["delta"])
    if not noise_leaves_little(made, max(1, int(records)), agents, ROUNDS, epsilon, delta):
        return content
    notes["problem.model"] = (
        f"Noise at ε = {epsilon:g}, with about {records:.0f} train records of an agent, leaves a network little of its "
        f"steps: a linear model may learn more where it fits. Put model = {toml_value(problem['model'])} to train it."
    )
    return {**content, "problem": {**problem, "model": "linear"}}


def _topology(options: Options, base: Mapping[str, Any]) -> dict[str, Any]:
    kind = options.topology or base.get("kind", "ring")
    same = kind == base.get("kind")
    usual = {key: value for key, value in base.items() if same or key == "weights"}
    named = next((len(names) for names in options.owner.values()), base.get("agents", 10))
    return {**usual, "kind": kind, "agents": named if options.agents is None else options.agents}


def _problem(options: Options, base: Mapping[str, Any], folder: Path, notes: dict[str, str]) -> dict[str, Any]:
    kind = options.problem or str(base.get("kind", "logistic_hyperparameter"))
    entry = ALGORITHMS.get(str(options.algorithm))
    if entry is not None and kind in PROBLEMS and kind not in SOLVED[entry.solves]:
        # Before its keys are filled in, of which others could be refused.
        raise InputError(
            f"--problem: {entry.kind} is for {entry.solves} problems, and {quoted(kind)} is none. Take "
            f"{', '.join(SOLVED[entry.solves])}."
        )
    if options.csv is not None:
        return _csv_problem(options.csv, options, kind, base, folder, notes)
    if any((options.label, options.ranges, options.classes, options.label_range, options.columns, options.owner)):
        raise InputError(
            "--csv: missing. --label, --classes, the ranges and what is said of columns are about a CSV file; name it."
        )
    data = options.data or str(base.get("data", DEFAULT_DATA))
    if data not in DATASETS:
        raise InputError(f"--data: no data set {quoted(data)}; {nearest(data, DATASETS)}. Records go to --csv.")
    if base is _TRAINING["problem"]:
        scaled, base = {"scale": "public_ranges"}, {}
    else:
        scaled = {"scale": "public_ranges", "normalise": "l2"}
    if data.startswith("synthetic_"):
        scaled = {}
    same = data == base.get("data")
    keys_of_base = base if same and options.problem in (None, base.get("kind")) else (*_SHARED, *_OF_RECORDS)
    return {"kind": kind, "data": data} | ({} if same else scaled) | _keep_keys(base, keys_of_base)


# Keys of a problem that are about its records, and those that any problem may have.
_OF_RECORDS = (
    *("data", "label", "classes", "label_bound", "label_range", "scale"),
    *("synthetic", "construction", "limit", "partition", "seed"),
)
_SHARED = ("validation", "test", "normalise", "stream")


def _keep_keys(base: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """The values of these keys, without what says of which problem and records they are."""
    return {key: value for key, value in base.items() if key in keys and key not in ("kind", "data")}


def _csv_problem(
    csv: Path, options: Options, kind: str, base: Mapping[str, Any], folder: Path, notes: dict[str, str]
) -> dict[str, Any]:
    """The table of records in a CSV file, with what is not said as placeholders."""
    if options.data is not None:
        raise InputError("--data: --csv names the records already. Give one of the two.")
    if kind in PROBLEMS and PROBLEMS[kind].trajectories:
        raise InputError(f"--csv: {kind} reads trajectories, and a CSV file has none. Take another --algorithm.")
    if options.label_range is not None:
        if options.classes:
            raise InputError("--label-range: --classes says that labels are classes. Give one of the two.")
        kind = template.problem_of_numbers(kind, options.algorithm, options.problem is not None)
    columns, label = columns_of(options), options.label
    if label is None:
        # Without a header line, the names in the file would be a record.
        raise InputError(f"--label: missing. Fix: name the label column of {quoted_path(csv)}.")
    if label in (template.AGENT, template.SPLIT):
        meaning = "who holds a record" if label == template.AGENT else "the part that a record belongs to"
        raise InputError(f"--label: a column {quoted(label)} says {meaning}. Name another one, or rename the column.")
    owner, names = next(iter(options.owner.items()), (None, None))
    rules, written, proposed = rules_of(options)
    features, roles = select_columns(str(csv), columns, DeclaredColumns(label, owner, rules=rules))
    needed = [name for name in rules.names(features) if name not in rules.ranges]
    for name in options.ranges:
        if name not in features:
            raise InputError(f"--range: {quoted(name)} is no feature column{near_name(name, columns)}.")
        if name not in needed:
            raise InputError(f"--range: {quoted(name)} needs none, by what is said of the column. Leave it out.")
    if csv.suffix.lower() == ".csv":
        # Names that nobody wrote must not be cells of a first record.
        named = {*options.ranges, *(c for rule in options.columns.values() for c in rule)}
        require_numbers(
            csv, {*features} - named, f"new: {quoted_path(csv)}", csv_format(**_csv_keys(options), prefix="--")
        )
    template.require_classes(options.classes, options.problem)
    # An algorithm's own scenario may predict the numbers 0 and 1 of two classes.
    ranged = template.predicts_numbers(options.problem or "") or "ridge" in kind or options.label_range is not None
    classes = [] if ranged else list(options.classes) or [0, 1]
    numbers: dict[str, Any] = {}
    if ranged:
        numbers = {"label_range": list(options.label_range or (0, 1))}
        notes["problem.label_range"] = "" if options.label_range is not None else _PLACEHOLDER
    else:
        kind = template.problem_of_classes(kind, options.algorithm, len(classes), options.problem is not None)
    if not ranged and not options.classes:
        notes["problem.classes"] = "PLACEHOLDER: put all labels that there may be here"
    notes["problem.scale"] = _RANGES
    notes |= {f"problem.scale.{name}": _PLACEHOLDER for name in needed if name not in options.ranges}
    table: dict[str, Any] = {"kind": kind, "data": _relative(csv, folder)}
    table |= {key: value for key, value in _csv_keys(options).items() if value is not None}
    table |= {"label": label, "classes": classes}
    table |= numbers
    if kind in PROBLEMS and "intercept" in PROBLEMS[kind].options:
        # Neither scaled labels nor features that fill part of their ranges are balanced around 0.
        table["intercept"] = True
    if roles.agent is not None:
        table["partition"] = {"kind": "column", "name": roles.agent} | ({} if names is None else {"agents": [*names]})
    if written:
        table["columns"] = written
        notes |= {f"problem.columns.{key}": note for key, note in proposed.items()} | {"problem.columns": _RULES}
    from_base = _keep_keys(base, set(base if kind == base.get("kind") else _SHARED) - {*_OF_RECORDS})
    if from_base.get("loss") == "logistic" and len(classes) != 2:
        # Left out, it is the usual one for these labels.
        del from_base["loss"]
    trains = kind in PROBLEMS and PROBLEMS[kind].one_level
    if roles.split is not None:
        from_base.pop("test", None)
        # Where there is one level, the column is found by its name.
        from_base |= {} if trains or kind in MINIMAX else {"validation": {"column": template.SPLIT}}
    ranges = {name: list(options.ranges[name]) if name in options.ranges else dict(_UNKNOWN) for name in needed}
    return {**table, **({} if trains else {"normalise": "l2"}), **from_base, "scale": ranges}


def _relative(path: Path, folder: Path) -> str:
    """A path as the scenario's folder sees it; absolute where it is not below."""
    whole, start = path.absolute(), folder.absolute()
    return os.path.relpath(whole, start) if whole.is_relative_to(start) else str(whole)


# Ranges of more columns are filled in with an editor, not one by one.
_MOST_PROMPTS = 20


def complete(options: Options) -> Options:
    """The options with answers where nothing is said; an empty answer is the usual value."""

    def prompt(question: str, default: str = "") -> str:
        return str(typer.prompt(question, default=default, show_default=bool(default))).strip()

    if options.csv is None and options.data is None:
        given = prompt(f"CSV file of your records (empty: the bundled {DEFAULT_DATA} records)")
        options = replace(options, csv=Path(given)) if given else replace(options, data=DEFAULT_DATA)
    if options.csv is not None:
        options = _complete_columns(options, prompt)
    if options.algorithm is None:
        usual = TRAINING if _is_training(options.problem) else DEFAULT_BILEVEL
        options = replace(options, algorithm=prompt('Algorithm ("decentral-dp list algorithms" lists them)', usual))
    if options.topology is None and not getattr(ALGORITHMS.get(str(options.algorithm)), "trusts_coordinator", True):
        options = replace(options, topology=prompt("Graph of the agents", "ring"))
    if options.agents is None:
        options = replace(options, agents=int(typer.prompt("Agents", default=10, type=int)))
    if options.epsilon is None:
        options = replace(
            options, epsilon=float(typer.prompt("ε of every agent, for the whole run", default=4.0, type=float))
        )
    return options


def _complete_columns(options: Options, ask: Any) -> Options:
    columns = columns_of(options)
    if options.label is None:
        options = replace(options, label=ask("Label column"))
    if not options.classes and options.label_range is None:
        options = _complete_labels(options, ask)
    rules = rules_of(options)[0]
    features = [
        name for name in feature_columns(columns, options) if name not in {*options.ranges, *rules.rules_by_column}
    ]
    ranges, categories = dict(options.ranges), dict(options.columns.get("categories", {}))
    for name in features if len(features) <= _MOST_PROMPTS else []:
        given = ask(
            f"Public range of {name} as LOW:HIGH, or the words that count as a,b,c; by its meaning, not by the records "
            "(empty: later)"
        )
        if "," in given:
            categories[name] = parse_classes(given.rstrip(", "), name)
        elif given:
            ranges[name] = parse_ends(given, name)
    return replace(options, ranges=ranges, columns={**options.columns, "categories": categories})


def _complete_labels(options: Options, ask: Any) -> Options:
    if "ridge" in (options.problem or ""):
        given = ask("Public range of the label as LOW:HIGH, from its meaning, not from the records (empty: later)")
    else:
        given = ask(
            "Labels that there may be, separated by commas; or LOW:HIGH, the public range of a number to predict"
        )
    if ":" in given and "," not in given:
        return replace(options, label_range=parse_ends(given, "Range of the label"))
    return replace(options, classes=parse_classes(given))


def parse_ranges(texts: Sequence[str], file: Path | None = None) -> dict[str, tuple[float, float]]:
    """Read every "column=low:high", and a ranges CSV. Raises InputError, also for a column that is named twice."""
    listed = {} if file is None else read_ranges(file, "--ranges")
    texts = [*(f"{name}={row['low']}:{row['high']}" for name, row in listed.items()), *texts]
    # A column's name may have a sign of equality in it, its ends have none.
    pairs = _pairs("range", texts, "0:120", str.rpartition)
    return {name: parse_ends(ends, f"--range {name}") for name, ends in pairs}


def parse_ends(text: str, subject: str) -> tuple[float, float]:
    """Read "low:high". subject: begins a refusal. Raises InputError."""
    try:
        low, high = (_number(part) for part in text.split(":"))
    except ValueError:
        low, high = math.nan, math.nan
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"{subject}: got {quoted(text)}, wanted LOW:HIGH, two numbers of which the first is smaller.")
    return low, high


def parse_classes(text: str, subject: str = "--classes") -> list[Any]:
    """Labels separated by commas; those that are numbers as numbers. Raises InputError for an empty one."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if "" in parts:
        raise InputError(f"{subject}: got {quoted(text)}, in which a label is empty. Write them as in no,yes.")
    return [_label(part) for part in parts]


def parse_columns(
    drop: Sequence[str],
    category: Sequence[str],
    fill: Sequence[str],
    log: Sequence[str],
    date: Sequence[str],
    binary: Sequence[str],
) -> dict[str, Any]:
    """The flags on columns as [problem.columns] has them. Raises InputError for one that is none."""
    return {
        "drop": list(drop),
        "categories": {c: parse_classes(words, "--category") for c, words in _pairs("category", category, "a,b")},
        "fill": {column: _label(value) for column, value in _pairs("fill", fill, "27")},
        "date": dict(_pairs("date", date, "2015-01-01:2025-12-31")),
        "log": list(log),
        "binary": list(binary),
    }


def parse_agents(text: str | None) -> tuple[int | None, dict[str, list[Any]]]:
    """How many agents there are, of "7", or the column and names of "hospital=north,south". Raises InputError."""
    if text is None or "=" not in text:
        try:
            return None if text is None else int(text), {}
        except ValueError:
            raise InputError(
                f"--agents: got {quoted(text)}, wanted a number, or COLUMN=NAME,NAME, such as site=0,1,2 or "
                "hospital=north,south."
            ) from None
    (column, names), *_ = _pairs("agents", [text], "north,south")
    return None, {column: parse_classes(names, "--agents")}


def _pairs(
    flag: str, texts: Sequence[str], example: str, divide: Callable[[str, str], tuple[str, str, str]] = str.partition
) -> list[tuple[str, str]]:
    """(column, value) of every "column=value". Raises InputError, also for a column that is named twice."""
    pairs: dict[str, str] = {}
    for text in texts:
        column, equals, value = divide(text, "=")
        if not equals or not value.strip():
            raise InputError(f"--{flag}: got {quoted(text)}, wanted COLUMN=…, for example {quoted(f'x={example}')}.")
        if column in pairs:
            raise InputError(f"--{flag}: {quoted(column)} is named twice. Give one of them.")
        pairs[column] = value.strip()
    return list(pairs.items())


def _number(text: str) -> float:
    """A whole number stays one. Raises ValueError."""
    return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)


def _label(text: str) -> Any:
    try:
        return _number(text)
    except ValueError:
        return text
