"""Where torch computes: arrays go to a device here, and come back here, and nowhere else.

Records, points and noise are numpy arrays on the processor, whatever the device: `tensor` copies them there, `to_numpy`
copies what was computed back. Clips, sums and noise of a bilevel problem are numpy's, on what came back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError, needing, quoted

if TYPE_CHECKING:
    # At run time torch is imported by the functions that need it: `decentral-dp --help` must not wait for it.
    from torch import Tensor

DEVICES = ("cpu", "cuda")


def check_device(device: str, where: str) -> None:
    """Refuse a device that is unknown, or that is not there.

    Args:
        device: "cpu" or "cuda".
        where: what asks for it, for the message.

    Raises:
        InputError: the device is none of these, torch is missing, or it finds no CUDA device.
    """
    if device not in DEVICES:
        raise InputError(f'{where}: got {quoted(device)}, wanted "cpu" or "cuda".')
    if device == "cuda":
        with needing(where):
            import torch
        if not torch.cuda.is_available():
            raise InputError(f'{where}: "cuda" was asked for, and torch finds no CUDA device here. Take "cpu".')
        # Read once, when the first product of matrices is formed: without it, they may round otherwise each time.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def device_words(device: str) -> str:
    """What the last bits of a device's numbers depend on, besides the version of torch; "" of the processor."""
    if device == "cpu":
        return ""
    import torch

    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"


def tensor(array: Array, device: str = "cpu") -> Tensor:
    """A float64 copy of one shape: Ray hands out read-only arrays, and nothing done to it can reach the records."""
    return shared(np.array(array, dtype=np.float64), device)


def shared(array: NDArray[Any], device: str) -> Tensor:
    """The same numbers and shape, not copied on the processor: nothing may write into them."""
    import torch

    here = torch.from_numpy(array)
    return here if device == "cpu" else here.to(device)


def to_numpy(computed: Tensor) -> Array:
    """The numbers, of the same shape, on the processor, without a gradient tape."""
    array: Array = (computed if computed.is_cpu else computed.cpu()).numpy(force=True)
    return array


def default_device(device: str) -> AbstractContextManager[Any]:
    """Within, what creates a tensor without saying where (`torch.zeros(3)`) creates it on the device.

    So that a loss or a module has one text for all devices. On the processor nothing changes.
    """
    import torch

    return nullcontext() if device == "cpu" else torch.device(device)


@contextmanager
def repeatable(device: str) -> Iterator[None]:
    """Within, an operation on a device gives the same bits every time, or raises. The processor's do so always.

    A round that was cut off is computed again, and what was released of it is released with the same noise.
    """
    if device == "cpu":
        yield
        return
    import torch

    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def is_of_device(error: BaseException) -> bool:
    """Whether an error says that the device failed, or has no memory left: no record is to blame for it."""
    torch = sys.modules.get("torch")
    kinds = ("OutOfMemoryError", "AcceleratorError")
    return isinstance(error, tuple(getattr(torch, kind) for kind in kinds if hasattr(torch, kind)))
