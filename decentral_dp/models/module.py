"""Torch modules as models: the gradient of each record by torch.func, in groups of bounded memory.

The gradient of a record is grad ⟨module(record), c⟩ of a batch of this record only, and vmap takes it for many records
at once. Whatever a module does to a batch, no record reaches the row of another. The rows of a group are formed, their
norms are taken over all parameters, and one product adds them up. A change is the difference of a record's two rows.

Parameters that require no gradient, and buffers, are constants of the model. Nothing else that a module keeps may
change while it is used.

A custom module is tried first, and refused where a record's gradient is not its own.

    [problem]
    model = "net:build"

    def build(n_features, outputs):
        return torch.nn.Sequential(torch.nn.Linear(n_features, 32), torch.nn.GELU(), torch.nn.Linear(32, outputs))

The module maps a batch (n, n_features) to (n, outputs). It is made float64, whatever it was made in; an image comes as
one row, channels first. Its trainable parameters are x, and start as the function makes them, from the public seed if
they are drawn by torch's own generator. It stays in training mode, for private gradients and for scores alike.

The module is tried on synthetic records: its state must stay, and outputs and gradients by torch.func must be those of
the batch. That refuses batch normalisation, dropout and hooks on gradients. Forward hooks and parametrizations are part
of the module. A module that reads the clock, or that holds records in a buffer, is not found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError
from decentral_dp.models.autodiff import quiet_torch, rows_or_nan
from decentral_dp.models.devices import default_device, module_on, shared, tensor, to_numpy
from decentral_dp.models.protocol import Slope
from decentral_dp.models.row_locality import COUNTS, row_dependence, trials
from decentral_dp.privacy.clipping import clip_factors, row_norms
from decentral_dp.user_code import USER_ERRORS, blame, call, reason

# Float64 numbers of one group of rows: 32 MiB on a processor, 1 GiB on a device that is slow to start.
_CELLS = {"cpu": 1 << 22, "cuda": 1 << 27}

Parameters = dict[str, Tensor]


# x (p,) and the inputs (n, d) of a forward pass.
ModuleTape = tuple[Tensor, Tensor]


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

    def forward(self, x: Array, inputs: Array, keep: bool = True) -> tuple[Array, ModuleTape | None]:
        with quiet_torch(self.device):
            tape = self._tensor(x), self._tensor(inputs)
            parameters = dict(self._parameter_views(tape[0]))

            def rows(records: Tensor, _: Tensor) -> Tensor:
                out: Tensor = vmap(lambda record: self._evaluate(parameters, record))(records)
                return out

            parts = [
                _rows_of(rows, records, records, self.outputs)
                for records in torch.split(tape[1], self.group)
                if len(records)
            ]
            out = torch.cat(parts) if parts else tape[0].new_zeros((0, self.outputs))
            return to_numpy(out), tape if keep else None

    @cached_property
    def _places(self) -> dict[str, str]:
        """Every name under which the module holds a trainable parameter → the first of them.

        torch ties shared weights, but leaves a module that stands in two places with the weights of the call.
        """
        names = {id(value): name for name, value in trainable(self.module)}
        return {
            f"{at}.{key}" if at else key: names[id(value)]
            for at, part in self.module.named_modules()
            for key, value in part.named_parameters(recurse=False, remove_duplicate=False)
            if id(value) in names
        }

    def _evaluate(self, parameters: Parameters, record: Tensor) -> Tensor:
        """φ (e,) of one record (d,) in a batch of its own, with these trainable parameters."""
        everywhere = {place: parameters[name] for place, name in self._places.items()}
        out: Tensor = functional_call(self.module, everywhere, (record[None],), tie_weights=False)[0]
        return out

    def named_weights(self, x: Array) -> dict[str, Array]:
        """Name → parameter of the module, in its shape."""
        return {name: to_numpy(part).copy() for name, part in self._parameter_views(self._tensor(x))}

    def rows(self, at: Slope) -> Array:
        """Return ∇_x ⟨φ_k, c_k⟩ of every record, (n, p)."""
        n = len(at.cotangents)
        with quiet_torch(self.device):
            parts = [to_numpy(self._rows(at, slice(k, k + self.group))) for k in range(0, n, self.group)]
        return np.concatenate(parts) if parts else np.zeros((0, self.p))

    def clipped_sum(self, at: Slope, extra: Array, bound: float, since: Slope | None = None) -> tuple[Array, Array]:
        factors = np.zeros(len(extra))
        with quiet_torch(self.device):
            total = shared(np.zeros(self.p), self.device)
            for start in range(0, len(extra), self.group):
                part = slice(start, start + self.group)
                rows = self._rows(at, part) if since is None else self._rows(at, part) - self._rows(since, part)
                length = to_numpy(torch.linalg.vector_norm(rows, dim=1))
                norms = np.hypot(length, row_norms(extra[part], "l2"))
                factors[part] = clip_factors(norms, bound)
                if not (finite := np.isfinite(norms)).all():
                    # Zero times infinity is NaN: a row that is not finite has to go before the product.
                    rows = torch.where(shared(finite[:, None], self.device), rows, 0.0)
                total += self._tensor(factors[part]) @ rows
            return to_numpy(total), factors

    def _rows(self, at: Slope, part: slice) -> Tensor:
        """∇_x ⟨φ_k, c_k⟩ of some records, (m, p)."""
        x, inputs = at.tape
        return _rows_of(partial(self.gradients, x), inputs[part], self._tensor(at.cotangents[part]), self.p)

    def gradients(self, x: Tensor, records: Tensor, cotangents: Tensor) -> Tensor:
        """Return ∇_x ⟨φ_k, c_k⟩ of every record at once, (n, p). Raises what the module raises for one of them."""

        def weighted_output(parameters: Parameters, record: Tensor, cotangent: Tensor) -> Tensor:
            return (self._evaluate(parameters, record) * cotangent).sum()

        parameters = dict(self._parameter_views(x))
        by_name = vmap(grad(weighted_output), in_dims=(None, 0, 0))(parameters, records, cotangents)
        return torch.cat([row.reshape(len(row), -1) for row in by_name.values()], dim=1)

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Try that outputs and gradients are of their own record only, for batches of so many; ours are known to be.

        vmap rules of a custom autograd function, and what a module keeps in Python, may mix records all the same.

        Raises InputError where a row reads another record, or where one question has two answers.
        """
        if not self.source or self.device != "cpu":
            # Another device may add up in another order each time.
            return
        tried = tuple(trials({min(n, self.group) for n in counts}, self.n_features, 0))
        draw = np.random.default_rng(1)
        for turn, x in enumerate((self.start, self.start + 0.1 * draw.normal(size=self.p))):

            def rows(inputs: Array, labels: Array, x: Array = x) -> dict[str, Array]:
                outputs, tape = self.forward(x, inputs)
                slopes = Slope(tape, np.cos(np.arange(self.outputs)) + labels[:, None])
                return {"the output": outputs, "the gradient": self.rows(slopes)}

            fault = row_dependence(rows, tried[turn::2])
            if fault is not None:
                raise InputError(
                    f"{self.source}: the module {fault.text}, and no clip bounds what one record moves then; let no "
                    "operation run over the first axis, and remember nothing."
                )

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


