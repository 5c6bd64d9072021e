"""Torch modules as models: per-example gradients by torch.func, in groups of bounded memory.

The gradient of a record is grad ⟨module(record), c⟩ of a batch with this record only, and vmap computes it for many
records. So no record affects the row of another record, even if a module mixes its batch. The rows of a group are
formed for each parameter, their norms are taken over all parameters, and a product sums them. A change is the
difference of rows.

Parameters without gradient, and buffers, are constants of the model. A module must keep no other state.

A custom module is tested first, and refused if a record's gradient depends on other records:

    [problem]
    model = "net:build"

    def build(n_features, outputs):
        return torch.nn.Sequential(torch.nn.Linear(n_features, 32), torch.nn.GELU(), torch.nn.Linear(32, outputs))

The module maps a batch (n, n_features) to (n, outputs), and is converted to float64. An image is one row, channels
first. The trainable parameters are x. They start with the values that the function sets, drawn with the public seed if
torch's generator draws them. The module stays in training mode, for gradients and for scores.

Tests on synthetic records in [−1, 1], the declared range after scaling, check that the module's state does not change,
and that outputs and gradients of torch.func equal the batch's. This excludes batch normalisation, dropout, recurrent
layers and hooks on gradients. Forward hooks and parametrizations are allowed. The tests do not detect a module that
reads the clock, or that keeps records in a buffer.
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
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError, converting
from decentral_dp.models.autodiff import quiet_torch, rows_or_nan
from decentral_dp.models.devices import default_device, module_on, shared, tensor, to_numpy
from decentral_dp.models.protocol import Slope
from decentral_dp.models.row_locality import COUNTS, row_dependence, trials
from decentral_dp.privacy.clipping import clip_factors, row_norms
from decentral_dp.user_code import USER_ERRORS, convert_failures, reason

# Float64 numbers of one group of rows: 32 MiB on a processor, 1 GiB on a device that is slow to start.
_CELLS = {"cpu": 1 << 22, "cuda": 1 << 27}

Parameters = dict[str, Tensor]


# x (p,) and the inputs (n, d) of a forward pass.
ModuleTape = tuple[Tensor, Tensor]

# Indices (m,) and outputs (m, e) of records → cotangents (m, e).
GroupCotangents = Callable[[NDArray[Any], Array], Array]


class _Cotangents(torch.autograd.Function):
    """Cotangents, computed for all records of a vmap together."""

    @staticmethod
    def setup_context(*_: Any) -> None:
        """Keep nothing, since cotangents are constants."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, outputs: Tensor, indices: Tensor, cotangents: Callable[[Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, int]:
        """Return the cotangents of all records, and their batch dimension."""
        # An output may be common to all records.
        rows = outputs.expand(len(indices), -1) if in_dims[0] is None else outputs.movedim(in_dims[0], 0)
        return cotangents(indices, rows), 0


