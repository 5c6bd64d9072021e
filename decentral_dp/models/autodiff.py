"""Derivatives of per-record torch functions, traces of their dependencies, and captured graphs.

`torch.func` builds derivatives at every call, which takes milliseconds of Python for microseconds of arithmetic. A
function without branches on values calls the same operations for all arguments of the same shapes. `Captured` records
them once for each set of shapes and devices, on synthetic numbers, and then calls them directly, with identical bits.
The graph is compared with the function on synthetic numbers. If they differ in a bit, the function itself is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from decentral_dp.bounded import Split
from decentral_dp.errors import InputError, converting
from decentral_dp.models.devices import default_device, is_of_device, repeatable, tensor
from decentral_dp.user_code import USER_ERRORS, blame

if TYPE_CHECKING:
    # At run time torch is imported by the functions that need it: `decentral-dp --help` must not wait for it.
    from torch import Tensor
    from torch.fx import GraphModule

    Outputs: TypeAlias = Mapping[str, Tensor]
    Function: TypeAlias = Callable[..., Outputs]

Loss: TypeAlias = "Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]"
Penalty: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"
Predict: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"

ARGUMENTS = {
    "upper_loss": "(x, y, features, label)",
    "lower_loss": "(x, y, features, label)",
    "regulariser": "(x, y)",
    "predict": "(y, features)",
}


# Shape of a loss value, and its description.
_NUMBER = ({()}, "one torch.float64 number")


class Derivatives(NamedTuple):
    """Derivatives for one record: ∇_y f (q,), ∇²_yy f·z (q,) and ∇²_xy f·z (p,)."""

    grad_y: Tensor
    hvp: Tensor
    jvp: Tensor


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread and no gradient tape.

    Products for one record are too small to be split among threads. More threads cost time, and agents on one machine
    compete for cores.
    """
    import torch

    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        with torch.no_grad():
            yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)


@contextmanager
def losses_on(device: str) -> Iterator[None]:
    """Apply `quiet_torch`, and raise an error for operations that are not deterministic."""
    with quiet_torch(device), repeatable(device):
        yield


# Warnings that the code of torch causes itself: in forward derivatives, in logsigmoid, and in loops of vmap.
_NOT_THE_USERS = (
    r"`torch\.jit\.script` is|An output with one or more elements was resized"
    "|There is a performance drop because we have not yet implemented"
)


@contextmanager
def quiet_torch(device: str = "cpu") -> Iterator[None]:
    """Apply `one_thread` without warnings that users cannot avoid. New tensors are created on the device."""
    with one_thread(), warnings.catch_warnings(), default_device(device):
        warnings.filterwarnings("ignore", message=_NOT_THE_USERS)
        yield


def directions(f: Callable[..., Tensor], x: Tensor, y: Tensor, z: Tensor, *record: Tensor) -> Derivatives:
    """Differentiate a loss of one record: (∇²_xy f·z, ∇²_yy f·z) is the derivative of ∇_{x,y} f along (0, z).

    Args:
        f: function that maps (x, y, *record) to a number.
        x: point x, (p,).
        y: point y, (q,).
        z: direction, (q,).
        record: further arguments of f.
    """
    from torch.func import grad, jvp

    primal, tangent = jvp(lambda v: grad(f, argnums=(0, 1))(x, v, *record), (y,), (z,))[:2]
    return Derivatives(primal[1], tangent[1], tangent[0])


def columns(f: Callable[..., Tensor], x: Tensor, y: Tensor, z: Tensor, *record: Tensor) -> Derivatives:
    """Apply `directions` to every column of z (q, k): ∇_y f (q, k), ∇²_yy f·z (q, k), ∇²_xy f·z (p, k)."""
    from torch.func import vmap

    rows = vmap(lambda column: directions(f, x, y, column, *record), in_dims=1)(z)
    return Derivatives(*(r.T for r in rows))


def over_grid(fn: Callable[..., Any], rows: int) -> Callable[..., Any]:
    """Evaluate `fn(row…, record…)` for all pairs of rows and records, where the first `rows` arguments are rows."""
    from torch.func import vmap

    return vmap(vmap(fn, in_dims=(*(None,) * rows, 0, 0)), in_dims=(*(0,) * rows, None, None))


