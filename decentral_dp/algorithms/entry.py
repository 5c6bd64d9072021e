"""What is known of an algorithm beside its code: the entry at the end of its module, from which the registry is built.

Keys, types, defaults and descriptions are those of the fields (`options`); the entry says what no field can.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from decentral_dp.algorithms.coordinator_protocol import Coordinated
from decentral_dp.algorithms.options import DOMAIN, Option, options_of
from decentral_dp.algorithms.protocol import Algorithm
from decentral_dp.algorithms.references import Citation
from decentral_dp.errors import InputError

Setting: TypeAlias = Literal["gossip", "coordinator_bilevel", "coordinator_minimax"]


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
    # Who runs it, and on which kind of problem; and whether δ = 0 will do: it adds no Gaussian noise.
    setting: Setting = "gossip"
    pure: bool = False
    # Whether it needs a domain of x, which every coordinator's bilevel algorithm may be given, and no other.
    needs_domain: bool = False
    # Guarantees under which it needs to know how far losses of records differ, which no declared constant says.
    loss_range: tuple[str, ...] = ()
    # Key → how a scenario could give it, where the usual example does not fit.
    example: Mapping[str, str] = MappingProxyType({})
    # What "as_printed" runs, of `algorithms.printed`, or the sentence that says why there is none.
    printed: type | None = None
    unprinted: str = ""
    # Where the paper states the budget of its own calibration, which "as_printed" runs.
    claim: str = ""
    # Refuses a guarantee that it cannot give.
    check_guarantee: Callable[[str], None] | None = None
    # Where an algorithm from outside comes from, as a note says it; "" for ours. source: what the noise root hashes.
    origin: str = ""
    source: str = ""
    # Makes the runnable program of a dataclass that leaves out what can be derived, and of its start.
    complete: Callable[..., Any] | None = None
    # The object itself, where one was given in Python.
    instance: Any = None

    @property
    def trusted(self) -> bool:
        """Whether it is a trusted coordinator's program."""
        return self.setting != "gossip"

    @property
    def solves(self) -> Literal["bilevel", "minimax"]:
        """The kind of problem it is for."""
        return "minimax" if self.setting == "coordinator_minimax" else "bilevel"

    @property
    def summary(self) -> str:
        """One line for the list: how the docstring of the class begins."""
        text = (inspect.getdoc(self.algorithm) or self.kind).strip().split("\n")[0].rstrip(".")
        return text if self.origin else f"{text[0].lower()}{text[1:]}"

    def with_printed(self, form: type | None = None, claim: str = "") -> Entry:
        """The entry with its printed form, and where the paper states the budget of that."""
        return self._replace(printed=form, claim=claim)

    @property
    def keys(self) -> tuple[Option, ...]:
        """Every key that it takes, required ones first where the dataclass has them first."""
        domain = DOMAIN._replace(required=self.needs_domain)
        return (*options_of(self.algorithm), *((domain,) if self.setting == "coordinator_bilevel" else ()))

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
    def home(self) -> str:
        """The module that describes it."""
        return self.algorithm.__module__

    def build(self, options: Options, guarantee: str) -> Algorithm | Coordinated:
        """Make the algorithm with these values; its printed form where the guarantee is that of the papers.

        Raises:
            InputError: for a guarantee that it cannot give, as "as_printed" where no paper prints it.
        """
        if self.check_guarantee is not None:
            self.check_guarantee(guarantee)
        protocol = options.protocol
        if guarantee == "as_printed":
            if self.unprinted:
                raise InputError(self.unprinted)
            if self.printed is not None:
                printed: Algorithm | Coordinated = self.printed(**options.values, start=options.init)
                return printed
            # One from outside may hold its printed form itself.
            protocol = "printed"
        names = {f.name for f in dataclasses.fields(self.algorithm)}
        common = {"protocol": protocol, "start": options.init}
        built: Any = self.instance
        if built is None:
            built = self.algorithm(**options.values, **{k: v for k, v in common.items() if k in names})
        program: Algorithm | Coordinated = built if self.complete is None else self.complete(built, start=options.init)
        return program


def example_of(given: Option) -> str:
    """A key as a scenario could give it."""
    return f"{given.key} = {given.example}"