@dataclass(frozen=True, eq=False)
class TorchModel:
    """Float64 torch module that maps records (n, d) to outputs (n, e) on its device.

    Args:
        module: torch module, whose trainable parameters form x, in order.
        n_features: number d of features.
        outputs: number e of outputs.
        start: start weights, (p,).
        row: number of float64 numbers that the computation of a per-example gradient needs.
        device: device of the module.
        source: file and function of a custom module, or "" for other modules.
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
        # The tape has the records only.
        return self.n_features + 2 * self.outputs

    @cached_property
    def group(self) -> int:
        """Number of records whose rows are formed together."""
        return max(1, _CELLS[self.device] // self.row)

    def forward(self, x: Array, inputs: Array, keep: bool = True) -> tuple[Array, ModuleTape | None]:
        with quiet_torch(self.device):
            tape = tensor(x, self.device), tensor(inputs, self.device)
            parameters = dict(self._parameter_views(tape[0]))

            def rows(records: Tensor) -> dict[str, Tensor]:
                return {"outputs": vmap(lambda record: self._evaluate(parameters, record))(records)}

            parts = [
                rows_or_nan(rows, records).get("outputs", records.new_full((len(records), self.outputs), torch.nan))
                for records in torch.split(tape[1], self.group)
                if len(records)
            ]
            out = torch.cat(parts) if parts else tape[0].new_zeros((0, self.outputs))
            return to_numpy(out), tape if keep else None

    @cached_property
    def _places(self) -> dict[str, str]:
        """Map of every name of a trainable parameter to the first of its names.

        torch ties shared weights, but a module that occurs twice keeps the weights of the call.
        """
        names = {id(value): name for name, value in trainable(self.module)}
        return {
            f"{path}.{key}" if path else key: names[id(value)]
            for path, part in self.module.named_modules()
            for key, value in part.named_parameters(recurse=False, remove_duplicate=False)
            if id(value) in names
        }

    def _evaluate(self, parameters: Parameters, record: Tensor) -> Tensor:
        """Return φ (e,) of one record (d,) with these trainable parameters, in a batch of one."""
        everywhere = {place: parameters[name] for place, name in self._places.items()}
        # For other kernels of attention, vmap loops over the records.
        with sdpa_kernel(SDPBackend.MATH):
            out: Tensor = functional_call(self.module, everywhere, (record[None],), tie_weights=False)[0]
        return out

    def named_weights(self, x: Array) -> dict[str, Array]:
        """Return the parameters of the module by name, in their shapes."""
        return {name: to_numpy(part).copy() for name, part in self._parameter_views(tensor(x, self.device))}

    def rows(self, slope: Slope) -> Array:
        """Return ∇_x ⟨φ_k, c_k⟩ of every record, (n, p)."""
        n = len(slope.cotangents)
        with quiet_torch(self.device):
            groups = (slice(k, k + self.group) for k in range(0, n, self.group))
            parts = [to_numpy(torch.cat(self._rows(slope.tape, _fixed(slope), part), dim=1)) for part in groups]
        return np.concatenate(parts) if parts else np.zeros((0, self.p))

    def clipped_sum(self, slope: Slope, extra: Array, bound: float, since: Slope | None = None) -> tuple[Array, Array]:
        return self._clipped_sum(slope.tape, _fixed(slope), extra, bound, since)

    def clipped_loss_sum(self, x: Array, inputs: Array, cotangents: GroupCotangents, bound: float) -> Array:
        """Return Σ_k s_k ∇_x ⟨φ_k, c_k⟩ (p,) as in `clipped_sum`, with one forward pass.

        Args:
            x: (p,).
            inputs: records (n, d).
            cotangents: function that returns c, in which each row depends only on its own record.
            bound: clipping norm.
        """
        tape = tensor(x, self.device), tensor(inputs, self.device)
        return self._clipped_sum(tape, cotangents, np.zeros((len(inputs), 0)), bound)[0]

    def _clipped_sum(
        self, tape: ModuleTape, cotangents: GroupCotangents, extra: Array, bound: float, since: Slope | None = None
    ) -> tuple[Array, Array]:
        factors = np.zeros(len(extra))
        with quiet_torch(self.device):
            total = shared(np.zeros(self.p), self.device)
            for start in range(0, len(extra), self.group):
                part = slice(start, start + self.group)
                # Rows of each parameter. Their concatenation would take as long as they.
                parts = self._rows(tape, cotangents, part)
                if since is not None:
                    earlier = self._rows(since.tape, _fixed(since), part)
                    parts = [row - old for row, old in zip(parts, earlier, strict=True)]
                lengths = torch.stack([torch.linalg.vector_norm(rows, dim=1) for rows in parts])
                norms = np.hypot(to_numpy(torch.linalg.vector_norm(lengths, dim=0)), row_norms(extra[part], "l2"))
                factors[part] = clip_factors(norms, bound)
                if not (finite := np.isfinite(norms)).all():
                    # Zero times infinity is NaN: remove infinite rows before the product.
                    mask = shared(finite[:, None], self.device)
                    parts = [torch.where(mask, rows, 0.0) for rows in parts]
                total += torch.cat([tensor(factors[part], self.device) @ rows for rows in parts])
            return to_numpy(total), factors

    def _rows(self, tape: ModuleTape, cotangents: GroupCotangents, part: slice) -> list[Tensor]:
        """Return ∇_x ⟨φ_k, c_k⟩ of some records, (m, p_j) for each parameter, or NaN for a record that raises."""
        x, inputs = tape
        rows = rows_or_nan(partial(self.gradients, x, cotangents), inputs[part], torch.arange(len(inputs))[part])
        sizes = [value.numel() for _, value in trainable(self.module)]
        return list(rows.values()) or list(
            torch.split(inputs.new_full((len(inputs[part]), self.p), torch.nan), sizes, dim=1)
        )

    def gradients(self, x: Tensor, cotangents: GroupCotangents, records: Tensor, indices: Tensor) -> Parameters:
        """Return ∇_x ⟨φ_k, c_k⟩ (n, p_j) of every record, by name. Exceptions of the module are raised.

        One forward pass computes the outputs and, for their cotangents, the gradients.
        """
        parameters = dict(self._parameter_views(x))

        def group_cotangents(indices: Tensor, outputs: Tensor) -> Tensor:
            return tensor(cotangents(to_numpy(indices), to_numpy(outputs)), str(outputs.device))

        def row(record: Tensor, index: Tensor) -> Parameters:
            output, pull_back = vjp(lambda p: self._evaluate(p, record), parameters)[:2]
            cotangent = _Cotangents.apply(output, index, group_cotangents)  # type: ignore[no-untyped-call]
            gradient: Parameters = pull_back(cotangent)[0]
            return gradient

        by_name = vmap(row)(records, indices)
        return {name: rows.reshape(len(rows), -1) for name, rows in by_name.items()}

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Test on synthetic batches that outputs and gradients depend only on their own record.

        vmap rules of a custom autograd function, and Python state of a module, may mix records.

        Args:
            counts: batch sizes.

        Raises:
            InputError: a row depends on another record, or two calls differ.
        """
        if not self.source or self.device != "cpu":
            # Other devices may sum in another order each time.
            return
        batches = tuple(trials({min(n, self.group) for n in counts}, self.n_features, 0))
        draw = np.random.default_rng(1)
        for turn, x in enumerate((self.start, self.start + 0.1 * draw.normal(size=self.p))):

            def rows(inputs: Array, labels: Array, x: Array = x) -> dict[str, Array]:
                outputs, tape = self.forward(x, inputs)
                slopes = Slope(tape, np.cos(np.arange(self.outputs)) + labels[:, None])
                return {"the output": outputs, "the gradient": self.rows(slopes)}

            fault = row_dependence(rows, batches[turn::2])
            if fault is not None:
                raise InputError(
                    f"{self.source}: the module {fault.text}, so clipping does not bound the influence of a "
                    "record. Fix: use no operation over the first axis, and keep no state."
                )

    def _parameter_views(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield views of the trainable parameters by name."""
        offset = 0
        for name, parameter in trainable(self.module):
            yield name, flat[offset : offset + parameter.numel()].view(parameter.shape)
            offset += parameter.numel()


def _fixed(slope: Slope) -> GroupCotangents:
    """Return the function of the cotangents of a slope."""
    return lambda indices, _: slope.cotangents[indices]


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return name and value of every trainable parameter, in order."""
    return [(name, value) for name, value in module.named_parameters() if value.requires_grad]


def as_model(module: nn.Module, n_features: int, device: str, location: str = "") -> TorchModel:
    """Build the model of a valid float64 module.

    Args:
        module: float64 module.
        n_features: number of features.
        device: device of the module.
        location: source of a custom module, as in `TorchModel`.

    Returns:
        The model, which starts at the weights of the module.
    """
    record, saved_numbers = tensor(np.zeros((1, n_features)), device), 0

    def count(saved_tensor: Tensor) -> Tensor:
        nonlocal saved_numbers
        saved_numbers += saved_tensor.numel()
        return saved_tensor

    with default_device(device), torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
        outputs = module(record).shape[1]
    start = np.concatenate([to_numpy(value).ravel() for _, value in trainable(module)])
    # Tensors saved by the forward pass, and two rows.
    return TorchModel(module, n_features, outputs, start, saved_numbers + 2 * len(start), device, location)


# Number of synthetic records in tests of a module, and scales of random weights in the test of its outputs.
_TRIED_RECORDS, _TRIED_WEIGHTS = 6, (1.0, 10.0)
# Type of a layer, its rate of random zeros if it has one, and the advice if a module with this layer fails a test.
_LAYERS = (
    (nn.modules.dropout._DropoutNd, "p", "draws random numbers. Fix: set its rate to 0, or leave it out"),
    (nn.MultiheadAttention, "dropout", "draws random numbers. Fix: set dropout to 0"),
    (nn.modules.batchnorm._BatchNorm, "", "mixes the records of a batch. Fix: use nn.GroupNorm or nn.LayerNorm"),
    (
        (nn.RNNBase, nn.RNNCellBase),
        "",
        "has no per-example gradients in torch.func. Fix: write its cell as a loop of nn.Linear over the steps",
    ),
)
_FIX_OF_IDS = (
    "undo the scaling of features to [−1, 1], as ((a + 1) / 2 * (K − 1)).round().long().clamp(0, K − 1) for ids below K"
)
_FIX = (
    "write it in torch, in float64, as a pure function of a batch: no branches on values, nothing drawn, no .item() or "
    ".numpy()"
)


def custom_model(
    make: Callable[..., Any], name: str, n_features: int, outputs: int, seed: int, device: str
) -> TorchModel:
    """Build the model of a custom function.

    Args:
        make: function that maps (n_features, outputs) to a torch module.
        name: name in the scenario.
        n_features: number of features.
        outputs: number of outputs.
        seed: public seed of torch's generator while the function runs.
        device: device of torch.

    Returns:
        The model.

    Raises:
        InputError: the function fails, or its module is random, mixes records, has state, or does not return (n,
            outputs) float64 numbers.
    """
    location = f"problem.model: {name}"
    with _public_draws(seed), convert_failures(location):
        module = make(n_features, outputs)
    if not isinstance(module, nn.Module):
        raise InputError(
            f"{location} returned {type(module).__name__}, expected a torch module. Fix: return a torch.nn.Module."
        )
    with quiet_torch(), converting(USER_ERRORS, lambda error: _error_of_run(module, location, error)):
        # Tests on synthetic records, with the ends of the range.
        draw = np.random.default_rng(0)
        records = draw.uniform(-1.0, 1.0, (_TRIED_RECORDS, n_features))
        records[:2] = [[-1.0], [1.0]]
        inputs, cotangents = tensor(records), draw.normal(size=(_TRIED_RECORDS, outputs))
        module.double().train()
        with _public_draws(seed):
            # Lazy layers get their parameters.
            module(torch.full_like(inputs, 0.5))
        fault = _fault_of_outputs(module, inputs, outputs)
        if not fault:
            model = as_model(module, n_features, "cpu", location)
            fault = _fault_of_gradients(model, inputs, cotangents)
        if fault:
            raise InputError(f"{location}: {_layer_advice(module) or fault}.")
        model.check_rows_apart(COUNTS)
        return model if device == "cpu" else as_model(module_on(module, device), n_features, device, location)


def _error_of_run(module: nn.Module, location: str, error: BaseException) -> str:
    """Return the sentence for a module that raises on synthetic records."""
    if advice := _layer_advice(module):
        return f"{location}: {advice}."
    has_ids = any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in module.modules())
    fix = _FIX_OF_IDS if has_ids and ("index" in str(error) or "indices" in str(error)) else _FIX
    return f"{location}: the module does not run on one record at a time: {reason(error)}. Fix: {fix}."