def rows_or_nan(oracle: Callable[..., Mapping[str, Any]], *records: Any) -> dict[str, Any]:
    """Evaluate the rows of every record, with NaN for a record whose evaluation fails. Device errors are raised.

    A valid record replaces such a record, so that all others keep their index and rounding, and one record changes only
    its own row. Whether a run stops must not depend on a private value.

    Args:
        oracle: function that maps records to the rows of each term, as tensors or arrays.
        records: features (n, d) and labels (n,), or other arguments of the oracle, row by row.

    Returns:
        The rows of each term, (n, …). Empty if every record raises an error.
    """
    try:
        return dict(oracle(*records))
    except USER_ERRORS as error:
        if is_of_device(error):
            raise
        n = len(records[0])
        sound = [k for k in range(n) if _runs(oracle, *(part[k : k + 1] for part in records))]
    if not sound:
        return {}
    stand_in = [k if k in set(sound) else sound[0] for k in range(n)]
    # Copies, since NaN is written into them.
    outputs = oracle(*(part[stand_in] for part in records)).items()
    out = {term: rows.copy() if isinstance(rows, np.ndarray) else rows.clone() for term, rows in outputs}
    for rows in out.values():
        rows[[k for k, source in enumerate(stand_in) if k != source]] = np.nan
    return out


def _runs(oracle: Callable[..., Any], *record: Any) -> bool:
    try:
        oracle(*record)
    except USER_ERRORS as error:
        if is_of_device(error):
            raise
        return False
    return True


def trace(
    upper_loss: Loss,
    lower_loss: Loss,
    regulariser: Penalty | None,
    predict: Predict | None,
    sizes: tuple[int, int, int],
    classes: int | None,
    device: str = "cpu",
) -> dict[str, Split]:
    """Evaluate every function on two synthetic points and records, and read its dependencies from its graph.

    Points are batched like records, so no Python code can read a value of x, y, features or label. The graph is
    therefore the same at all points, or an error is raised. Then every function is called once in the way the problem
    calls it, where a failure would be mistaken for an invalid record.

    Args:
        upper_loss, lower_loss, regulariser, predict: arguments of `from_losses`.
        sizes: sizes (p, q, n_features).
        classes: number of classes, or None for numeric labels.
        device: device of the computation, default "cpu". Trace on the CPU first, so that later errors are due to the
            device.

    Returns:
        Terms that may depend on records, and the split that each reads.

    Raises:
        InputError: a function cannot be traced, differentiated or batched.
    """
    import torch
    from torch.func import grad, vmap

    p, q, n_features = sizes
    draw = np.random.default_rng(0)
    x, y, z = (tensor(draw.normal(size=(2, d)), device) for d in (p, q, q))
    # Zero is a valid class index, and valid in usual losses.
    labels = tensor(np.zeros(2), device)
    records = tensor(draw.normal(size=(2, n_features)), device), labels if classes is None else labels.long()
    with losses_on(device):
        with torch.enable_grad():
            leaves = x.requires_grad_(), y.requires_grad_()
            reads_records = _reads_records(upper_loss, lower_loss, device, *leaves, *records)
        x, y = x.detach(), y.detach()
        point = x[0], y[0], z[0]
        with _blame("upper_loss", device):
            vmap(lambda *record: grad(upper_loss, argnums=(0, 1))(*point[:2], *record))(*records)
            over_grid(upper_loss, 2)(x, y, *records)
        with _blame("lower_loss", device):
            vmap(lambda *r: directions(lower_loss, *point, *r))(*records)
            vmap(lambda *r: columns(lower_loss, *point[:2], z.T, *r))(*records)
            over_grid(lower_loss, 2)(x, y, *records)
        if regulariser is not None:
            with _blame("regulariser", device):
                vmap(_check_shapes("regulariser", regulariser, *_NUMBER))(x, y)
                vmap(lambda *row: directions(regulariser, *row))(x, y, z)
        if predict is not None:
            expected_shape = "one number" if classes is None else f"a label or {classes} scores"
            guess = _check_shapes("predict", predict, {()} if classes is None else {(), (classes,)}, expected_shape)
            with _blame("predict", device):
                over_grid(lambda y, features, _: guess(y, features), 1)(y, *records)
    return reads_records