def trainable_weights(module: nn.Module) -> Array:
    """The parameters that training changes as one vector, (p,)."""
    return np.concatenate([to_numpy(value).ravel() for _, value in trainable(module)])


def as_model(module: nn.Module, n_features: int, device: str, where: str = "") -> TorchModel:
    """Make the model of a sound float64 module.

    Args:
        module: of torch, in float64.
        n_features: columns of the records.
        device: of torch, which the module is on.
        where: of a user's module, as in `TorchModel`; default "".

    Returns:
        The model, which starts at the module's weights.
    """
    record, kept = tensor(np.zeros((1, n_features)), device), 0

    def count(saved: Tensor) -> Tensor:
        nonlocal kept
        kept += saved.numel()
        return saved

    with default_device(device), torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
        outputs = module(record).shape[1]
    start = trainable_weights(module)
    # One record takes what its forward pass keeps, and two rows.
    return TorchModel(module, n_features, outputs, start, kept + 2 * len(start), device, where)


def _rows_of(oracle: Callable[[Tensor, Tensor], Tensor], records: Tensor, extra: Tensor, width: int) -> Tensor:
    """The rows of all records, (n, width), NaN for a record whose evaluation raises."""
    rows = rows_or_nan(lambda *some: {"rows": oracle(*some)}, records, extra)
    return rows["rows"] if rows else records.new_full((len(records), width), torch.nan)


# Made-up records that a module is tried on.
_TRIED_RECORDS = 6
_MEND = (
    "write it in torch, in float64, as a pure function of a batch: no branches on values, nothing drawn, no .item() or "
    ".numpy()"
)


