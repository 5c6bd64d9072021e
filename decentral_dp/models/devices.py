"""Devices of torch. Only this module moves arrays to a device and back.

Records, points and noise are NumPy arrays on the CPU. `tensor` copies them to the device, and `to_numpy` copies results
back. Clips, sums and noise of bilevel problems are computed by NumPy.
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
    from torch.nn import Module

DEVICES = ("cpu", "cuda")


def check_device(device: str, location: str) -> None:
    """Raise InputError for an unknown or missing device.

    Args:
        device: device "cpu" or "cuda".
        location: key at the beginning of the message.
    """
    if device not in DEVICES:
        raise InputError(f'{location}: got {quoted(device)}, expected "cpu" or "cuda".')
    if device == "cuda":
        with needing(location):
            import torch
        if not torch.cuda.is_available():
            raise InputError(f'{location}: torch finds no CUDA device. Fix: use "cpu".')
        # Read at the first matrix product: required for deterministic rounding.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def device_words(device: str) -> str:
    """Describe the facts that affect the last bits on a device, besides the torch version, or return "" for the CPU."""
    if device == "cpu":
        return ""
    import torch

    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"


def tensor(array: Array, device: str = "cpu") -> Tensor:
    """Return a float64 copy, since Ray passes read-only arrays and operations on a copy cannot change the records."""
    return shared(np.array(array, dtype=np.float64), device)


def shared(array: NDArray[Any], device: str) -> Tensor:
    """Return a tensor, without a copy on the CPU. The tensor must not be modified."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor if device == "cpu" else tensor.to(device)


def module_on(module: Module, device: str) -> Module:
    """Move the parameters and buffers of a module to a device."""
    return module.to(device)


def to_numpy(tensor: Tensor) -> Array:
    """Return the values of a tensor on the CPU, without a gradient tape."""
    array: Array = (tensor if tensor.is_cpu else tensor.cpu()).numpy(force=True)
    return array


def default_device(device: str) -> AbstractContextManager[Any]:
    """Create new tensors (`torch.zeros(3)`) on the device in this context.

    A loss or module then needs no device-specific code. Nothing changes on the CPU.
    """
    import torch

    return nullcontext() if device == "cpu" else torch.device(device)


@contextmanager
def repeatable(device: str) -> Iterator[None]:
    """Make operations on a device deterministic in this context, or raise an error. Operations on the CPU always are.

    An interrupted round is computed again, and its releases use the same noise.
    """
    if device == "cpu":
        yield
        return
    import torch

    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)


def is_of_device(error: BaseException) -> bool:
    """Return whether an error is a failure of the device or its memory, rather than of a record."""
    torch = sys.modules.get("torch")
    kinds = ("OutOfMemoryError", "AcceleratorError")
    return isinstance(error, tuple(getattr(torch, kind) for kind in kinds if hasattr(torch, kind)))
