"""Models by name, from the table problem.model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decentral_dp.errors import InputError
from decentral_dp.models.devices import check_device
from decentral_dp.models.linear_model import Linear
from decentral_dp.models.protocol import Model


def build_model(
    table: Mapping[str, Any] | None,
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
    given = dict(table or {})
    kind = given.get("kind", "linear")
    check_device(device, "run.device")
    if kind == "mlp":
        from decentral_dp.models.mlp import mlp

        return mlp(n_features, given["hidden"], outputs, seed, device)
    if kind == "resnet":
        from decentral_dp.models.resnet import SMALLEST_SIDE, resnet

        if image is None:
            raise InputError('problem.model: "resnet" reads images, and these records are none. Take kind = "mlp".')
        if min(image[:2]) < SMALLEST_SIDE:
            raise InputError(
                f'problem.model: "resnet" halves an image twice, and these have {image[0]} × {image[1]} pixels. '
                'Take kind = "mlp".'
            )
        return resnet(image, given.get("width", 16), given.get("depth", 1), outputs, seed, device)
    if kind == "torch":
        from decentral_dp.models.user_module import load_module

        return load_module(_found(root, given["file"]), given.get("name", "build"), n_features, outputs, seed, device)
    return Linear(n_features, outputs)


def _found(root: Path, file: str) -> Path:
    """Seen from the root, or from here where there is nothing."""
    path = os.path.expanduser(file)
    return root / path if (root / path).exists() else Path(os.path.abspath(path))