def _reads_records(
    upper_loss: Loss, lower_loss: Loss, device: str, x: Tensor, y: Tensor, *records: Tensor
) -> dict[str, Split]:
    """Return the terms whose derivative is in the graph of its loss."""
    import torch
    from torch.func import grad, vmap

    reads_records: dict[str, Split] = {"lower_grad_y": "train", "upper_grad_y": "validation"}
    originals = [r.clone() for r in records]
    for name, loss in (("upper_loss", upper_loss), ("lower_loss", lower_loss)):
        with _blame(name, device):
            value = vmap(_check_shapes(name, loss, *_NUMBER))(x, y, *records)
            if not all(torch.equal(*pair) for pair in zip(originals, records, strict=True)):
                raise InputError(f"{name}: it changes a record in place. Fix: {_advice(name)}.")
            if not _uses(value, y):
                raise InputError(f"{name}: it does not depend on y, so there is nothing to solve. Fix: use y.")
            slope = vmap(grad(loss, argnums=1))(x, y, *records)
            if name == "upper_loss":
                reads_records |= {"upper_grad_x": "validation"} if _uses(value, x) else {}
            else:
                reads_records |= {"lower_hvp": "train"} if _uses(slope, y) else {}
                reads_records |= {"lower_jvp": "train"} if _uses(slope, x) else {}
    return reads_records


def _uses(value: Tensor, variable: Tensor) -> bool:
    """Return whether `variable` is in the differentiable graph of `value`. Otherwise the derivative is zero."""
    import torch

    if not value.requires_grad:
        return False
    return torch.autograd.grad(value.sum(), variable, allow_unused=True, retain_graph=True)[0] is not None


def _check_shapes(
    name: str, f: Callable[..., Any], shapes: Collection[tuple[int, ...]], expected_shape: str
) -> Callable[..., Tensor]:
    """Return the function with checks that raise InputError for a different shape or precision of the result."""
    import torch

    def call(*arguments: Tensor) -> Any:
        value = f(*arguments)
        is_tensor = isinstance(value, torch.Tensor)
        if not is_tensor or tuple(value.shape) not in shapes or (name != "predict" and value.dtype != torch.float64):
            got = f"shape {tuple(value.shape)} of {value.dtype}" if is_tensor else type(value).__name__
            raise InputError(
                f"{name}: it returned {got} for one record, expected {expected_shape}. Fix: {_advice(name)}."
            )
        return value

    return call


def _blame(name: str, device: str) -> AbstractContextManager[None]:
    """Convert exceptions of a custom function to an InputError with its line."""
    place, fix = name, _advice(name)
    if device != "cpu":
        place = f'{name}: it runs on the CPU but not on device = "{device}"'
        fix = (
            "create tensors inside of the function, where they are created on the device, or move captured tensors, as "
            "in weights.to(y.device)"
        )
    return converting(USER_ERRORS, lambda error: f"{place}: {blame(error)}. Fix: {fix}.")


def _advice(name: str) -> str:
    return (
        f"write it in torch, in float64, as a pure function of {ARGUMENTS[name]}: torch.where instead of branches, "
        "no .item() or .numpy(), no random draws, nothing changed in place"
    )


# Calls with the same shapes before capture, which takes about as long as these calls.
PATIENCE = 48
# Largest number of graphs per function; for other shapes the function itself is called.
_MOST_GRAPHS = 256


