"""Loading of scenarios: from a name, file or dict to a validated `Scenario`, with changed keys.

A scenario is TOML with the tables problem, topology, algorithm, privacy and run (see `schema`).
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError, create_model

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.schema import Scenario, TopologyTable, common_table, own_types, table_of
from decentral_dp.data import DATASETS
from decentral_dp.errors import InputError, converting, nearest_of, quoted, quoted_path
from decentral_dp.files.package import shipped_folder
from decentral_dp.files.regular import regular, stems_beside
from decentral_dp.files.tables import Table
from decentral_dp.problems import PROBLEMS
from decentral_dp.topology import GENERATORS

Source: TypeAlias = str | Path | Mapping[str, Any] | Scenario

# Kind of shipped TOML files → their folder.
_FOLDERS = {"scenario": "scenarios", "study": "scenarios/studies"}
# Table → registered kinds, which declare keys.
REGISTRIES: Mapping[str, Mapping[str, Any]] = {"problem": PROBLEMS, "algorithm": ALGORITHMS}


# Default rounds of one-level training. Its learning rate and clipping norm follow from public numbers of the records
# when a job is built.
ROUNDS = 1000


def shipped_names(kind: str) -> list[str]:
    """Return the names of the shipped scenarios or studies, in order."""
    return sorted(p.stem for p in shipped_folder(_FOLDERS[kind]).glob("*.toml"))


def find(name_or_file: str, kind: str = "scenario") -> Path:
    """Return the file that a path or a shipped name refers to. Raises InputError if it does not exist."""
    path, names_shipped = Path(name_or_file), shipped_names(kind)
    if os.path.isfile(path):
        return path
    if name_or_file in names_shipped:
        return shipped_folder(_FOLDERS[kind]) / f"{name_or_file}.toml"
    other, command = ("study", "study") if kind == "scenario" else ("scenario", "run")
    names = {**stems_beside(path, ".toml"), **{name: name for name in names_shipped}}
    # Other names of algorithms come first, as most scenarios have the name of an algorithm.
    stems = [our_algorithm(path.stem), *difflib.get_close_matches(path.stem, names, n=3, cutoff=0.5)]
    near = list(dict.fromkeys(names[stem] for stem in stems if stem in names))[:3]
    name = quoted_path(name_or_file)
    if name_or_file in shipped_names(other):
        problem, fix = f"{name} is a {other}.", f'use "decentral-dp {command}"'
    elif os.path.isdir(path):
        problem, fix = f"{name} is a folder (expected a file).", "use the path of a .toml file in it"
    else:
        is_path = path.suffix == ".toml" or os.path.exists(path)
        problem = f"{name} is not a file" if is_path else f"unknown {kind} {name}"
        problem += f"; did you mean {' or '.join(map(quoted_path, near))}?" if near else "."
        fix = f'use the path of a .toml file, or a name from "decentral-dp list {Path(_FOLDERS[kind]).name}"'
    raise InputError(f"{kind}: {problem} Fix: {fix}.")


def load_scenario(
    scenario: Source,
    overrides: Sequence[str] = (),
    folder: Path | None = None,
    objects: Collection[str] = (),
) -> Scenario:
    """Read and validate a scenario, as `decentral_dp.load` does, with changes of keys given as text.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario.
        overrides: changes "table.key=value", with a TOML value, a bare word for a string, or null to remove the key.
        folder: folder in which the relative paths of a dict start. The default is the working directory.
        objects: components passed as Python objects. Records and a graph passed in this way need no entry in the
            scenario.

    Raises:
        InputError: a key or value is invalid.
    """
    content: dict[str, Any]
    if isinstance(scenario, Scenario):
        folder, content = scenario.folder, scenario.model_dump(exclude_unset=True)
    elif isinstance(scenario, Mapping):
        folder, content = folder or Path.cwd(), {key: python_value(value) for key, value in scenario.items()}
    else:
        path = find(str(scenario))
        folder, content = path.resolve().parent, read_toml(path)
    problem, graph = content.get("problem"), content.get("topology", {})
    if "data" in objects and isinstance(problem, Mapping):
        content["problem"] = {"data": OBJECT_NAME, **problem}
    if "topology" in objects and isinstance(graph, Mapping) and not {"kind", "file"} & graph.keys():
        content["topology"] = {"file": OBJECT_NAME, **graph}
    before = content
    for override in overrides:
        content = assign(content, *parse_change(override))
    content = fill_planned_settings(content)
    validated_scenario = _validate(content)
    validated_scenario._folder = folder
    validated_scenario._replaced_tables = (
        scenario._replaced_tables if isinstance(scenario, Scenario) else frozenset()
    ) | {table for table in ("topology", "algorithm") if _titled_value(content, table) != _titled_value(before, table)}
    return validated_scenario


@cache
def _model_of(**kinds: str) -> type[Scenario]:
    """Return the model of scenarios with the keys of registered kinds, given as table → kind."""
    fields: dict[str, Any] = {name: (table_of(REGISTRIES[name][kind]), ...) for name, kind in kinds.items()}
    return create_model("Scenario", __base__=Scenario, **fields)


def _validate(content: Mapping[str, Any]) -> Scenario:
    """Return the validated scenario, with the keys of registered problems and algorithms. Raises InputError."""
    kinds = {name: content[name].get("kind") for name in REGISTRIES if isinstance(content.get(name), Mapping)}
    registered_kinds = {
        name: kind for name, kind in kinds.items() if isinstance(kind, str) and kind in REGISTRIES[name]
    }
    model = _model_of(**registered_kinds)
    if isinstance(graph := content.get("topology"), Mapping):
        # A function that is passed as an object may have keys.
        is_file = "file" in graph and graph["file"] != OBJECT_NAME
        kind, own_keys = graph.get("kind", "a file" if is_file else None), _keys_of_kinds("topology") | {"a file": ()}
        if isinstance(kind, str) and kind in own_keys:
            refuse_unread("topology", kind, map(str, graph), [*TopologyTable.model_fields, *own_keys[kind]], model)
    with converting(ValidationError, lambda error: explain(error, model)):
        scenario = model.model_validate(content)
    values = {name: getattr(scenario, name) for name in Scenario.model_fields}
    for name, kind in registered_kinds.items():
        refuse_unread(name, kind, values[name].model_extra or {}, own_types(REGISTRIES[name][kind]), model)
        values[name] = common_table(values[name])
    return Scenario.model_construct(scenario.model_fields_set, **values)


def refuse_unread(
    table: str, kind: str, keys: Iterable[str], declared_keys: Collection[str], root: type[BaseModel] = Scenario
) -> None:
    """Raise InputError for undeclared keys of a problem, an algorithm or a graph.

    Args:
        table: "problem", "algorithm" or "topology".
        kind: registered kind, "module:Name", or "a file" of a graph.
        keys: keys of the kind in the scenario.
        declared_keys: declared keys of the kind.
        root: model of scenarios with the declared keys, for suggestions.

    Raises:
        InputError: the first undeclared key, with the kinds that declare it.
    """
    for key in keys:
        if key in declared_keys:
            continue
        kinds = _keys_of_kinds(table)
        takers = ", ".join(name for name, own_keys in kinds.items() if key in own_keys)
        if not takers or (table != "topology" and kind not in kinds):
            raise InputError(f"{_path([table, key])}: unknown key{_suggestion([table, key], root, declared_keys)}")
        instead = sorted(_STEPS_FOR.get(key, frozenset()) & {*declared_keys})
        fix = f"use {' and '.join(f'{table}.{name}' for name in instead)}" if instead else "remove it"
        raise InputError(f"{table}.{key}: not supported by {kind}, only by {takers}. Fix: {fix}.")


def _keys_of_kinds(table: str) -> dict[str, Collection[str]]:
    """Return the keys that each registered kind of a table declares."""
    if table == "topology":
        return {name: [key.name for key in graph.parameters] for name, graph in GENERATORS.items()}
    return {name: own_types(entry) for name, entry in REGISTRIES[table].items()}


def _titled_value(content: Mapping[str, Any], table: str) -> Any:
    """Return the table [topology] or the kind of algorithm; a title may refer to it."""
    value = content.get(table)
    return value.get("kind") if table == "algorithm" and isinstance(value, Mapping) else value


def fill_planned_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Fill in the default settings of one-level training; other scenarios stay unchanged.

    Args:
        content: content of a scenario.

    Example:
        >>> fill_planned_settings({"problem": {"kind": "classification"}})["algorithm"]
        {'kind': 'dp_dsgd', 'rounds': 1000}
        >>> fill_planned_settings({"problem": {"kind": "quadratic"}, "algorithm": {"kind": "bsa"}})["algorithm"]
        {'kind': 'bsa'}
    """
    problem, algorithm = content.get("problem"), content.get("algorithm") or {}
    if not isinstance(problem, Mapping) or not isinstance(algorithm, Mapping):
        return content
    kind = problem.get("kind")
    entry = PROBLEMS.get(kind) if isinstance(kind, str) else None
    if entry is None or not entry.one_level:
        return content
    content_with_defaults = {**content, "algorithm": {"kind": "dp_dsgd", "rounds": ROUNDS} | dict(algorithm)}
    if entry.labels == "numbers" and problem.get("data") not in DATASETS:
        content_with_defaults["problem"] = {"classes": [], **problem}
    return content_with_defaults


