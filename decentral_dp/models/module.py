"""Any torch module as a model: per-record gradients by torch.func, formed row by row in groups of bounded memory.

The gradient of a record is vmap(grad ⟨module(record), c⟩), of the record alone: whatever a module does to a batch, no
record can reach another's row. The rows of a group are formed, their norms taken over all parameters, and one product
adds them up; a change is formed as the difference of a record's two rows.

Parameters that require no gradient, and buffers, are constants of the model. What a module knows of itself beyond its
parameters must not change while it is used.

Where ghost norms are exact (`stack_of`) they are used instead. For convolutions formulas by layer (patches times
slopes, from hooks) were measured against vmap on one core in float64, for the residual network of `resnet` (p = 77 457)
on records of 32 × 32 × 3: in groups of 8 a clipped sum takes 1.5 of torch's plain gradient by vmap and 1.0 to 1.4 by
formulas, and of 64 records 0.7 (vmap, in groups of 8) and 1.1 (vmap and formulas, all at once): groups that fit into
the cache gain more than formulas do, so there are none. A private step, with a forward pass of its own for the outputs
and with its noise, takes 1.9 to 2.4 of the plain gradient for 8 records and 0.9 to 1.1 for 64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.models.autodiff import quiet_torch, rows_or_nan
from decentral_dp.models.devices import default_device, shared, tensor, to_numpy
from decentral_dp.models.mlp import Activation, Dense, Mlp
from decentral_dp.models.protocol import Slope
from decentral_dp.models.row_locality import row_dependence, trials
from decentral_dp.privacy.clipping import clip_factors, row_norms

# Float64 numbers of one group of rows: 32 MiB on a processor, 1 GiB on a device that is slow to start.
_CELLS = {"cpu": 1 << 22, "cuda": 1 << 27}

Rows = dict[str, Tensor]


class Tape(NamedTuple):
    """x: (p,), inputs: (n, d)."""

    x: Tensor
    inputs: Tensor


@dataclass(frozen=True, eq=False)
class TorchModel:
    """A module of torch in float64 on its device, from records (n, d) to outputs (n, e).

    x lists its trainable parameters in their order. start: (p,). row: float64 numbers that one record's gradient takes
    while it is formed. source: of a user's module, the file and the function that made it; "" for ours.
    """

    module: nn.Module
    n_features: int
    outputs: int
    start: Array
    row: int
    device: str = "cpu"
    source: str = ""

    @property
    def p(self) -> int:
        return len(self.start)

    @property
    def cells(self) -> int:
        # A tape is the records alone: rows live in the groups of `clipped`.
        return self.n_features + 2 * self.outputs

    @cached_property
    def group(self) -> int:
        """Records whose rows are formed together."""
        return max(1, _CELLS[self.device] // self.row)

    def forward(self, x: Array, inputs: Array, keep: bool = True) -> tuple[Array, Tape | None]:
        with quiet_torch(self.device):
            tape = Tape(self._tensor(x), self._tensor(inputs))
            parameters = dict(self._parameter_views(tape.x))

            def rows(records: Tensor, _: Tensor) -> Rows:
                return {"out": vmap(lambda record: forward_one(self.module, parameters, record))(records)}

            parts = [
                _rows_of(rows, records, records, {"out": (self.outputs,)})["out"]
                for records in torch.split(tape.inputs, self.group)
                if len(records)
            ]
            out = torch.cat(parts) if parts else tape.x.new_zeros((0, self.outputs))
            return to_numpy(out), tape if keep else None

    def named_weights(self, x: Array) -> dict[str, Array]:
        """Name → parameter of the module, in its shape."""
        return {name: to_numpy(part).copy() for name, part in self._parameter_views(self._tensor(x))}

    def clipped_sum(self, at: Slope, extra: Array, bound: float, since: Slope | None = None) -> tuple[Array, Array]:
        factors = np.zeros(len(extra))
        with quiet_torch(self.device):
            total = shared(np.zeros(self.p), self.device)
            for start in range(0, len(extra), self.group):
                part = slice(start, start + self.group)
                rows = self._rows(at, part)
                if since is not None:
                    then = self._rows(since, part)
                    rows = {name: row - then[name] for name, row in rows.items()}
                factors[part] = self._add(total, rows, extra[part], bound)
            return to_numpy(total), factors

    def _add(self, total: Tensor, rows: Rows, extra: Array, bound: float) -> Array:
        flat = {name: row.reshape(len(row), -1) for name, row in rows.items()}
        lengths = to_numpy(torch.stack([torch.linalg.vector_norm(row, dim=1) for row in flat.values()], dim=1))
        norms = row_norms(np.concatenate([lengths, row_norms(extra, "l2")[:, None]], axis=1), "l2")
        factors, finite = clip_factors(norms, bound), np.isfinite(norms)
        safe = None if finite.all() else shared(finite[:, None], self.device)
        scale = self._tensor(factors)
        for name, into in self._parameter_views(total):
            # Zero times infinity is NaN: what is not finite has to go before the product.
            finite_rows = flat[name] if safe is None else torch.where(safe, flat[name], 0.0)
            into += (scale @ finite_rows).view(into.shape)
        return factors

    def _rows(self, at: Slope, part: slice) -> Rows:
        """Parameter → ∇⟨φ_k, c_k⟩ per record (m, …)."""
        tape: Tape = at.tape
        parameters = dict(self._parameter_views(tape.x))

        def weighted_output(parameters: Rows, record: Tensor, cotangent: Tensor) -> Tensor:
            return (forward_one(self.module, parameters, record) * cotangent).sum()

        def rows(records: Tensor, cotangents: Tensor) -> Rows:
            return dict(vmap(grad(weighted_output), in_dims=(None, 0, 0))(parameters, records, cotangents))

        shapes = {name: tuple(value.shape) for name, value in parameters.items()}
        return _rows_of(rows, tape.inputs[part], self._tensor(at.cotangents[part]), shapes)

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Try that outputs and gradients are of their own record alone, for batches of so many; ours are known to be.

        Raises InputError where a row reads another record, or where one question has two answers.
        """
        if not self.source or self.device != "cpu":
            # Another device may add up in another order each time.
            return
        tried = tuple(trials({min(n, self.group) for n in counts}, self.n_features, 0))
        draw = np.random.default_rng(1)
        for turn, x in enumerate((self.start, self.start + 0.1 * draw.normal(size=self.p))):
            fault = row_dependence(self._trial_rows(x), tried[turn::2])
            if fault is not None:
                raise InputError(
                    f"{self.source}: the module {fault.text}, and no clip bounds what one record moves then; let no "
                    "operation run over the first axis, and remember nothing."
                )

    def _trial_rows(self, x: Array) -> Callable[..., dict[str, Array]]:
        """What is ever taken of records at one point: outputs, and gradients along a made-up cotangent."""

        def rows(inputs: Array, labels: Array) -> dict[str, Array]:
            outputs, tape = self.forward(x, inputs)
            cotangents = np.cos(np.arange(self.outputs)) + labels[:, None]
            with quiet_torch(self.device):
                gradients = self._rows(Slope(tape, cotangents), slice(0, len(labels)))
            named = {f"the gradient by {name!r}": to_numpy(part) for name, part in gradients.items()}
            return {"the output": outputs} | named

        return rows

    def _parameter_views(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Views of the trainable parameters, by name."""
        done = 0
        for name, parameter in trainable(self.module):
            yield name, flat[done : done + parameter.numel()].view(parameter.shape)
            done += parameter.numel()

    def _tensor(self, array: Array) -> Tensor:
        return tensor(array, self.device)


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Name and value of every parameter that training changes, in order."""
    return [(name, value) for name, value in module.named_parameters() if value.requires_grad]


def weights_of(module: nn.Module) -> Array:
    """(p,)"""
    return np.concatenate([to_numpy(value).ravel() for _, value in trainable(module)])


def as_model(module: nn.Module, n_features: int, outputs: int, device: str, where: str = "") -> Mlp | TorchModel:
    """Make the model of a sound float64 module: by ghost norms where they are exact, else row by row.

    Args:
        module: of torch, in float64.
        n_features: columns of the records.
        outputs: e, columns of what it gives.
        device: of torch, which the module is on.
        where: of a user's module, as in `TorchModel`; default "".

    Returns:
        The model, which starts at the module's weights.
    """
    stack = stack_of(module, n_features)
    if stack is not None:
        return Mlp(stack, weights_of(module), device, tuple(name for name, _ in trainable(module)))
    record = tensor(np.zeros((1, n_features)), device)
    with default_device(device):
        return TorchModel(module, n_features, outputs, weights_of(module), _cells(module, record), device, where)


def stack_of(module: nn.Module, n_features: int) -> tuple[Dense, ...] | None:
    """The layers of an nn.Sequential of Linear, each followed by ReLU, Tanh or nothing; None of anything else.

    Only what torch itself defines and nobody has touched is known to compute what these formulas say.
    """
    layers: list[Dense] = []
    kinds: dict[type, Activation] = {nn.ReLU: "relu", nn.Tanh: "tanh"}
    steps = list(_steps(module))
    plain = (nn.Linear, nn.Flatten, nn.Identity, *kinds)
    linear = [m for m in steps if type(m) is nn.Linear]
    if (
        any(type(m) not in plain or _has_hooks(m) for m in steps)
        or len({id(m) for m in linear}) < len(linear)
        or {id(p) for m in linear for p in m.parameters()} != {id(p) for _, p in trainable(module)}
        or len(trainable(module)) != sum(len(list(m.parameters())) for m in linear)
    ):
        return None
    for m in steps:
        if type(m) is nn.Linear:
            if m.in_features != (layers[-1].fan_out if layers else n_features):
                return None
            layers.append(Dense(m.in_features, m.out_features, m.bias is not None))
        elif type(m) is nn.Flatten and (m.start_dim, m.end_dim) != (1, -1):
            return None
        elif type(m) in kinds:
            if not layers or layers[-1].activation:
                return None
            layers[-1] = layers[-1]._replace(activation=kinds[type(m)])
    return tuple(layers) or None


def _steps(module: nn.Module) -> Iterator[nn.Module]:
    """What an nn.Sequential runs, one after the other, those in it unfolded."""
    if type(module) is not nn.Sequential or _has_hooks(module):
        yield module
        return
    for child in module:
        yield from _steps(child)


def _has_hooks(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" in vars(module) or any(getattr(module, name) for name in hooks)


def forward_one(module: nn.Module, parameters: Rows, record: Tensor) -> Tensor:
    """φ (e,) of one record (d,) in a batch of its own, with these trainable parameters."""
    # torch ties shared weights by itself, but leaves a module that stands in two places with the weights of the call.
    places = {id(value): parameters[name] for name, value in trainable(module)}
    everywhere = {
        f"{at}.{key}" if at else key: places[id(value)]
        for at, part in module.named_modules()
        for key, value in part.named_parameters(recurse=False, remove_duplicate=False)
        if id(value) in places
    }
    out: Tensor = functional_call(module, everywhere, (record[None],), tie_weights=False)[0]
    return out


def _rows_of(
    oracle: Callable[[Tensor, Tensor], Rows], records: Tensor, extra: Tensor, shapes: dict[str, tuple[int, ...]]
) -> Rows:
    """The rows of all records, NaN where a record's evaluation raises."""
    rows = rows_or_nan(oracle, records, extra)
    return rows or {name: records.new_full((len(records), *shape), torch.nan) for name, shape in shapes.items()}


def _cells(module: nn.Module, record: Tensor) -> int:
    """Float64 numbers that the gradient of one record takes: what its forward pass keeps, and two rows."""
    saved_numbers = 0

    def count(saved: Tensor) -> Tensor:
        nonlocal saved_numbers
        saved_numbers += saved.numel()
        return saved

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda held: held):
        module(record)
    return saved_numbers + 2 * sum(value.numel() for _, value in trainable(module))
