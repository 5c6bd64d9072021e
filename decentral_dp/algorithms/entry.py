"""Entries of algorithms: the name, the citations, and facts that are not fields of the class.

The fields define keys, types, defaults and descriptions (`options`).

The entry of a custom class follows from its members. A gossip algorithm has `channels`; a coordinator's algorithm has
`QUERIES` or `queries`. It solves problems of the type `solves`, by default the type that has the terms of its queries.
Each class states its releases or defines its own plan (`plans`).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from decentral_dp import annexes
from decentral_dp.algorithms.options import CENTRING, DOMAIN, Option, options_of
from decentral_dp.algorithms.plans import DeclaredGossip, stated_terms
from decentral_dp.algorithms.protocol import ONE_LEVEL, Algorithm, AnyAlgorithm
from decentral_dp.errors import InputError
from decentral_dp.problems import TYPES
from decentral_dp.problems.protocol import CHANGE
from decentral_dp.user_code import reason

# Letters of names that BibTeX writes differently.
_ACCENTS = {"á": "\\'a", "é": "\\'e", "í": "\\'i", "ó": "\\'o", "ú": "\\'u", "ö": '\\"o', "ü": '\\"u'}


class Work(NamedTuple):
    """Publication that an algorithm cites.

    Args:
        key: BibTeX key.
        authors: names as in BibTeX, such as "Chen, Ziqin and Wang, Yongqiang".
        title: title of the publication.
        year: year of the publication.
        venue: venue and year, such as "ICML 2024, PMLR 235", or the number of a preprint.
        booktitle: title of the proceedings.
        fields: further BibTeX fields.
    """

    key: str
    authors: str
    title: str
    year: int
    venue: str = ""
    booktitle: str = ""
    fields: Mapping[str, str] = MappingProxyType({})

    @property
    def text(self) -> str:
        """Return one line: authors, title, venue and year."""
        authors = []
        for author in self.authors.split(" and "):
            # "Bai, Er-Wei" becomes "E.-W. Bai".
            surname, _, first = author.partition(", ")
            parts = ("-".join(f"{part[0]}." for part in name.split("-") if part[0].isupper()) for name in first.split())
            authors.append(" ".join([*parts, surname]))
        *before, last = authors
        et_al = last == "others"
        names = f"{', '.join(before)} et al." if et_al else f"{', '.join(before)} and {last}" if before else last
        venue = [self.venue] if self.venue else []
        when = [] if str(self.year) in self.venue else [str(self.year)]
        return f"{', '.join([names, self.title, *venue, *when])}."

    @property
    def bibtex(self) -> str:
        """Return the BibTeX entry."""
        kind = "inproceedings" if self.booktitle else "misc"
        fields = {"title": self.title, "author": "".join(_ACCENTS.get(letter, letter) for letter in self.authors)}
        fields |= {"booktitle": self.booktitle} if self.booktitle else {"note": self.venue} if self.venue else {}
        fields |= {**self.fields, "year": str(self.year)}
        width = max(len(name) for name in fields)
        lines = (f"  {name:{width}} = {{{value}}}" for name, value in fields.items())
        filled_lines = (textwrap.fill(line, 110, subsequent_indent=" " * (width + 6)) for line in lines)
        return f"@{kind}{{" + ",\n".join([self.key, *filled_lines]) + "\n}"


class Citation(NamedTuple):
    """Part of a publication that an algorithm implements.

    Args:
        part: part shown in the list, such as "Algorithm 3, corrected".
        key: key of the publication in works.toml.
    """

    part: str
    key: str

    @property
    def work(self) -> Work:
        """The publication."""
        return works()[self.key]


@cache
def works() -> Mapping[str, Work]:
    """Return the publications listed in works.toml by their BibTeX keys.

    Example:
        >>> works()["abadi2016deep"].year
        2016
    """
    tables = tomllib.loads(Path(__file__).with_name("works.toml").read_text(encoding="utf-8"))
    work_fields = {
        key: {name: table.pop(name) for name in Work._fields if name in table} for key, table in tables.items()
    }
    return {key: Work(key, **work_fields[key], fields=further) for key, further in tables.items()}


NOISED = Citation("Noise on its messages (Algorithm 3 there)", "chen2024locally")
# An annex's problem in a scenario, for the examples of `list`.
AUC = {
    "problem": '"auc_maximisation"',
    "problem_keys": "# Public: no count of these records.\npositive_share = 0.6",
    "clip": "clip.x = 1.0",
}


class Rules(NamedTuple):
    """Rules of a setting that apply before a job exists. The defaults apply to gossip.

    Args:
        is_coordinated: whether a trusted coordinator runs the algorithm.
        solves: type of the problems that its algorithms solve.
        trust: trust model, printed in lists.
        graph: kind of graph for examples.
        example: example values of a custom algorithm's keys.
        complete: function that builds the runnable program from a dataclass with a derived plan and a start.
        domain: whether algorithms accept a domain of x.
        plans_on_cpu: whether a plan may be computed on the CPU for a run on another device.
    """

    is_coordinated: bool = False
    solves: str = "bilevel"
    trust: str = "gossip or an untrusted server"
    graph: str = "ring"
    example: Mapping[str, str] = MappingProxyType({})
    complete: Callable[..., AnyAlgorithm] = DeclaredGossip
    domain: bool = False
    plans_on_cpu: bool = False


GOSSIP = Rules()


def rules_of(setting: str) -> Rules:
    """Return the rules of a setting (gossip or an annex)."""
    rules: Rules = GOSSIP if setting == "gossip" else annexes.import_place(annexes.RULES[setting])
    return rules


class Entry(NamedTuple):
    """Registered or custom algorithm.

    Args:
        kind: name of the algorithm in a scenario.
        algorithm: dataclass of the algorithm, whose docstring begins with the summary for the list.
        citations: publications to cite.
        proved: whether docs/proofs proves its plan and its properties. Releases of other algorithms are compared with
            their plan.
    """

    kind: str
    algorithm: type
    citations: tuple[Citation, ...]
    proved: bool
    # Name in tables and figures, such as "D-SGD"; "" means the kind.
    display_name: str = ""
    # Set by the registry, from the folder of the module.
    setting: str = "gossip"
    # Agents of the scenario's graph, the same agents without edges, or one agent with all records.
    network: Literal["graph", "isolated", "pooled"] = "graph"
    # Key → example value, if the default example does not fit.
    example: Mapping[str, str] = MappingProxyType({})
    # Digest of a custom algorithm's code, if no file of the scenario contains it.
    source: str = ""
    # Text with the formulas.
    description: str = ""
    # Object passed in Python instead of a kind.
    instance: Any = None

    @property
    def pure(self) -> bool:
        """Whether the algorithm allows δ = 0 because it adds no Gaussian noise."""
        return bool(getattr(self.algorithm, "pure", False))

    @property
    def rules(self) -> Rules:
        """Rules of the algorithm's setting."""
        return rules_of(self.setting)

    @property
    def trusts_coordinator(self) -> bool:
        """Whether a trusted coordinator runs the algorithm."""
        return self.rules.is_coordinated

    @property
    def solves(self) -> str:
        """Type of the problems that the algorithm solves."""
        return str(getattr(self.algorithm, "solves", self.rules.solves))

    @property
    def summary(self) -> str:
        """First line of the class docstring, shown in lists."""
        text = (inspect.getdoc(self.algorithm) or self.kind).strip().split("\n")[0].rstrip(".")
        return f"{text[0].lower()}{text[1:]}" if self.proved else text

    @property
    def keys(self) -> tuple[Option, ...]:
        """All keys, in the order of the fields."""
        domain = DOMAIN._replace(required=getattr(self.algorithm, "needs_domain", False))
        around = ((domain,) if self.rules.domain else ()) + ((CENTRING,) if self.can_centre else ())
        return (*options_of(self.algorithm), *around)

    @property
    def can_centre(self) -> bool:
        """Whether centring is supported (one-level training in which all agents send and average in every round)."""
        terms = stated_terms(self.algorithm)
        averages = all(
            getattr(self.algorithm, name, False) in (False, getattr(Algorithm, name))
            for name in ("senders", "sends", "conserves_mass")
        )
        return self.setting == "gossip" and bool(terms) and set(terms) <= set(ONE_LEVEL) and averages

    def build(self, values: Mapping[str, Any], start: Mapping[str, float], guarantee: str) -> AnyAlgorithm:
        """Build the algorithm.

        Args:
            values: values of the scenario's [algorithm] table by key.
            start: constant start of each variable.
            guarantee: value of privacy.guarantee.

        Raises:
            InputError: the algorithm does not support the guarantee.
        """
        starts = any(f.name == "start" for f in dataclasses.fields(self.algorithm))
        algorithm: Any = self.instance
        if algorithm is None:
            own_values = {key: value for key, value in values.items() if key != CENTRING.key}
            algorithm = self.algorithm(**own_values, **({"start": start} if starts else {}))
        # A class that only states its releases is completed to a program.
        plans = hasattr(self.algorithm, "planned_releases")
        program: AnyAlgorithm = algorithm if plans else self.rules.complete(algorithm, start=start)
        supported = {"as_published": "as_published", "noiseless": "none"}.get(program.protocol, "certified")
        if guarantee not in (supported, "none"):
            reasons = {"none": "adds no noise", "as_published": "has no certified ε"}
            expected = '"none"' if supported == "none" else f'"{supported}" or "none"'
            raise InputError(
                f"privacy.guarantee: {self.kind} {reasons.get(supported, 'has no noise as published')} (got "
                f'"{guarantee}", expected {expected}). Fix: set guarantee = "{supported}".'
            )
        return program