def python_value(value: Any) -> Any:
    """Convert NumPy numbers to Python numbers, and tuples and arrays to lists, also inside dicts and lists.

    Example:
        >>> import numpy as np
        >>> python_value({"rounds": np.int64(3), "scale": (0.5, np.float32(2))})
        {'rounds': 3, 'scale': [0.5, 2.0]}
    """
    # Compare by name, since numpy is slow to import.
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: python_value(inner) for key, inner in value.items()}
    if isinstance(value, Path):
        return str(value)
    return [python_value(inner) for inner in value] if type(value) in (list, tuple) else value


def read_toml(path: Path, kind: str = "scenario") -> dict[str, Any]:
    """Read a TOML file. Raises InputError if the file is missing, is not text, or is not valid TOML."""
    fix = f"write one with decentral-dp new --data {path}" if path.suffix == ".csv" else "correct the file"
    unreadable = converting(
        (UnicodeDecodeError, OSError), lambda error: f"{kind}: {path} cannot be read ({error}). Fix: use a TOML file."
    )
    invalid = converting(
        (tomllib.TOMLDecodeError, RecursionError),
        lambda error: f"{kind}: {path} is not valid TOML ({error}). Fix: {fix}.",
    )
    with unreadable, invalid:
        return tomllib.loads(regular(path, kind).read_text(encoding="utf-8"))