def _layer_advice(module: nn.Module) -> str:
    """Return the advice on the first unsupported layer, without a full stop, or "" if there is none."""
    for layer in module.modules():
        for kinds, rate, advice in _LAYERS:
            if isinstance(layer, kinds) and (not rate or getattr(layer, rate) > 0.0):
                return f"nn.{type(layer).__name__} {advice}"
    return ""


def refuse_probabilities(model: TorchModel) -> None:
    """Raise InputError if outputs are in [0, 1] for random weights, as after a softmax or a sigmoid."""
    draw = np.random.default_rng(0)
    records = draw.uniform(-1.0, 1.0, (_TRIED_RECORDS, model.n_features))
    weights = [model.start + scale * draw.normal(size=model.p) for scale in _TRIED_WEIGHTS]
    outputs = np.array([model.forward(x, records, keep=False)[0] for x in weights])
    # A last ReLU may be 0 for all records.
    if outputs.any() and ((outputs >= 0.0) & (outputs <= 1.0)).all():
        raise InputError(
            f"{model.source}: the outputs are probabilities in [0, 1], expected logits. Fix: leave out the last "
            "Softmax or Sigmoid."
        )


@contextmanager
def _public_draws(seed: int) -> Iterator[None]:
    """Seed torch's generator with the public seed in this context."""
    draws = torch.Generator().manual_seed(int(public_generator(seed, "module").integers(2**63)))
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(draws.get_state())
        yield


