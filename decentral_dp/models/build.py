"""Models by name, from the table problem.model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from decentral_dp.errors import InputError
from decentral_dp.files.tables import Count, Table, optional, require_keys
from decentral_dp.models.devices import check_device
from decentral_dp.models.linear_model import Linear
from decentral_dp.models.protocol import Model


class ModelTable(Table):
    """A model of a minimax problem: its weights are x (a critic's: y)."""

    kind: Literal["linear", "mlp", "resnet", "torch"] = Field(
        default="linear",
        description=(
            '"linear", "mlp" (hidden), "resnet" (width, depth) with group normalisation, or "torch" (file, name).'
        ),
    )
    hidden: list[Count] | None = optional("Of mlp: units of each hidden layer, in order.")
    width: Count | None = optional("Of resnet: channels of the first stage; 16 if left out.")
    depth: Count | None = optional("Of resnet: blocks of each of its three stages; 1 if left out.")
    file: str | None = optional(
        "Of torch: a Python file with a function of (n_features, outputs) that returns a torch module."
    )
    name: str | None = optional('Of torch: the name of that function; "build" if left out.')

    @model_validator(mode="after")
    def _needs(self) -> ModelTable:
        taken = {"mlp": ("hidden",), "resnet": ("width", "depth"), "torch": ("file", "name")}.get(self.kind, ())
        needed = [key for key in taken if key in ("hidden", "file")]
        require_keys(self, " model", needed, taken, ("hidden", "width", "depth", "file", "name"))
        return self


def build_model(
    table: ModelTable | None,
    n_features: int,
    outputs: int,
    image: tuple[int, int, int] | None,
    seed: int,
    device: str,
    root: Path = Path(),
) -> Model:
    """Build a model, its weights drawn from the public seed where they are drawn.

    Args:
        table: of the scenario; None for a linear model.
        n_features: columns of the records.
        outputs: e.
        image: (height, width, channels) where records are pictures.
        seed: public.
        device: "cpu" or "cuda"; linear models compute on the processor in any case.
        root: where a relative file is.

    Raises:
        InputError: for a device that is not there, and for a model that does not fit.
    """
    table = ModelTable() if table is None else table
    check_device(device, "run.device")
    if table.hidden is not None:
        from decentral_dp.models.mlp import mlp

        return mlp(n_features, table.hidden, outputs, seed, device)
    if table.kind == "resnet":
        from decentral_dp.models.resnet import SMALLEST_SIDE, resnet

        if image is None:
            raise InputError('problem.model: "resnet" reads images, and these records are none. Take kind = "mlp".')
        if min(image[:2]) < SMALLEST_SIDE:
            raise InputError(
                f'problem.model: "resnet" halves an image twice, and these have {image[0]} × {image[1]} pixels. '
                'Take kind = "mlp".'
            )
        return resnet(image, table.width or 16, table.depth or 1, outputs, seed, device)
    if table.file is not None:
        from decentral_dp.models.user_module import load_module

        return load_module(_found(root, table.file), table.name or "build", n_features, outputs, seed, device)
    return Linear(n_features, outputs)


def _found(root: Path, file: str) -> Path:
    """Seen from the root, or from here where there is nothing."""
    path = os.path.expanduser(file)
    return root / path if (root / path).exists() else Path(os.path.abspath(path))