# Value of a key that is removed.
ABSENT = object()


def parse_change(override: str) -> tuple[list[str], Any]:
    """Split "a.b=value" into the parts of its key and its value; null is `ABSENT`. Raises InputError."""
    key, equals, text = override.partition("=")
    keys = key_parts(key)
    if not equals or not all(keys):
        raise _set_error(
            f"invalid (got {quoted(override)}, expected table.key=value). Fix: use for example algorithm.rounds=500."
        )
    if text.strip() == "null":
        return keys, ABSENT
    try:
        return keys, tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        if text.strip()[:1] in ("{", "["):
            example = """'topology={ kind = "ring", agents = 4 }'"""
            raise _set_error(f"not valid TOML (got {quoted(text)}). Fix: quote texts, as in {example}.") from None
        return keys, text.strip()


def _set_error(problem: str) -> InputError:
    return InputError(f"set: {problem}", command=f"--set: {problem}")


def assign(content: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of a scenario's content with a key set to a value, or without the key for `ABSENT`.

    Args:
        content: content of a scenario.
        keys: parts of the key.
        value: value of the key.

    Raises:
        InputError: a part is not a table, or a key to remove is absent.
    """
    out = dict(content)
    table = out
    for k, name in enumerate(keys):
        last = k == len(keys) - 1
        if (value is ABSENT and name not in table) or not (last or isinstance(table.get(name, {}), Mapping)):
            near = nearest_of(_path(keys), [_path([*keys[:k], key]) for key in table])
            raise _set_error(f"the scenario has no key {quoted(_path(keys))}{near}")
        if not last:
            table[name] = dict(table.get(name, {}))
            table = table[name]
    if value is ABSENT:
        del table[keys[-1]]
    else:
        table[keys[-1]] = value
    return out


def toml_value(value: Any) -> str:
    """Write a value in TOML on one line, with tables in braces.

    Example:
        >>> toml_value({"kind": "ring", "agents": 4}), toml_value([1, "a"])
        ('{ kind = "ring", agents = 4 }', '[1, "a"]')
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(k)} = {toml_value(v)}' for k, v in value.items())} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    import tomli_w

    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")