class Captured:
    """Pure function that maps tensors to named tensors and is replayed from its captured graph for recurring shapes.

    Args:
        function: function without branches on values or random draws, as `vmap` verifies. Integer arguments are
            labels, of which 0 and 1 are valid.
        device: device of the arguments, default "cpu".

    Example:
        >>> import torch
        >>> slope = Captured(lambda x: {"slope": torch.func.grad(lambda v: (v**3).sum())(x)})
        >>> [slope(torch.tensor([1.0, 2.0]))["slope"].tolist() for _ in range(PATIENCE + 1)][-1]
        [3.0, 12.0]
    """

    def __init__(self, function: Function, device: str = "cpu") -> None:
        def quietly(*arguments: Tensor) -> Outputs:
            with losses_on(device):
                return function(*arguments)

        self._function, self._device = quietly, device
        # Shapes → the graph, or the number of calls so far.
        self._kept: dict[Any, Function | int] = {}

    def __call__(self, *arguments: Tensor) -> Outputs:
        """Return the value of the function."""
        import torch

        shapes = tuple([(a.shape, a.dtype, a.device) for a in arguments])
        n_kept = self._kept.get(shapes, 0)
        if not isinstance(n_kept, int):
            if self._device == "cpu" and torch.get_num_threads() == 1:
                return n_kept(*arguments)
            with one_thread(), repeatable(self._device):
                return n_kept(*arguments)
        if n_kept >= PATIENCE:
            with one_thread():
                self._kept[shapes] = capture(self._function, arguments) or self._function
        elif n_kept or len(self._kept) < _MOST_GRAPHS:
            self._kept[shapes] = n_kept + 1
        return self._function(*arguments)


def capture(function: Function, like: tuple[Tensor, ...]) -> Function | None:
    """Record the operations of a function for arguments of these shapes.

    Args:
        function: function without branches on values, as in `Captured`.
        like: arguments whose shapes and types are used. No value of a record enters the graph.

    Returns:
        A function with bitwise identical results for these shapes, or None if capture fails or results differ on
        synthetic numbers.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    draw = np.random.default_rng(0)

    def draw_inputs(like: Tensor, wide: bool) -> Tensor:
        """Draw numbers in [0, 1), where logarithms and roots are defined, or normal numbers, and labels 0 and 1."""
        shape = tuple(like.shape)
        if not like.is_floating_point():
            return torch.as_tensor(draw.integers(0, 2, shape)).to(like.device, like.dtype)
        return torch.as_tensor(draw.normal(size=shape) if wide else draw.random(shape)).to(like.device, like.dtype)

    mild, spread = (tuple(draw_inputs(a, wide) for a in like) for wide in (False, True))
    # The second calls show whether a call changes a constant of the graph, and test the compiled TorchScript.
    trials = (mild, spread, mild, spread)
    try:
        expected = [function(*inputs) for inputs in trials]
        graph = make_fx(function)(*mild)
        graph_replay = _compile(graph, mild)
        outputs = [graph_replay(*inputs) for inputs in trials]
        if not all(_equal(*pair) for pair in zip(outputs, expected, strict=True)):
            return None
    except USER_ERRORS:
        return None
    # An output that depends on no argument may be one tensor in all calls, into which a caller may write.
    shared_output = any(
        a.data_ptr() == b.data_ptr() for a, b in zip(outputs[-1].values(), outputs[-2].values(), strict=True)
    )
    return (
        (lambda *inputs: {name: out.clone() for name, out in graph_replay(*inputs).items()})
        if shared_output
        else graph_replay
    )


def _equal(first: Outputs, second: Outputs) -> bool:
    return list(first) == list(second) and all(
        bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in zip(first.values(), second.values(), strict=True)
    )


def _compile(graph: GraphModule, arguments: tuple[Tensor, ...]) -> Function:
    """Compile the graph to TorchScript, which calls its operations without Python.

    TorchScript drops checks that may raise, and fuses operations on a device, which rounds differently. Such graphs
    stay in Python.
    """
    import torch

    # Constants of a graph must have no gradient tape.
    for name, parameter in list(graph.named_parameters()):
        delattr(graph, name)
        graph.register_buffer(name, parameter.detach())
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    checks = any(not node.target._schema.returns for node in calls if hasattr(node.target, "_schema"))
    if checks or any(a.device.type != "cpu" for a in arguments):
        return graph.forward
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.trace", category=DeprecationWarning)
        # A function, since a module checks hooks at every call. Not strict: outputs are a dictionary.
        return torch.jit.trace(lambda *a: graph(*a), arguments, check_trace=False, strict=False)  # type: ignore[no-any-return, no-untyped-call]
