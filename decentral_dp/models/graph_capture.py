"""Pure functions of tensors, captured as a graph of torch operations once their shapes recur.

`torch.func` builds its derivatives anew at every call: milliseconds of Python around microseconds of arithmetic. A
function that branches on no value calls the same operations whenever its arguments have the same shapes. Here they are
recorded once for each set of shapes and devices, on made-up numbers, and called directly from then on: same operations,
same order, same bits. That is tried to the bit on made-up numbers; where it fails, the function itself is called on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from decentral_dp.user_code import USER_ERRORS

if TYPE_CHECKING:
    # At run time torch is imported by the functions that need it: `decentral-dp --help` must not wait for it.
    from torch import Tensor
    from torch.fx import GraphModule, Node

    Outputs: TypeAlias = Mapping[str, Tensor]
    Function: TypeAlias = Callable[..., Outputs]

# Calls with arguments of the same shapes before they are captured, which takes about as long as these calls did.
PATIENCE = 48
# Sets of shapes whose graphs are kept of one function; with all others the function itself is called.
_KEPT = 256


class Captured:
    """A pure function of tensors → name → tensor, called through its graph where the shapes of its arguments recur.

    Args:
        function: branches on no value and draws nothing, as `vmap` makes sure of; whole numbers among its arguments
            are labels, of which 0 and 1 exist.

    Example:
        >>> import torch
        >>> slope = Captured(lambda x: {"slope": torch.func.grad(lambda v: (v**3).sum())(x)})
        >>> [slope(torch.tensor([1.0, 2.0]))["slope"].tolist() for _ in range(PATIENCE + 1)][-1]
        [3.0, 12.0]
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        # Shapes → what to call, or how often the function itself has been called.
        self._kept: dict[Any, Function | int] = {}

    def __call__(self, *arguments: Tensor) -> Outputs:
        """The function's value at these arguments."""
        shapes = tuple((a.shape, a.dtype, a.device) for a in arguments)
        kept = self._kept.get(shapes, 0)
        if not isinstance(kept, int):
            return kept(*arguments)
        if kept >= PATIENCE:
            self._kept[shapes] = capture(self._function, arguments) or self._function
        elif kept or len(self._kept) < _KEPT:
            self._kept[shapes] = kept + 1
        return self._function(*arguments)


def capture(function: Function, like: tuple[Tensor, ...]) -> Function | None:
    """Record the operations of a function at arguments of these shapes.

    Args:
        function: as of `Captured`.
        like: shapes and types are read of them, values are not: nothing of a record is kept in the graph.

    Returns:
        What gives the same bits at all arguments of these shapes; None where the function cannot be captured, or where
        made-up numbers told the two apart.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    draw = np.random.default_rng(0)
    mild, spread = (tuple(_made_up(a, draw, wide) for a in like) for wide in (False, True))
    # Called again, a graph shows whether a call has changed a constant of it, and TorchScript what it made of it.
    tried = (mild, spread, mild, spread)
    try:
        wanted = [function(*some) for some in tried]
        graph = make_fx(function)(*mild)
        replayed = _compiled(_pruned(graph, mild), mild)
        equal = [_equal(replayed(*some), out) for some, out in zip(tried, wanted, strict=True)]
    except USER_ERRORS:
        return None
    return replayed if all(equal) else None


def _made_up(like: Tensor, draw: np.random.Generator, wide: bool) -> Tensor:
    """Numbers in [0, 1), where logarithms and roots are what they should be, or normal ones; labels 0 and 1."""
    import torch

    shape = tuple(like.shape)
    if not like.is_floating_point():
        return torch.as_tensor(draw.integers(0, 2, shape)).to(like.device, like.dtype)
    return torch.as_tensor(draw.normal(size=shape) if wide else draw.random(shape)).to(like.device, like.dtype)


def _equal(here: Outputs, there: Outputs) -> bool:
    return list(here) == list(there) and all(
        bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in zip(here.values(), there.values(), strict=True)
    )


def _pruned(graph: GraphModule, arguments: tuple[Tensor, ...]) -> GraphModule:
    """Drop what changes no number: results that nobody reads, aliases, copies and views that are as their source."""
    import torch
    from torch.fx.passes.shape_prop import ShapeProp

    ShapeProp(graph).propagate(*arguments)
    operations = torch.ops.aten
    same_numbers = {operations.alias.default, operations.detach.default, operations._to_copy.default}
    same_numbers |= {operations.expand.default, operations.t.default, operations.view.default}
    # What is changed in place must stay a copy where it was one.
    if not _has_effects(graph):
        for node in list(graph.graph.nodes):
            if node.op == "call_function" and node.target in same_numbers and _as_its_source(node):
                node.replace_all_uses_with(node.args[0])
                graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code(_has_effect)
    graph.recompile()
    return graph


def _compiled(graph: GraphModule, arguments: tuple[Tensor, ...]) -> Function:
    """The graph in TorchScript, which calls its operations without Python.

    TorchScript drops checks that may raise, and on a device it fuses operations, which rounds otherwise: such graphs
    stay in Python.
    """
    import torch

    if _has_effects(graph) or any(a.device.type != "cpu" for a in arguments):
        return graph.forward
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.trace", category=DeprecationWarning)
        # Not strict: the outputs are a dictionary.
        return torch.jit.trace(graph, arguments, check_trace=False, strict=False)  # type: ignore[no-any-return, no-untyped-call]


def _as_its_source(node: Node) -> bool:
    # A number takes the place of a tensor here and there, and carries no shape.
    if node.kwargs.get("device") is not None:
        # A copy to another device has the same numbers, and is not the same.
        return False
    tensors = [getattr(part, "meta", {}).get("tensor_meta") for part in (node.args[0], node)]
    source, here = ((t.shape, t.dtype, t.stride) if t is not None else None for t in tensors)
    return source is not None and source == here


def _has_effects(graph: GraphModule) -> bool:
    return any(node.op == "call_function" and _has_effect(node) for node in graph.graph.nodes)


def _has_effect(node: Node) -> bool:
    """Whether an operation does more than give a result: it changes an argument, or raises where one is not sound."""
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    schema = getattr(node.target, "_schema", None)
    return schema is None or schema.is_mutable or not schema.returns