def toml_key(name: str) -> str:
    """Write one part of a key, in quotation marks if TOML requires them."""
    import tomli_w

    return tomli_w.dumps({name: 0}).rpartition(" = ")[0]


def key_parts(key: str) -> list[str]:
    """Split a TOML key into its parts: a."b.c" has two."""
    try:
        table = tomllib.loads(f"{key} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        return key.strip().split(".")
    parts = []
    while isinstance(table, dict):
        if len(table) != 1:  # several keys, or a comment
            return key.strip().split(".")
        name, table = next(iter(table.items()))
        parts.append(name)
    return parts


# Name of records or of a graph that are Python objects, if the scenario does not name them.
OBJECT_NAME = "given in Python"


def explain(error: ValidationError, root: type[BaseModel] = Scenario) -> str:
    """Describe pydantic's most specific error about a table of type `root` in one sentence."""
    complaints = error.errors(include_url=False)
    # All alternatives of a union report errors. The deepest error belongs to the intended alternative.
    first = max(complaints, key=lambda e: (e["type"] == "extra_forbidden", len(e["loc"]), e["type"] == "value_error"))
    names = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        path = _path([n for n in names[:-1] if _is_key(n)] + names[-1:])
        if len(names) == 1 and (hint := _table_hint(path, first["input"], root)):
            return f"{path}: unknown table. Fix: use {hint}."
        return f"{path}: unknown key{_suggestion(names, root)}"
    path = _path([n for n in names if _is_key(n)])
    problem = "empty" if first["type"] == "too_short" and not first["input"] else first["type"]
    if problem in ("missing", "empty"):
        lacking = [
            _path([str(n) for n in e["loc"] if _is_key(str(n))]) for e in complaints if e["type"] == first["type"]
        ]
        fix = "add {}" if problem == "missing" else "fill {} in"
        if path.endswith("sampling.kind") and "batch_size" in first["input"]:
            fix = 'add kind = "fixed_batch"'
        return f"{', '.join(lacking)}: {problem}. Fix: {fix.format('it' if len(lacking) == 1 else 'them')}."
    if first["type"] == "value_error":
        problem = str(first["msg"]).removeprefix("Value error, ")
        # The check of a table names a key first.
        return f"{path}{'.' if re.match(r'[a-z_]+: ', problem) else ': '}{problem}."
    same_place = [e for e in complaints if _path([str(n) for n in e["loc"] if _is_key(str(n))]) == path]
    expectations = list(dict.fromkeys(expected_text(e) for e in same_place))
    text = f"{path}: got {quoted(first['input'])}, expected {', or '.join(expectations)}."
    if path == "privacy.epsilon" and first["type"].endswith("_equal"):
        return f'{text} Fix: for a run without privacy, set privacy.guarantee = "none".'
    has_kind = isinstance(first["input"], str) and f"{path}.kind" in _key_paths(root)
    kind = our_algorithm(first["input"]) if path == "algorithm" else first["input"]
    return f"{text} Fix: set {path}.kind = {quoted(kind)}." if has_kind else text


_EXPECTED_TEXTS = {
    "model_type": "a table in braces",
    "dict_type": "a table in braces",
    "string_type": "text",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "too_short": "at least {min_length} values",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "literal_error": "{expected}",
    "string_pattern_mismatch": '"module:function"',
}


def expected_text(complaint: Any) -> str:
    """Write the expected value of an error of pydantic."""
    if complaint["type"] == "model_type" and complaint["ctx"]["class_name"] == "Schedule":
        return "a number, or a table in braces"
    if complaint["type"] in _EXPECTED_TEXTS:
        return _EXPECTED_TEXTS[complaint["type"]].format(**complaint.get("ctx", {})).replace("'", '"')
    return str(complaint["msg"]).removeprefix("Input should be ")


def _path(names: Sequence[str]) -> str:
    """Join the parts of a key by dots, with quotation marks around parts that are not bare TOML keys."""
    return ".".join(n if re.fullmatch(r"[\w-]+", n) else quoted(n) for n in names)


def _is_key(name: str) -> bool:
    """Return whether a part of pydantic's location is a key or an index, not an alternative of a union."""
    alternatives = {"str", "int", "float", "bool"} | {table.__name__ for table in _subclasses(Table)}
    return "[" not in name and name not in alternatives and not name.startswith("constrained-")


def _subclasses(table: type[BaseModel]) -> list[type[BaseModel]]:
    """Return all direct and indirect subclasses."""
    return [t for c in table.__subclasses__() for t in (c, *_subclasses(c))]


# Key of a step → keys of other algorithms with the same purpose.
_STEPS_FOR = {"learning_rate": frozenset("xyz"), "y": frozenset(["learning_rate"])}
_STEP = "algorithm.learning_rate (training) or algorithm.x, .y and .z (bilevel)"
_AGENTS, _ROUNDS, _BATCH = (
    "topology.agents",
    "algorithm.rounds",
    'problem.sampling = { kind = "fixed_batch", batch_size = … }',
)
_POISSON = 'problem.sampling = { kind = "poisson", rate = … }'
_EPOCHS = f"{_ROUNDS}: rounds = epochs × records per agent / batch size"
_CLIP, _NOISE = "privacy.clip", "privacy.noise_multiplier, or the standard deviation privacy.y.scale"

# Names that other libraries and papers use. Unknown key → our key.
OTHER_KEYS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("lr", "step", "step_size", "eta"), _STEP),
        "alpha": f"{_STEP}; of a Dirichlet partition: problem.partition.alpha",
        **dict.fromkeys(("max_grad_norm", "clip_norm", "l2_norm_clip", "clipping_norm", "clipping_threshold"), _CLIP),
        **dict.fromkeys(("sigma", "noise", "noise_scale", "noise_std"), _NOISE),
        "noise_multiplier": "privacy.noise_multiplier",
        **dict.fromkeys(("target_epsilon", "eps"), "privacy.epsilon"),
        "target_delta": "privacy.delta",
        **dict.fromkeys(("num_rounds", "n_rounds", "max_iter", "iterations", "steps"), _ROUNDS),
        **dict.fromkeys(("epochs", "num_epochs", "n_epochs", "max_epochs"), _EPOCHS),
        "local_epochs": "algorithm.local_steps (steps on all records of an agent)",
        **dict.fromkeys(("n_clients", "num_clients", "clients", "n_agents", "num_agents"), _AGENTS),
        **dict.fromkeys(("nodes", "n_nodes", "num_nodes", "n", "workers", "num_workers", "n_workers"), _AGENTS),
        "world_size": _AGENTS,
        "graph": "topology.kind or topology.file",
        **dict.fromkeys(("batch_size", "batch", "minibatch"), _BATCH),
        **dict.fromkeys(("sample_rate", "sampling_rate", "poisson_sampling"), _POISSON),
        **dict.fromkeys(("adjacency", "neighboring", "neighbouring"), 'privacy.neighbours = "replace" or "zero_out"'),
        "momentum": "algorithm.momentum",
        "weight_decay": "problem.l2 (training)",
        "dataset": "problem.data",
        "n_jobs": "the option --jobs of decentral-dp study",
    }
)
# Tables that other libraries use. Unknown table → our table.
OTHER_TABLES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("optimizer", "optimiser", "optim", "training", "train", "trainer", "federated"), "algorithm"),
        **dict.fromkeys(("dp", "differential_privacy", "privacy_engine", "accountant"), "privacy"),
        **dict.fromkeys(("network", "graph"), "topology"),
        **dict.fromkeys(("dataset", "data", "dataloader"), "problem"),
    }
)
# Unknown key → reason why no key exists.
KEYS_NOT_OFFERED: Mapping[str, str] = MappingProxyType(
    {
        "class_weight": "there are no class weights: class counts are private. Estimators in Python take a public "
        "class_weight, and auc_maximisation takes problem.positive_share",
        "sample_weight": "there are no sample weights: every record of an agent has the same sensitivity",
        "accountant": "every mechanism has one accountant. privacy.mechanism sets the noise",
        "seeds": "run has the option --seeds with --baselines, and studies repeat a scenario with seeds = 5",
        "secure_mode": "noise has a secret key, unless the scenario has a seed",
        "scenario": "studies have it, and decentral-dp study runs them",
        "lr_scheduler": "a learning rate is a number or { scale, decay, points }",
        "optimizer": "an algorithm has one update rule. dp_dsgd has algorithm.momentum",
    }
)
# Unknown algorithm → our kind.
ALGORITHM_KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("fedavg", "fedsgd", "dp_fedavg"), "federated"),
        **dict.fromkeys(("dpsgd", "dp_sgd", "sgd", "centralized", "centralised"), "central"),
        **dict.fromkeys(("dgd", "ldp_dgd"), "ldp_single_level"),
        **dict.fromkeys(("dsgd", "d_sgd", "decor"), "dp_dsgd"),
        **dict.fromkeys(("local", "local_only"), "alone"),
        **dict.fromkeys(("gt", "tracking", "diging"), "gradient_tracking"),
        **dict.fromkeys(("choco_sgd", "chocosgd"), "choco"),
        **dict.fromkeys(("pg_extra", "pgextra"), "extra"),
        **dict.fromkeys(("admm", "d_admm", "linearised_admm", "linearized_admm"), "dlm"),
        **dict.fromkeys(("d2", "ed", "nids"), "exact_diffusion"),
        **dict.fromkeys(("mrmtl", "personalised", "personalized"), "mr_mtl"),
    }
)


