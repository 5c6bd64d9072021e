"""What is known of an algorithm beside its code: the entry at the end of its module, from which the registry is built.

Keys, types, defaults and descriptions are those of the fields (`options`); the entry says what no field can.

The entry of a class from outside the package is worked out from what it implements. A gossip algorithm has `channels`;
a coordinator's has `QUERIES`, or `queries`; it is for minimax problems where it says `solves = "minimax"`, or asks for
terms that only those have. Each states what it releases (`declared`), or plans it itself (`protocol`).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from decentral_dp import annexes
from decentral_dp.algorithms import declared
from decentral_dp.algorithms.options import DOMAIN, Option, options_of
from decentral_dp.algorithms.protocol import Algorithm, Coordinated
from decentral_dp.algorithms.references import Citation
from decentral_dp.errors import InputError
from decentral_dp.problems.protocol import TERMS
from decentral_dp.problems.saddle import MINIMAX_TERMS
from decentral_dp.user_code import reason

Setting: TypeAlias = Literal["gossip", "coordinator_bilevel", "coordinator_minimax"]


class Rules(NamedTuple):
    """What differs by setting before there is a job; the defaults are those of gossip.

    Args:
        is_coordinated: whether it is a trusted coordinator's. solves: the one kind of problem that it is for, or
            usually.
        trust: who is trusted. graph: the kind that shows it best. example: as that of an entry from outside.
        complete: makes the runnable program of a dataclass whose plan is derived, and of its start.
        domain: whether every algorithm may be given a domain of x.
        strict: guarantees under which nothing may leak around the ledger.
        plans_by_counts: whether a plan takes the numbers of records alone.
        neighbours: whether agents talk to those they are linked to.
        own_mechanism: whether the algorithm brings its law of noise.
        priced_on_cpu: whether a plan may compute on the processor whatever computes the run.
        unscored_note: what is said where agents keep their records, and nobody may ask them for scores.
    """

    is_coordinated: bool = False
    solves: Literal["bilevel", "minimax"] = "bilevel"
    trust: str = "gossip or a server, agents trust nobody"
    graph: str = "ring"
    example: Mapping[str, str] = MappingProxyType({})
    complete: Callable[..., Algorithm | Coordinated] = declared.DeclaredGossip
    domain: bool = False
    strict: tuple[str, ...] = ("certified",)
    plans_by_counts: bool = False
    neighbours: bool = False
    own_mechanism: bool = False
    priced_on_cpu: bool = False
    unscored_note: str = ""


GOSSIP = Rules(plans_by_counts=True, neighbours=True)


def rules_of(setting: Setting) -> Rules:
    """Return what differs by setting: of gossip, or of an annex."""
    rules: Rules = GOSSIP if setting == "gossip" else annexes.import_place(annexes.RULES[setting])
    return rules


class Options(NamedTuple):
    """What a scenario says of its algorithm: values by key, constant start, protocol."""

    values: Mapping[str, Any]
    init: Mapping[str, float]
    protocol: str


class Entry(NamedTuple):
    """A registered algorithm, or one from outside.

    Args:
        kind: its name in a scenario.
        algorithm: its dataclass, whose docstring begins with the summary for the list.
        citations: whom to cite.
        message: what message t = 1, 2, … carries, where one sentence can say it.
    """

    kind: str
    algorithm: type
    citations: tuple[Citation, ...]
    message: str = ""
    # Who runs it, and on which kind of problem: the name of the folder that it is in.
    setting: Setting = "gossip"
    # Who has the records: the agents of the scenario's graph, the same without links, or one agent that has them all.
    network: Literal["graph", "isolated", "pooled"] = "graph"
    # Key → how a scenario could give it, where the usual example does not fit.
    example: Mapping[str, str] = MappingProxyType({})
    # Refuses a guarantee that it cannot give.
    check_guarantee: Callable[[str], None] | None = None
    # Whether it is a user's own. source: a digest of its code, where no file that the scenario names has it.
    custom: bool = False
    source: str = ""
    # The object itself, where one was given in Python.
    instance: Any = None

    @property
    def pure(self) -> bool:
        """Whether δ = 0 will do: it adds no Gaussian noise."""
        return bool(getattr(self.algorithm, "pure", False))

    @property
    def rules(self) -> Rules:
        """Those of its setting."""
        return rules_of(self.setting)

    @property
    def trusts_coordinator(self) -> bool:
        """Whether it is a trusted coordinator's program."""
        return self.rules.is_coordinated

    @property
    def is_derived(self) -> bool:
        """Whether its plan follows from what the class states, which then is completed to a program."""
        return not hasattr(self.algorithm, "planned_releases")

    @property
    def solves(self) -> Literal["bilevel", "minimax"]:
        """The kind of problem it is for."""
        return "minimax" if "minimax" in (self.rules.solves, getattr(self.algorithm, "solves", "")) else "bilevel"

    @property
    def summary(self) -> str:
        """One line for the list: how the docstring of the class begins."""
        text = (inspect.getdoc(self.algorithm) or self.kind).strip().split("\n")[0].rstrip(".")
        return text if self.custom else f"{text[0].lower()}{text[1:]}"

    @property
    def keys(self) -> tuple[Option, ...]:
        """Every key that it takes, required ones first where the dataclass has them first."""
        domain = DOMAIN._replace(required=getattr(self.algorithm, "needs_domain", False))
        return (*options_of(self.algorithm), *((domain,) if self.rules.domain else ()))

    @property
    def options(self) -> tuple[str, ...]:
        """Keys that must be given."""
        return tuple(o.key for o in self.keys if o.required)

    @property
    def optional(self) -> tuple[str, ...]:
        """Keys that may be left out: the algorithm then settles them from public facts."""
        return tuple(o.key for o in self.keys if not o.required)

    @property
    def private(self) -> bool:
        """Whether protocol = "private" can be chosen."""
        return any("private" in str(f.type) for f in dataclasses.fields(self.algorithm) if f.name == "protocol")

    @property
    def module_name(self) -> str:
        """The module that describes it."""
        return self.algorithm.__module__

    def build(self, options: Options, guarantee: str) -> Algorithm | Coordinated:
        """Make the algorithm with these values.

        Raises:
            InputError: for a guarantee that it cannot give.
        """
        if self.check_guarantee is not None:
            self.check_guarantee(guarantee)
        names = {f.name for f in dataclasses.fields(self.algorithm)}
        common = {"protocol": options.protocol, "start": options.init}
        built: Any = self.instance
        if built is None:
            built = self.algorithm(**options.values, **{k: v for k, v in common.items() if k in names})
        program: Algorithm | Coordinated = self.rules.complete(built, start=options.init) if self.is_derived else built
        if guarantee != "none" and (program.protocol == "published") != (guarantee == "as_published"):
            own = "certified" if guarantee == "as_published" else "as_published"
            raise InputError(f'privacy.guarantee: {self.kind} is not run {guarantee}. Fix: take "{own}" or "none".')
        return program