# Required members of an algorithm with its own plan.
_GOSSIP_MEMBERS = ("init", "step", "releases", "planned_releases", "releases_per_round", "has_server", "protocol")
_COORDINATOR_MEMBERS = (
    *("init", "step", "published", "releases_per_round", "protocol", "needs_constants", "needs_records"),
    *("resolve_defaults", "free_channels", "planned_releases"),
)
# Members that the base protocols leave open.
_OPEN = ("init", "step", "releases", "planned_releases", "resolve_defaults")


def entry_of_class(algorithm: Any, kind: str, source: str = "") -> Entry:
    """Return the entry of a custom class.

    Args:
        algorithm: class of the algorithm, a dataclass.
        kind: name in the scenario.
        source: digest of the class's code if no file of the scenario contains it.

    Raises:
        InputError: the class is not an algorithm.
    """
    is_trusted = hasattr(algorithm, "QUERIES") or hasattr(algorithm, "queries")
    if not isinstance(algorithm, type):
        fault = f"{kind} is not a class. Fix: name a frozen dataclass with init and step."
    elif not is_trusted and not hasattr(algorithm, "channels"):
        fault = (
            f"{kind} is not an algorithm: a gossip algorithm states its channels, and a coordinator's its QUERIES. "
            'Fix: add one of them, for example channels = ("x", "y").'
        )
    else:
        options_of(algorithm)
        try:
            fault = _fault(algorithm, kind, is_trusted)
        except (AttributeError, TypeError) as error:
            fault = (
                f"{kind} states its releases in an invalid form ({reason(error)}). Fix: state them as in "
                'RELEASES = {"y": {"lower_grad_y": "learning_rate"}} or QUERIES = ("grad_x", "grad_y").'
            )
    if fault:
        raise InputError(f"algorithm.kind: {fault}")
    setting = "gossip"
    if is_trusted:
        terms = set(stated_terms(algorithm))
        by_terms = next((t.name for t in TYPES.values() if terms <= set(t.terms)), "bilevel")
        solves = getattr(algorithm, "solves", by_terms)
        setting = next(name for name in annexes.RULES if rules_of(name).solves == solves)
    example = rules_of(setting).example
    return Entry(
        kind,
        algorithm,
        (),
        proved=False,
        setting=setting,
        example=example,
        source=source,
        description=inspect.getdoc(algorithm) or "",
    )