def _fault_of_outputs(module: nn.Module, inputs: Tensor, outputs: int) -> str:
    """Describe invalid weights, state or outputs (n, e), or "" if there are none."""
    if not trainable(module):
        return "the module has no trainable parameters. Fix: add some"
    for name, value in trainable(module):
        if value.dtype != torch.float64 or not torch.isfinite(value).all():
            return f"initial values of parameter {name!r} are not finite float64 (got {value.dtype})"
    state, original = {name: value.clone() for name, value in module.state_dict().items()}, inputs.clone()
    output: Any = module(inputs)
    if not torch.equal(inputs, original):
        return "the module changes its input in place. Fix: copy the input"
    for name, value in module.state_dict().items():
        if name not in state or not torch.equal(state[name], value):
            return (
                f"the module changes {name!r} when it is used, which stores records between batches. Fix: use "
                "layers without state, such as nn.GroupNorm or nn.LayerNorm"
            )
    shape = (len(inputs), outputs)
    if not isinstance(output, Tensor) or output.shape != shape or output.dtype != torch.float64:
        is_tensor = isinstance(output, Tensor)
        got = f"shape {tuple(output.shape)} of {output.dtype}" if is_tensor else type(output).__name__
        return f"the module returned {got} for {len(inputs)} records, expected {shape} of torch.float64"
    return ""


