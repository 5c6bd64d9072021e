"""Types of scenario values, and the base class of scenario tables.

`KindTable` is a table for components of several kinds. `declared_keys` returns the keys that a component declares.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from annotated_types import BaseMetadata, Ge, Gt, Le, Lt, MultipleOf
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema
from typing_extensions import Doc

from decentral_dp.errors import printable

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


Finite = Annotated[float, Field(allow_inf_nan=False)]


# Counts and their products, and seeds, fit into 64 bits.
LARGEST_COUNT = 10**12
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]


# With a larger exponent, learning rates underflow after a few rounds.
Decay = Annotated[float, Field(ge=0, le=100)]


def _ascending(points: list[list[float]]) -> list[list[float]]:
    rounds = [point[0] for point in points]
    if rounds != sorted(set(rounds)) or any(t != int(t) for t in rounds):
        raise ValueError("expected round numbers in increasing order")
    return points


# Rounds and factors.
_Point = Annotated[list[NonNegative], Field(min_length=2, max_length=2)]
Points = Annotated[list[_Point], Field(min_length=1), AfterValidator(_ascending)]


Share = Annotated[float, Field(gt=0, lt=1)]
# One printable line, such as a title.
Line = Annotated[str, AfterValidator(printable)]


Seed = Annotated[int, Field(ge=0, lt=2**63)]


# Other targets are meaningless, or exceed the accuracy of float64.
Target = Annotated[float, Field(ge=1e-9, le=1e5)]


Channel = Literal["x", "y", "z"]


# Sentence of an error → condition on a table.
Checks = Mapping[str, Callable[[Any], bool]]


class Table(BaseModel):
    """Table of a scenario that rejects unknown keys and does not convert values silently.

    The docstring below a field describes its key. It is read on request, since parsing the sources takes longer than
    a plan.

    Args:
        checks: checks of combinations of keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    checks: ClassVar[Checks] = {}

    def _faults(self) -> Iterator[str]:
        """Yield the problems of combinations of keys."""
        yield from (problem for problem, applies in self.checks.items() if applies(self))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for fault in self._faults():
            raise ValueError(fault)
        return self

    @classmethod
    def key_texts(cls) -> dict[str, str]:
        """Return key → description for the keys of every table class whose source is available."""
        texts: dict[str, str] = {}
        for table in reversed(cls.__mro__[: cls.__mro__.index(Table)]):
            # Classes of `create_model` have no source.
            with contextlib.suppress(OSError, TypeError):
                (definition,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
                for key, text in itertools.pairwise(getattr(definition, "body", ())):
                    match key, text:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                            texts[name] = " ".join(words.split())
        return {key: text for key, field in cls.model_fields.items() if (text := field.description or texts.get(key))}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for key, text in cls.key_texts().items():
            properties[cls.model_fields[key].alias or key].setdefault("description", text)
        return schema


def first_complaint(error: ValidationError) -> str:
    """Return the key and the problem of the first error of pydantic about a table, without the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"].removeprefix("Value error, ")


class KindTable(Table):
    """Table whose `kind` determines some of its keys. All other keys belong to every kind.

    Args:
        noun: name of the table in error messages.
        needed: kind → required keys.
        optional: kind → optional keys.
    """

    noun: ClassVar[str]
    needed: ClassVar[Mapping[str, Sequence[str]]] = {}
    optional: ClassVar[Mapping[str, Sequence[str]]] = {}

    kind: str

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        required_keys, optional = self.needed.get(self.kind, ()), self.optional.get(self.kind, ())
        for key in itertools.chain(*self.needed.values(), *self.optional.values()):
            is_set = getattr(self, key) != type(self).model_fields[key].default
            if is_set and key not in (*required_keys, *optional):
                yield f'{key}: does not apply to "{self.kind}" {self.noun}. Fix: remove it'
            if key in required_keys and not is_set:
                yield f'{key}: missing, and required by "{self.kind}" {self.noun}. Fix: add it'


class DeclaredKey(NamedTuple):
    """Key of a table that a dataclass or a function declares.

    Args:
        name: name of the key.
        type: type with its bounds, which pydantic validates.
        description: text for the reference of keys.
        required: whether the key has no default.
        default: default value.
    """

    name: str
    type: Any
    description: str
    required: bool
    default: Any = None


@cache
def declared_keys(make: Callable[..., Any]) -> tuple[DeclaredKey, ...]:
    """Return those parameters of a dataclass or a function that are keys, in order.

    Example:
        >>> def regression(n_features: int, ridge: Annotated[Positive, Doc("Strength of the pull.")] = 0.1) -> None: ...
        >>> [(key.name, key.required) for key in declared_keys(regression)]
        [('ridge', False)]
    """
    hints, keys = get_type_hints(make, include_extras=True), []
    for name, parameter in inspect.signature(make).parameters.items():
        kind = without_none(hints[name])
        doc = next((m for m in getattr(kind, "__metadata__", ()) if isinstance(m, Doc)), None)
        if doc is not None:
            bounds = tuple(m for m in kind.__metadata__ if m is not doc)
            bounded_type = Annotated[kind.__origin__, *bounds] if bounds else kind.__origin__
            is_required = parameter.default is parameter.empty
            default = None if is_required else parameter.default
            keys.append(DeclaredKey(name, bounded_type, doc.documentation, is_required, default))
    return tuple(keys)


_NUMBERS = {int: "an integer", float: "a number"}
_BOUNDS: Mapping[type[BaseMetadata], str] = {
    Gt: "above {0.gt:g}",
    Ge: "of at least {0.ge:g}",
    Lt: "below {0.lt:g}",
    Le: "of at most {0.le:g}",
    MultipleOf: "divisible by {0.multiple_of:g}",
}


def type_in_words(kind: Any) -> str:
    """Describe a numeric type with its bounds.

    Example:
        >>> type_in_words(Annotated[int, Ge(2)]), type_in_words(Positive)
        ('an integer of at least 2', 'a number above 0')
    """
    plain, *metadata = get_args(kind) or (kind,)
    bounds = [bound for m in metadata for bound in getattr(m, "metadata", [m]) if type(bound) in _BOUNDS]
    return " ".join([_NUMBERS[plain], " and ".join(_BOUNDS[type(bound)].format(bound) for bound in bounds)]).strip()


def without_none(hint: Any) -> Any:
    """Return a type hint without None."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else hint