def _fault(algorithm: Any, kind: str, is_trusted: bool) -> str:
    """Return the reason why a class cannot be planned, or ""."""
    plans = hasattr(algorithm, "planned_releases")
    if getattr(algorithm, "solves", "bilevel") not in TYPES:
        return f"solves of {kind} is {algorithm.solves!r}. Fix: use one of {', '.join(map(repr, TYPES))}."
    if not algorithm.__dataclass_params__.frozen:
        return (
            f"{kind} is a dataclass that is not frozen, so a round could change its options after the plan. "
            "Fix: write @dataclass(frozen=True)."
        )
    required_members: tuple[str, ...] = ("init", "step") if is_trusted else ("init", "step", "RELEASES")
    if plans:
        claims = ("claim", "calibration") if is_trusted and algorithm.protocol == "as_published" else ()
        required_members = (*_COORDINATOR_MEMBERS, *claims) if is_trusted else _GOSSIP_MEMBERS
    missing = ", ".join(
        n for n in required_members if not _states(algorithm, n) and n not in algorithm.__dataclass_fields__
    )
    if missing:
        return f"{kind} lacks {missing}. Fix: add it."
    if plans:
        return ""
    known_terms = [term for problem_type in TYPES.values() for term in problem_type.terms]
    known_terms += [] if is_trusted else [CHANGE]
    for term in stated_terms(algorithm):
        if term not in known_terms:
            return f"{kind} states the unknown term {term!r}. Fix: use one of {', '.join(known_terms)}."
    if not is_trusted and not {"x", "y"} <= set(algorithm.channels):
        return f"channels of {kind} lack x or y, which metrics read. Fix: add it."
    shares = getattr(algorithm, "SHARES", None)
    sound = shares is None or (set(shares) == set(algorithm.QUERIES) and all(0 < s < math.inf for s in shares.values()))
    if not sound:
        return f"SHARES of {kind} is {shares}. Fix: set a number above 0 for each of QUERIES."
    return ""


def _states(algorithm: type, name: str) -> bool:
    """Return whether a class defines this member instead of inheriting it from a protocol."""
    member = getattr(algorithm, name, None)
    # `Algorithm`, or the protocol of a coordinator's.
    protocols = [base for base in algorithm.__mro__ if AnyAlgorithm in base.__bases__]
    return member is not None and not (name in _OPEN and any(member is getattr(b, name, None) for b in protocols))