def _table_hint(name: str, content: Any, root: type[BaseModel]) -> str:
    """Suggest our table and keys for those of an unknown table; "" if there are none."""
    if not isinstance(content, Mapping):
        return ""
    table = OTHER_TABLES.get(name)
    same = {path.removeprefix(f"{table}."): path for path in _key_paths(root) if path.startswith(f"{table}.")}
    ours = {**same, **OTHER_KEYS}
    hints = [f"for {key}: {ours[key]}" for key in content if key in ours]
    return "; ".join([f"[{table}]", *hints] if table else hints)


def _suggestion(names: Sequence[str], root: type[BaseModel], more: Collection[str] = ()) -> str:
    """Suggest a key of another table with this name, or a key of this table with a similar name.

    Args:
        names: parts of the unknown key.
        root: type of the outermost table.
        more: keys of the inner table that `root` does not have.
    """
    key = names[-1]
    if reason := KEYS_NOT_OFFERED.get(key):
        return f"; {reason}."
    # An algorithm may not have the key to which the name leads.
    if (ours := OTHER_KEYS.get(key)) and ours != _path(names):
        return f". Fix: use {ours}."
    paths = _key_paths(root)
    if candidates := [path for path in paths if path.rpartition(".")[2] == key]:
        return f"; did you mean {' or '.join(map(quoted, candidates[:3]))}?"
    above = _path([name for name in names[:-1] if _is_key(name)])
    same_table = [name for path in paths for table, _, name in [path.rpartition(".")] if table == above]
    return nearest_of(key, list(dict.fromkeys([*same_table, *sorted(more)])))


