"""All keys that a scenario lacks, at once, each with an example of its value.

What training at one level leaves to be planned: keys that may be left out of a scenario, or be "auto".

Rounds are the same for every training, and are filled in when a scenario is read. The step and the clip follow from
public numbers of the records (`simulation.jobs.settings`), and are filled in when its job is built. A run folder has
all of them as numbers.

The tables of a scenario that an algorithm starts from: every key that it needs, with an example of its value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from decentral_dp.algorithms import ALGORITHMS, Entry, Options
from decentral_dp.algorithms.options import Option
from decentral_dp.algorithms.protocol import Algorithm, StepSize
from decentral_dp.data import DATASETS, ENVIRONMENTS
from decentral_dp.errors import InputError
from decentral_dp.problems import BILEVEL, MINIMAX, PROBLEMS, ProblemFacts
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES
from decentral_dp.topology import GENERATORS
from decentral_dp.user_code import USER_ERRORS

# Tables whose component may be handed over as a Python object, which then needs no keys.
_TABLES = ("problem", "topology", "algorithm", "privacy")
AUTO = "auto"
# (table, key) that may be "auto".
PLANNED = (
    ("algorithm", "kind"),
    ("algorithm", "rounds"),
    ("algorithm", "y"),
    ("privacy", "clip"),
)
ROUNDS = 1000
# Of training at one level, what is planned where it is left out.
_PLANNED_KEYS = {f"{table}.{key}" for table, key in PLANNED} | {"privacy.clip.y"}
_USUAL_VALUES = {
    "problem.kind": '"logistic_hyperparameter"',
    "problem.data": '"breast_cancer"',
    "topology.kind": '"ring"',
    "topology.agents": "10",
    "algorithm.kind": '"ldp_dsbo"',
    "algorithm.rounds": "100",
}
# Of a scenario that names no problem, and no algorithm that tunes: training at one level, whose settings are planned.
_TRAINING = {
    "problem.kind": '"classification"',
    "problem.data": '"breast_cancer"',
    "problem.scale": '"public_ranges"',
    "topology.kind": '"ring"',
    "topology.agents": "10",
    "algorithm.kind": '"dp_dsgd"',
    "algorithm.rounds": "1000",
    "privacy.mechanism": '"gaussian"',
    "privacy.epsilon": "4.0",
}


def missing_keys(content: Mapping[str, Any], objects: Sequence[str] = ()) -> dict[str, str]:
    """List the keys that a scenario needs and does not have, as far as its kinds are known.

    Args:
        content: of the scenario, not yet validated.
        objects: tables whose component is a Python object.

    Returns:
        Dotted key → a value that it could have, as TOML; "" where there is no usual one.

    Example:
        >>> missing_keys({"problem": {"kind": "quadratic", "data": "synthetic_normal"}, "topology": {"kind": "ring"},
        ...     "algorithm": {"kind": "ldp_single_level", "y": {"scale": 0.1}}, "privacy": {"guarantee": "none"}})
        {'topology.agents': '10', 'algorithm.rounds': '100'}
    """
    tables = {name: _table(content.get(name)) for name in _TABLES}
    if any(table is None for table in tables.values()):
        # A value where a table belongs is another mistake.
        return {}
    problem, topology, algorithm, privacy = (tables[name] or {} for name in _TABLES)
    if not objects and "kind" not in problem and algorithm.get("kind", "dp_dsgd") == "dp_dsgd":
        needless = {"problem.scale"} if "data" in problem else set()
        needless |= {"privacy.mechanism", "privacy.epsilon"} if privacy.get("guarantee") == "none" else set()
        return {k: value for k, value in _TRAINING.items() if not _has_key(tables, k) and k not in needless}
    wanted: dict[str, str] = {}
    if "problem" not in objects:
        wanted |= {key: _USUAL_VALUES[key] for key in ("problem.kind", "problem.data")}
        wanted |= _problem_options(problem)
    if "topology" not in objects and "file" not in topology:
        wanted |= {key: _USUAL_VALUES[key] for key in ("topology.kind", "topology.agents")}
        generator = GENERATORS.get(str(topology.get("kind")))
        needed = () if generator is None else [p for p in generator.parameters if p.required]
        wanted |= {f"topology.{p.name}": "" for p in needed}
    wanted |= {key: _USUAL_VALUES[key] for key in ("algorithm.kind", "algorithm.rounds")}
    entry = ALGORITHMS.get(str(algorithm.get("kind")))
    if entry is not None and "algorithm" not in objects:
        options = {option.key: option.example for option in entry.keys if option.required}
        wanted |= {f"algorithm.{key}": entry.example.get(key, value) for key, value in options.items()}
        wanted |= _privacy(entry, problem, privacy, "problem" in objects)
    chosen = PROBLEMS.get(str(problem.get("kind")))
    if chosen is not None and chosen.one_level:
        wanted = {key: value for key, value in wanted.items() if key not in _PLANNED_KEYS}
    return {key: value for key, value in wanted.items() if not _has_key(tables, key)}


def refusal_of_levels(algorithm: str, problem: str) -> InputError:
    """The refusal of an algorithm of two levels where nothing is tuned."""
    return InputError(
        f'algorithm.kind: {algorithm} solves a bilevel problem, and {problem} has nothing to tune. Take "dp_dsgd" or '
        '"ldp_single_level".'
    )


def refusal_of_missing_keys(error: InputError, content: Mapping[str, Any], objects: Sequence[str] = ()) -> InputError:
    """The refusal of a scenario: of one that lacks several keys, and is refused for one of them, that names all.

    Args:
        error: why it is refused.
        content: of the scenario.
        objects: tables whose component is a Python object.

    Example:
        >>> content = {"topology": {"kind": "ring"}, "algorithm": {"kind": "ldp_single_level", "y": {"scale": 0.1}},
        ...     "privacy": {"guarantee": "none"}}
        >>> print(refusal_of_missing_keys(InputError("algorithm.rounds: missing."), content, objects=["problem"]))
        scenario: 2 keys are missing; add, for example, topology.agents = 10, algorithm.rounds = 100.
        >>> print(refusal_of_missing_keys(InputError("privacy.cap: too large."), content, objects=["problem"]))
        privacy.cap: too large.
    """
    said, lacking = str(error), missing_keys(content, objects)
    about = any(said.startswith(f"{key}: missing") for key in lacking) or (
        said.startswith("topology (") and any(f"{key.removeprefix('topology.')} is missing" in said for key in lacking)
    )
    if not about or len(lacking) < 2:
        return error
    kind = content.get("problem", {}).get("kind")
    if "algorithm.x" in lacking and kind in PROBLEMS and PROBLEMS[kind].one_level:
        return refusal_of_levels(content["algorithm"]["kind"], kind)
    return InputError(missing_sentence(lacking))


def missing_sentence(lacking: Mapping[str, str], what: str = "scenario") -> str:
    """Name every key that is missing, with an example of its value.

    Example:
        >>> missing_sentence({"topology.agents": "10", "topology.degree": ""})
        'scenario: 2 keys are missing; add, for example, topology.agents = 10, and values for topology.degree.'
    """
    usual = ", ".join(f"{key} = {value}" for key, value in lacking.items() if value)
    others = ", ".join(key for key, value in lacking.items() if not value)
    parts = [f"add, for example, {usual}"] if usual else []
    parts += [f"{'and' if usual else 'give'} values for {others}"] if others else []
    return f"{what}: {len(lacking)} keys are missing; {', '.join(parts)}."


def _table(value: Any) -> Mapping[str, Any] | None:
    return {} if value is None else value if isinstance(value, Mapping) else None


def _has_key(tables: Mapping[str, Any], key: str) -> bool:
    at: Any = tables
    for part in key.split("."):
        if not isinstance(at, Mapping) or at.get(part) is None:
            return False
        at = at[part]
    return True


def _problem_options(problem: Mapping[str, Any]) -> dict[str, str]:
    entry = PROBLEMS.get(str(problem.get("kind")))
    needed = () if entry is None else entry.required_keys
    wanted = {}
    if str(problem.get("data")).lower().endswith(".csv"):
        wanted["problem.label"] = ""
    shared = _table(problem.get("construction")) or {}
    constructed = () if entry is None else [key for key, share in entry.construction_of.items() if share in shared]
    return wanted | {f"problem.{key}": "" for key in needed if key not in constructed}


def _privacy(
    entry: Entry, problem: Mapping[str, Any], privacy: Mapping[str, Any], problem_given: bool
) -> dict[str, str]:
    """A target, and the clips of a certified run; scales of one's own count as a target."""
    guarantee = privacy.get("guarantee", "certified")
    if guarantee == "none":
        return {}
    if entry.trusts_coordinator:
        return {"privacy.epsilon": "4.0"}
    clip = _table(privacy.get("clip")) or {}
    if guarantee != "certified" or problem_given or ("epsilon" in privacy and _families(entry) <= set(clip)):
        return {}
    read = sorted(_read_families(entry, problem))
    scaled = any(isinstance(privacy.get(channel), Mapping) for channel in ("x", "y", "z"))
    target = {"privacy.epsilon": "4.0"} if read and not scaled else {}
    return target | {f"privacy.clip.{family}": "1.0" for family in read}


