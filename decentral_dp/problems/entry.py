"""What is known of a problem beside its code: the entry at the end of its module, from which the registry is built.

    @dataclass(frozen=True)
    class Quadratic:
        n_features: int                                   a public fact: filled in from the data
        ridge: Annotated[Positive, Doc("Strength of …")]  a key of [problem], needed; with a default it may be left out
        scale: float = 1.0                                neither: an argument for callers in Python

The parameters of a function that makes the problem are read as the fields of a dataclass are.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from typing_extensions import Doc

from decentral_dp.errors import InputError
from decentral_dp.files.tables import DeclaredKey, declared_keys
from decentral_dp.models.build import ModelTable, build_model
from decentral_dp.models.protocol import Model

Solves: TypeAlias = Literal["bilevel", "minimax"]


class ProblemFacts(NamedTuple):
    """What a problem may know of the data before it is built: public numbers.

    Args:
        n_features: d, columns of a record.
        n_classes: c; 0 where labels are numbers.
        image: (height, width, channels) where records are pictures; `record.reshape(channels, height, width)` is one.
        agents: m.
        seed: public, for what a problem draws.
        device: "cpu" or "cuda", where it computes.
        module: function of a custom torch model, of (n_features, outputs); None where problem.model names none.
        l2: bound on ‖a‖₂ of every possible record; None where nothing bounds it.
        trajectory: (L, d) where records are trajectories, as in `Dataset`.
        clip: variable → bound on its gradients, where something is clipped.
    """

    n_features: int
    n_classes: int
    image: tuple[int, int, int] | None = None
    agents: int = 1
    seed: int = 0
    device: str = "cpu"
    module: Callable[..., Any] | None = None
    l2: float | None = None
    trajectory: tuple[int, int] | None = None
    clip: Mapping[str, float] = MappingProxyType({})

    @property
    def classes(self) -> tuple[float, ...]:
        """The labels 0.0, 1.0, …, as the data give them."""
        return tuple(float(c) for c in range(self.n_classes))

    def named_in(self, make: Callable[..., Any], options: Collection[str]) -> dict[str, Any]:
        """Return the facts that a function takes by their names; a parameter that is an option is none."""
        named = (set(inspect.signature(make).parameters) & set(PUBLIC_FACTS)) - set(options)
        return {name: self if name == "facts" else getattr(self, name) for name in named}

    def model(self, outputs: int, chosen: ModelTable | None) -> Model:
        """The model that problem.model chooses; None: linear. Raises InputError for one that does not fit."""
        return build_model(chosen, self.n_features, outputs, self.image, self.seed, self.device, self.module)


# Parameters of what makes a problem that are filled in by their names.
PUBLIC_FACTS = (*ProblemFacts._fields, "classes", "facts")


ModelChoice = Annotated[
    ModelTable,
    Doc(
        "The model whose weights are x (of wgan the critic's: y), also of an objective of your own; linear if left out."
    ),
]


class ProblemEntry(NamedTuple):
    """A registered problem.

    Args:
        kind: its name in a scenario.
        make: a dataclass or a function. Parameters that are named as public facts are filled in, or all of them by
            `facts`; those with a `Key` are keys of the [problem] table; others keep their defaults.
        summary: one line for the list.
        task: what agents did who solved it, for a sentence; "" where its name says as much.
        lower_task: the same where x is given, and the lower level alone is solved.
        solves: the kind of problem; the registry sets it, by the folder.
        labels: what labels have to be: "two" classes, two or more "classes", "numbers"; "" for whatever it takes.
        defaults: key → value where it is left out, if that is not the default of the parameter.
        construction_of: key → the key of problem.construction that says the same, and stands for it.
        trajectories: whether it reads trajectories, and nothing else.
        one_level: whether nothing is tuned: x has no coordinates, and no validation record is read.
    """

    kind: str
    make: Callable[..., Any]
    summary: str
    task: str = ""
    lower_task: str = ""
    solves: Solves = "bilevel"
    labels: Literal["", "two", "classes", "numbers"] = ""
    defaults: Mapping[str, Any] = MappingProxyType({})
    construction_of: Mapping[str, str] = MappingProxyType({})
    trajectories: bool = False
    one_level: bool = False

    @property
    def keys(self) -> tuple[DeclaredKey, ...]:
        """The keys of the [problem] table that it reads beside those of every problem."""
        return tuple(
            key._replace(required=False) if key.name in self.defaults else key for key in declared_keys(self.make)
        )

    @property
    def options(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(key.name for key in self.keys)

    @property
    def required_keys(self) -> tuple[str, ...]:
        """Those that have no default."""
        return tuple(key.name for key in self.keys if key.required)

    @property
    def description(self) -> str:
        """The docstring that tells its mathematics: of a bilevel problem that of its class, else of its module."""
        # A classmethod's own docstring is of its arguments.
        of_class = getattr(self.make, "__self__", self.make)
        return inspect.getdoc(sys.modules[self.make.__module__] if self.solves == "minimax" else of_class) or ""

    def build(self, options: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """Make the problem of these data. Raises InputError for data or options that it cannot have."""
        least, most = {"two": (2, 2), "classes": (2, facts.n_classes)}.get(self.labels, (0, facts.n_classes))
        if not least <= facts.n_classes <= most:
            wanted = "exactly 2" if self.labels == "two" else "at least 2"
            raise InputError(
                f"problem.kind: {self.kind} needs {wanted} classes, and the data have {facts.n_classes or 'numbers'}. "
                "Choose another problem, declare problem.classes, or say which are positive, as in "
                "construction = { positive = [0] }."
            )
        return self.make(**{**facts.named_in(self.make, self.options), **self.defaults, **options})
