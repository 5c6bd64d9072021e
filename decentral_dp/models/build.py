"""Models by name, from the table problem.model, and the linear model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from decentral_dp.bounded import Array, Norm
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.tables import Count, KindTable
from decentral_dp.models.devices import check_device
from decentral_dp.models.linear_terms import with_intercept
from decentral_dp.models.protocol import UNDERFLOW, Cotangents, Image, Slope, squares
from decentral_dp.privacy.clipping import clip_factors
from decentral_dp.user_code import in_module

if TYPE_CHECKING:
    from decentral_dp.models.dense import DenseLayers
    from decentral_dp.models.mlp import Mlp
    from decentral_dp.models.module import TorchModel

Model: TypeAlias = "LinearModel | Mlp | TorchModel"
Learner: TypeAlias = "DenseLayers | OneByOne"


@dataclass(frozen=True)
class LinearModel:
    """Linear model φ = A·(a, 1), with one row of weights and a bias per output.

    A per-example gradient is the outer product c·(a, 1)ᵀ. Its norm, or the norm of a difference, is a product of two
    norms.
    """

    n_features: int
    outputs: int

    @property
    def p(self) -> int:
        return self.outputs * (self.n_features + 1)

    @property
    def cells(self) -> int:
        return self.n_features + 1 + 2 * self.outputs

    @property
    def start(self) -> Array:
        return np.zeros(self.p)

    def named_weights(self, x: Array) -> dict[str, Array]:
        rows = x.reshape(self.outputs, -1)
        return {"weight": rows[:, :-1], "bias": rows[:, -1]}

    def forward(self, x: Array, inputs: Array, keep: bool = True) -> tuple[Array, Array]:
        rows = with_intercept(inputs)
        return rows @ x.reshape(self.outputs, -1).T, rows

    def clipped_sum(self, slope: Slope, extra: Array, bound: float, since: Slope | None = None) -> tuple[Array, Array]:
        # With the same records, a difference is an outer product as well, and nothing cancels.
        rows, cotangents = slope.tape, slope.cotangents if since is None else slope.cotangents - since.cotangents
        # An upper bound on the norm, also for slopes whose squares underflow.
        slopes = np.sqrt(squares(cotangents)) + UNDERFLOW
        norms = np.hypot(slopes * np.sqrt(squares(rows)), np.sqrt(squares(extra)))
        factors = clip_factors(norms, bound)
        # Zero times infinity is NaN: remove infinite rows before the product.
        weighted_cotangents = np.where(np.isfinite(norms)[:, None], factors[:, None] * cotangents, 0.0)
        safe = np.where(np.isfinite(norms)[:, None], rows, 0.0)
        return (weighted_cotangents.T @ safe).reshape(-1), factors


MODELS = ("linear", "mlp", "cnn", "resnet")


def _check_kind(kind: str) -> str:
    if kind not in MODELS and in_module(kind) is None:
        raise ValueError(
            f'got {quoted(kind)}, expected {", ".join(map(quoted, MODELS))}, or "net:build" for the function build of '
            "net.py"
        )
    return kind


class ModelTable(KindTable):
    """Table of a model, whose weights are x of a minimax problem (y for a critic), and y of one-level training.

    A name such as "linear" or "net:build" is short for the table { kind = name }.
    """

    noun = "model"
    needed = MappingProxyType({"mlp": ["hidden"], "cnn": ["channels"]})
    optional = MappingProxyType({"resnet": ["width", "depth"]})

    # A text is short for a table.
    model_config = ConfigDict(json_schema_extra={"type": ["object", "string"]})

    kind: Annotated[str, AfterValidator(_check_kind)] = "linear"
    """ "linear", "mlp" (hidden), "cnn" (channels), "resnet" (width, depth) with group normalisation, or "module:Name",
    a function of (n_features, outputs) that returns a torch module."""

    hidden: list[Count] | None = None
    """Units of each hidden layer of mlp, in order."""

    channels: Annotated[list[Count], Field(min_length=1)] | None = None
    """Channels of each 3 × 3 convolution of cnn, in order. A pooling that halves the image follows each."""

    width: Count | None = None
    """Channels of the first stage of resnet; 16 if left out."""

    depth: Count | None = None
    """Blocks of each of the three stages of resnet; 1 if left out."""

    @model_validator(mode="before")
    @classmethod
    def _table(cls, table: Any) -> Any:
        return {"kind": table} if isinstance(table, str) else table


def build_model(
    table: ModelTable | None,
    n_features: int,
    outputs: int,
    image: Image | None,
    seed: int,
    device: str,
    module: Callable[..., Any] | None = None,
) -> Model:
    """Build a model, with random weights from the public seed.

    Args:
        table: table of the scenario, or None for a linear model.
        n_features: number of features.
        outputs: number of outputs e.
        image: shape (height, width, channels) of image records.
        seed: public seed.
        device: device "cpu" or "cuda". Linear models use the CPU.
        module: custom function that maps (n_features, outputs) to a torch module, named "module:Name" in table.kind.

    Raises:
        InputError: the device is missing, or the model does not suit the records.
    """
    table = ModelTable() if table is None else table
    check_device(device, "run.device")
    if table.hidden is not None:
        from decentral_dp.models.mlp import mlp

        return mlp(n_features, table.hidden, outputs, seed, device)
    if table.kind in ("cnn", "resnet"):
        from decentral_dp.models import networks

        halvings = networks.STAGES - 1 if table.channels is None else len(table.channels)
        if image is None or min(image[:2]) >> halvings < 1:
            got = "other records" if image is None else f"{image[0]} × {image[1]} pixels"
            raise InputError(
                f"problem.model: a {table.kind} halves an image {halvings} times (got {got}, expected images of "
                f'at least {1 << halvings} pixels a side). Fix: use kind = "mlp", or a cnn with fewer channels.'
            )
        if table.channels is None:
            network = networks.residual_network(image, table.width or 16, table.depth or 1, outputs, seed)
        else:
            network = networks.convolutional_network(image, table.channels, outputs, seed)
        return networks.network_model(network, math.prod(image), device)
    if module is not None:
        from decentral_dp.models.module import custom_model

        return custom_model(module, table.kind, n_features, outputs, seed, device)
    return LinearModel(n_features, outputs)


@dataclass(frozen=True)
class OneByOne:
    """Torch module that evaluates agents one after the other.

    Args:
        model: torch module that is clipped in l2.
        description: name in sentences.
    """

    model: TorchModel
    description: str
    norms: ClassVar[tuple[Norm, ...]] = ("l2",)

    @property
    def p(self) -> int:
        return self.model.p

    @property
    def outputs(self) -> int:
        return self.model.outputs

    @property
    def cells(self) -> int:
        return self.model.cells

    @property
    def start(self) -> Array:
        return self.model.start

    def outputs_of(self, weights: Array, inputs: Array) -> Array:
        inputs_of_agents = np.broadcast_to(inputs, (len(weights), *inputs.shape[-2:]))
        return np.stack(
            [self.model.forward(w, rows, keep=False)[0] for w, rows in zip(weights, inputs_of_agents, strict=True)]
        )

    def named_weights(self, weights: Array) -> dict[str, Array]:
        return self.model.named_weights(weights)

    def clipped_sums(self, weights: Array, inputs: Array, cotangents: Cotangents, bound: float, norm: Norm) -> Array:
        total = np.empty_like(weights)
        with np.errstate(all="ignore"):
            for k, (w, rows) in enumerate(zip(weights, inputs, strict=True)):

                def slopes(part: NDArray[Any], outputs: Array, agent: slice = slice(k, k + 1)) -> Array:
                    return np.asarray(cotangents(agent, part, outputs[None])[0])

                total[k] = self.model.clipped_loss_sum(w, rows, slopes, bound)
        return total