# What an algorithm that plans its releases itself has to have, beside its channels or queries.
_GOSSIP_MEMBERS = ("init", "step", "releases", "planned_releases", "releases_per_round", "central", "protocol")
_COORDINATOR_MEMBERS = (
    *("init", "step", "published", "releases_per_round", "protocol", "needs_constants", "needs_records"),
    *("resolve_defaults", "free_channels", "planned_releases"),
)
# What the protocols that it may inherit from leave to it.
_OPEN = ("init", "step", "releases", "planned_releases", "resolve_defaults")


def entry_of_class(algorithm: Any, kind: str, source: str = "") -> Entry:
    """The entry of a custom class.

    Args:
        algorithm: the class, a dataclass.
        kind: as the scenario names it.
        source: a digest of its code, where no file that the scenario names has it.

    Raises:
        InputError: for what is no algorithm.
    """
    if not isinstance(algorithm, type):
        raise InputError(f"algorithm.kind: {kind} is no class. Name a frozen dataclass with init and step.")
    trusted = hasattr(algorithm, "QUERIES") or hasattr(algorithm, "queries")
    if not trusted and not hasattr(algorithm, "channels"):
        raise InputError(
            f"algorithm.kind: {kind} is no algorithm: a gossip algorithm states its channels, and a coordinator's its "
            'QUERIES. Add one of them, for example channels = ("x", "y").'
        )
    try:
        options_of(algorithm)
        _check_complete(algorithm, kind, trusted, hasattr(algorithm, "planned_releases"))
        setting = _setting(algorithm, trusted)
    except (AttributeError, TypeError) as error:
        raise InputError(
            f"algorithm.kind: {kind} states its releases in another form than it is read ({reason(error)}). Fix: state "
            'them as in RELEASES = {"y": {"lower_grad_y": "y"}} or QUERIES = ("grad_x", "grad_y").'
        ) from error
    example = rules_of(setting).example
    return Entry(kind, algorithm, (), setting=setting, custom=True, source=source, example=example)