def custom_model(
    make: Callable[..., Any], name: str, n_features: int, outputs: int, seed: int, device: str
) -> TorchModel:
    """Return the model that a custom function makes.

    Args:
        make: the function.
        name: as the scenario has it.
        n_features: columns of the records, the function's first argument.
        outputs: columns that the module has to give, the function's second.
        seed: the public one, of torch's own generator while the function runs.
        device: of torch.

    Returns:
        The model.

    Raises:
        InputError: the function does not run. Also a module that is random, mixes records, changes as it is used, or
            gives anything but (n, outputs) float64 numbers.
    """
    where = f"problem.model: {name}"
    sizes = {"n_features": n_features, "outputs": outputs}
    with _public_draws(seed):
        made = call(
            lambda **sizes: make(*sizes.values()), sizes, lambda e: f"{where} does not run: {blame(e)}. Fix it there."
        )
    if not isinstance(made, nn.Module):
        raise InputError(f"{where} returned {type(made).__name__}, expected a torch module. Fix it there.")
    try:
        with quiet_torch():
            model = _checked_model(made, where, n_features, outputs, seed)
            return model if device == "cpu" else as_model(module_on(made, device), n_features, device, where)
    except InputError:
        raise
    except USER_ERRORS as error:
        raise InputError(
            f"{where}: the module does not run on one record at a time: {reason(error)}; {_MEND}."
        ) from error


@contextmanager
def _public_draws(seed: int) -> Iterator[None]:
    """torch's own generator set by the public seed, and put back."""
    draws = torch.Generator().manual_seed(int(public_generator(seed, "module").integers(2**63)))
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(draws.get_state())
        yield


def _checked_model(module: nn.Module, where: str, n_features: int, outputs: int, seed: int) -> TorchModel:
    """The model on the processor, tried on synthetic records in [0, 1). Raises InputError, or as the module does."""
    draw = np.random.default_rng(0)
    inputs, cotangents = tensor(draw.random((_TRIED_RECORDS, n_features))), draw.normal(size=(_TRIED_RECORDS, outputs))
    module.double().train()
    with _public_draws(seed):
        # Lazy layers get their parameters.
        module(1.0 - inputs)
    if fault := _fault_of_outputs(module, inputs, outputs):
        raise InputError(f"{where}: {fault}.")
    model = as_model(module, n_features, "cpu", where)
    if fault := _fault_of_gradients(model, inputs, cotangents):
        raise InputError(f"{where}: {fault}.")
    model.check_rows_apart(COUNTS)
    return model


def _fault_of_outputs(module: nn.Module, inputs: Tensor, outputs: int) -> str:
    """Describe weights, a state or outputs (n, e) that no model may have; "" if there is nothing."""
    if not trainable(module):
        return "the module has no trainable parameters; give it some"
    for name, value in trainable(module):
        if value.dtype != torch.float64 or not torch.isfinite(value).all():
            return f"parameter {name!r} starts as {value.dtype}; it must be real and finite"
    before, untouched = {name: value.clone() for name, value in module.state_dict().items()}, inputs.clone()
    together: Any = module(inputs)
    if not torch.equal(inputs, untouched):
        return "the module changes its records in place; leave them as they are"
    for name, value in module.state_dict().items():
        if name not in before or not torch.equal(before[name], value):
            return (
                f"the module changes {name!r} when it is used, which remembers records from batch to batch; take "
                "layers that remember nothing, such as nn.GroupNorm or nn.LayerNorm instead of nn.BatchNorm"
            )
    shape = (len(inputs), outputs)
    if not isinstance(together, Tensor) or together.shape != shape or together.dtype != torch.float64:
        is_tensor = isinstance(together, Tensor)
        got = f"shape {tuple(together.shape)} of {together.dtype}" if is_tensor else type(together).__name__
        return f"the module returned {got} for {len(inputs)} records, expected {shape} of torch.float64"
    return ""


def _fault_of_gradients(model: TorchModel, inputs: Tensor, cotangents: Array) -> str:
    """Describe outputs or gradients that are not of their own record only; "" if all are."""
    # Raises what would otherwise pass for a bad record.
    model.gradients(tensor(model.start), inputs, tensor(cotangents))
    one_by_one, tape = model.forward(model.start, to_numpy(inputs))
    if not np.allclose(one_by_one, to_numpy(model.module(inputs)), rtol=1e-9, atol=1e-12, equal_nan=True):
        return (
            "a record's output depends on the other records of its batch, or on chance, so that no clip bounds what "
            "one record moves; let no operation run over the first axis, draw nothing, and remember nothing"
        )
    gradient = model.clipped_sum(Slope(tape, cotangents), np.zeros((len(inputs), 0)), math.inf)[0]
    with torch.enable_grad():
        total = (model.module(inputs) * tensor(cotangents)).sum()
        slopes = torch.autograd.grad(total, [v for _, v in trainable(model.module)], materialize_grads=True)
    plain = np.concatenate([to_numpy(slope).ravel() for slope in slopes])
    if not plain.any():
        return (
            "on synthetic records no output changes with a trainable parameter. Fix: leave out a last ReLU or Softmax, "
            "which may cut all of them, use the parameters, and detach nothing"
        )
    if not np.allclose(gradient, plain, rtol=1e-9, atol=1e-12, equal_nan=True):
        return (
            "gradients under torch.func are others than by torch's own backward pass, for example by a hook on a "
            f"gradient; {_MEND}"
        )
    return ""