def keys_named(name: str) -> str:
    """Return the scenario keys for the last part of a key or for its name in other libraries, or "" for other names.

    Example:
        >>> keys_named("--epsilon"), keys_named("target_epsilon"), keys_named("--colour")
        ('privacy.epsilon', 'privacy.epsilon', '')
    """
    key = name.lstrip("-").replace("-", "_")
    paths = [path for path in _key_paths(Scenario) if path.rpartition(".")[2] == key]
    return OTHER_KEYS.get(key) or " or ".join(paths[:3])


def our_algorithm(name: str) -> str:
    """Return the kind of the algorithm that has this name in other libraries. Any other name is returned unchanged.

    Example:
        >>> our_algorithm("DP-SGD"), our_algorithm("choco")
        ('central', 'choco')
    """
    return ALGORITHM_KINDS.get(name.lower().replace("-", "_"), name)


def _key_paths(root: type[BaseModel], above: str = "", depth: int = 3) -> list[str]:
    """Return the dotted keys of all tables, with keys of outer tables first."""
    inner = {f"{above}{name}": tables_in(field.annotation) for name, field in root.model_fields.items() if depth > 0}
    below = [path for key, tables in inner.items() for t in tables for path in _key_paths(t, f"{key}.", depth - 1)]
    return sorted(dict.fromkeys([*inner, *below]), key=lambda path: path.count("."))


def tables_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the tables in a type."""
    if get_origin(annotation) in (Union, types.UnionType, Annotated, list):
        return [t for a in get_args(annotation) for t in tables_in(a)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
