"""Emulate a CUDA device on the CPU.

Tensors of the emulated device wrap CPU tensors and report another device. As in torch, an operation on tensors of two
devices fails, except for scalars, indices and copies. A tensor left on the CPU therefore raises an error, and results
have the CPU's bits. For torch, the tensors are on "meta", the only other device with gradients in every build.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext, _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

STANDS_IN = torch.device("meta")
aten = torch.ops.aten
# Operations that take tensors of two devices.
_MEETING = {aten.copy_.default, aten.index.Tensor, aten.index_put_.default, aten.index_put.default}


def _native(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hide the function from tracebacks, as a real device does."""
    function.__code__ = function.__code__.replace(co_filename="<emulated device>")
    return function


class OnDevice(torch.Tensor):
    """Wrap a CPU tensor (held) as a tensor of the emulated device."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnDevice:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=STANDS_IN,
        )

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    @_native
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


@_native
def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Apply an operation to the held tensors; results are on the device of its tensors, or on `device` if given."""
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    there = any(isinstance(t, OnDevice) for t in tensors)
    if there and func not in _MEETING and any(not isinstance(t, OnDevice) and t.dim() > 0 for t in tensors):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found two (when calling {func})")
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]) == STANDS_IN
        kwargs = kwargs | {"device": torch.device("cpu")}
    if func is aten._efficientzerotensor.default:
        # torch marks zeros without memory by their class, and these tensors have another class.
        func = aten.zeros.default
    held = [tree_map(lambda t: t.held if isinstance(t, OnDevice) else t, part) for part in (args, kwargs)]
    out = func(*held[0], **held[1])
    if func._schema.is_mutable:
        return args[0]
    return tree_map(lambda t: OnDevice(t) if there and isinstance(t, torch.Tensor) else t, out)


class _Operations(TorchDispatchMode):
    """Dispatch operations without tensor arguments too, such as `torch.zeros(3, device=…)`."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    @_native
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = _computed(func, args, kwargs or {})
        made = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
        if not any(isinstance(t, OnDevice) for t in made) and any(t.dim() > 0 for t in made):
            self.names.append(str(func))
        return out


class _Named(TorchFunctionMode):
    """Replace "cuda" in arguments by the emulated device."""

    @_native
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _placed(func, tuple(map(_place, args)), {k: _place(v) for k, v in (kwargs or {}).items()})


@_native
def _placed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func is torch.tensor and kwargs.get("device") == STANDS_IN:
        # Python numbers have no data on "meta".
        return func(*args, **kwargs | {"device": "cpu"}).to(STANDS_IN)
    if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and isinstance(args[1], list):
        args = (args[0], torch.tensor(args[1]), *args[2:])
    return func(*args, **kwargs)


def _place(value: Any) -> Any:
    if isinstance(value, torch.device):
        return STANDS_IN if value.type == "cuda" else value
    return STANDS_IN if isinstance(value, str) and value.startswith("cuda") else value


@contextmanager
def emulated_cuda() -> Iterator[list[str]]:
    """Give torch a CUDA device; yield the names of operations on CPU tensors that are not scalars."""
    plain = DeviceContext.__init__

    def there(self: DeviceContext, device: Any) -> None:
        plain(self, _place(device))

    @_native
    def created(self: DeviceContext, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _device_constructors() and kwargs.get("device") is None:
            kwargs["device"] = self.device
        return _placed(func, args, kwargs)

    before, elsewhere = torch._C._only_lift_cpu_tensors(), _Operations()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with (
            mock.patch.object(torch.cuda, "is_available", return_value=True),
            mock.patch.object(torch.cuda, "get_device_name", return_value="an emulated device"),
            mock.patch.dict(os.environ),
            mock.patch.object(DeviceContext, "__init__", there),
            mock.patch.object(DeviceContext, "__torch_function__", created),
            _Named(),
            elsewhere,
        ):
            yield elsewhere.names
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