def _families(entry: Entry) -> set[str]:
    """The families that an algorithm's records may be clipped in."""
    return {CLIP_OF_TERM[term] for term in channel_terms(entry)}


def _read_families(entry: Entry, problem: Mapping[str, Any]) -> set[str]:
    """Those of them whose terms read records of this problem; none where the problem cannot be made of sizes alone."""
    kind = str(problem.get("kind"))
    chosen = BILEVEL.get(kind)
    if chosen is None:
        return _families(entry) if kind in MINIMAX else set()
    try:
        options = {key: problem[key] for key in ("ridge",) if key in problem and key in chosen.options}
        read = chosen.build(options, ProblemFacts(2, 2)).reads_records
    except USER_ERRORS:
        return set()
    return {CLIP_OF_TERM[term] for term in channel_terms(entry) if MATRICES.get(term, term) in read}


def fill_planned_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Fill in what training leaves out and what no record decides; what else is "auto" is left out.

    Args:
        content: of a scenario, as it is written.

    Returns:
        The same where the problem is none of one level.

    Raises:
        InputError: "auto" where nothing is planned.

    Example:
        >>> fill_planned_settings({"problem": {"kind": "classification"}})["algorithm"]
        {'kind': 'dp_dsgd', 'rounds': 1000}
        >>> fill_planned_settings({"problem": {"kind": "quadratic"}, "algorithm": {"kind": "bsa"}})["algorithm"]
        {'kind': 'bsa'}
    """
    tables = {name: content.get(name) for name in ("problem", "algorithm", "privacy", "run")}
    if not all(value is None or isinstance(value, Mapping) for value in tables.values()):
        return content
    kind = (tables["problem"] or {}).get("kind")
    entry = PROBLEMS.get(kind) if isinstance(kind, str) else None
    auto = [(table, key) for table, key in PLANNED if (tables[table] or {}).get(key) == AUTO]
    if entry is None or not entry.one_level:
        if auto:
            raise InputError(
                f'{".".join(auto[0])}: "auto" is for problem.kind = "classification" or "regression". Give a value.'
            )
        return content
    filled = {name: dict(value or {}) for name, value in tables.items()}
    for table, key in auto:
        del filled[table][key]
    filled["algorithm"] = {"kind": "dp_dsgd", "rounds": ROUNDS} | filled["algorithm"]
    if entry.labels == "numbers" and filled["problem"].get("data") not in DATASETS:
        filled["problem"].setdefault("classes", [])
    return {**content, **filled}


def algorithm_tables(entry: Entry) -> str:
    """The tables [algorithm] and [privacy] of a certified run, with every key that the algorithm needs."""
    if entry.trusts_coordinator:
        return _trusted_tables(entry)
    needed = [option for option in entry.keys if option.required]
    lines = ["[algorithm]", f'kind = "{entry.kind}"', "rounds = 100", *(o.line for o in needed)]
    read = {CLIP_OF_TERM[term] for term in channel_terms(entry)}
    # Whether a problem has records in the gradient of the upper loss by x, and in the Jacobian, is its own affair.
    minimax = entry.solves == "minimax"
    notes = {} if minimax else {"x": "  # read only by problems whose losses have records and x in one term"}
    clips = [f"clip.{family} = 1.0{notes.get(family, '')}" for family in sorted(read)]
    privacy = ["[privacy]", 'mechanism = "gaussian"', "epsilon = 4.0", "delta = 1e-5", *clips]
    return "\n".join([*lines, "", *privacy])


def _trusted_tables(entry: Entry) -> str:
    def example_text(option: Option) -> str:
        return f"{option.key} = {entry.example.get(option.key, option.example)}"

    problem = entry.example.get("problem", '"logistic_regularisation"')
    data = entry.example.get("data", '"breast_cancer"')
    lines = ["[problem]", f"kind = {problem}", f"data = {data}"]
    played = data.strip('"') in ENVIRONMENTS
    lines += [] if played else ['scale = "public_ranges"', 'normalise = "l2"']
    lines += _several(entry, "problem_keys")
    # The graph plays no part; it says how many agents there are.
    lines += ["", "[topology]", 'kind = "star"', "agents = 10", ""]
    lines += ["[algorithm]", f'kind = "{entry.kind}"', f"rounds = {entry.example.get('rounds', '20')}"]
    lines += [example_text(option) for option in entry.keys if option.required]
    # What is left out is settled from constants, which hold on a bounded domain; not what the example itself gives.
    given = ("domain", *entry.example)
    lines += [f"{'' if o.key in given else '# '}{example_text(o)}" for o in entry.keys if not o.required]
    privacy = [f"guarantee = {entry.example['guarantee']}"] if "guarantee" in entry.example else []
    return "\n".join([*lines, "", "[privacy]", *privacy, "epsilon = 1.0", "delta = 1e-6", *_several(entry, "clip")])


def _several(entry: Entry, key: str) -> list[str]:
    """Lines of an example, where it has some."""
    return entry.example[key].splitlines() if key in entry.example else []


def channel_terms(entry: Entry) -> set[str]:
    """The terms that the releases of a gossip algorithm are made of."""
    needed = [option for option in entry.keys if option.required]
    given = {o.key: tomllib.loads(o.line)[o.key] for o in needed}
    values = {o.key: StepSize(1.0) if o.type is StepSize else given[o.key] for o in needed}
    built = cast(Algorithm, entry.build(Options(values, {}, "released"), "certified"))
    return {term for channel in built.releases(1, 1).values() for term in channel.terms}