def _fault_of_gradients(model: TorchModel, inputs: Tensor, cotangents: Array) -> str:
    """Describe outputs or gradients that depend on other records, or "" if there are none."""
    one_by_one, tape = model.forward(model.start, to_numpy(inputs))
    slope = Slope(tape, cotangents)
    # An exception would otherwise pass for an invalid record.
    model.gradients(tensor(model.start), _fixed(slope), inputs, torch.arange(len(inputs)))
    if not np.allclose(one_by_one, to_numpy(model.module(inputs)), rtol=1e-9, atol=1e-12, equal_nan=True):
        return (
            "the output of a record depends on the other records of its batch, or on random draws, so "
            "clipping does not bound the influence of a record. Fix: use no operation over the first axis, "
            "no random draws and no state"
        )
    gradient = model.clipped_sum(slope, np.zeros((len(inputs), 0)), math.inf)[0]
    with torch.enable_grad():
        total = (model.module(inputs) * tensor(cotangents)).sum()
        slopes = torch.autograd.grad(total, [v for _, v in trainable(model.module)], materialize_grads=True)
    plain = np.concatenate([to_numpy(slope).ravel() for slope in slopes])
    if not plain.any():
        return (
            "on synthetic records no output depends on a trainable parameter. Fix: remove a final ReLU or "
            "Softmax, and any detach"
        )
    if not np.allclose(gradient, plain, rtol=1e-9, atol=1e-12, equal_nan=True):
        return (
            "gradients of torch.func differ from those of torch's backward pass, for example because of a hook on a "
            f"gradient. Fix: {_FIX}"
        )
    return ""