def _check_complete(algorithm: Any, kind: str, trusted: bool, plans: bool) -> None:
    """Refuse a class that lacks what it must have, or that can be changed while it runs. Raises InputError."""
    if not getattr(getattr(algorithm, "__dataclass_params__", None), "frozen", True):
        raise InputError(
            f"algorithm.kind: {kind} is a dataclass that is not frozen, so that a round "
            "could change its options after they were priced. Write @dataclass(frozen=True)."
        )
    if plans:
        needed: tuple[str, ...] = _COORDINATOR_MEMBERS if trusted else _GOSSIP_MEMBERS
        if trusted and algorithm.protocol == "published":
            needed += ("claim", "calibration")
    else:
        needed = ("init", "step") if trusted else ("init", "step", "RELEASES")
    fields = getattr(algorithm, "__dataclass_fields__", {})
    missing = [name for name in needed if not _states(algorithm, name) and name not in fields]
    if missing:
        what = "a coordinator's algorithm" if trusted else "a gossip algorithm"
        why = " that plans its releases itself" if plans else ""
        raise InputError(f"algorithm.kind: {kind} lacks {', '.join(missing)}, which {what}{why} has. Add it.")
    if plans:
        return
    if (term := declared.unknown_term(algorithm)) is not None:
        known = (*TERMS, *MINIMAX_TERMS) if trusted else TERMS
        raise InputError(
            f"algorithm.kind: {kind} states the term {term!r}, and no problem has it; take one of {', '.join(known)}."
        )
    if not trusted and not {"x", "y"} <= set(algorithm.channels):
        raise InputError(f"algorithm.kind: channels of {kind} lack x or y, which metrics read. Add it.")
    if not trusted and getattr(algorithm, "releases_per_round", 1) != 1:
        raise InputError(
            f"algorithm.kind: {kind} states releases_per_round, and with RELEASES it makes one exchange a round. Send "
            "all channels in one Gossip, or state releases and planned_releases in the place of RELEASES."
        )
    shares = getattr(algorithm, "SHARES", {})
    if shares and (set(shares) != set(algorithm.QUERIES) or not all(0 < share < math.inf for share in shares.values())):
        raise InputError(
            f"algorithm.kind: SHARES of {kind} is {shares}; wanted a number above 0 for each of "
            f"{', '.join(algorithm.QUERIES)}."
        )


def _states(algorithm: type, name: str) -> bool:
    """Whether a class has this, and not merely from a protocol that leaves it open."""
    stated = getattr(algorithm, name, None)
    return stated is not None and not (
        name in _OPEN and any(stated is getattr(base, name, None) for base in (Algorithm, Coordinated))
    )


def _setting(algorithm: type, trusted: bool) -> Setting:
    if not trusted:
        return "gossip"
    terms = declared.stated_terms(algorithm)
    solved = "minimax" if terms and set(terms) <= set(MINIMAX_TERMS) else "bilevel"
    return "coordinator_minimax" if getattr(algorithm, "solves", solved) == "minimax" else "coordinator_bilevel"
