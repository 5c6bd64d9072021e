"""Torch modules from a Python file of the user's own, refused where a record's gradient is not its own.

    [problem]
    model = { kind = "torch", file = "net.py", name = "build" }

    def build(n_features, outputs):            # "build" if no name is given
        return torch.nn.Sequential(torch.nn.Linear(n_features, 32), torch.nn.GELU(), torch.nn.Linear(32, outputs))

The module maps a batch (n, n_features) to (n, outputs). It is made float64, whatever it was made in; an image comes as
one row, channels first. Its trainable parameters are x, and start as the file makes them, from the public seed where
they are drawn by torch's own generator. It stays in training mode, for private gradients and for scores alike.

Forward hooks, forward pre-hooks and parametrizations are part of the module. Hooks on gradients are refused: a record's
gradient is taken by `torch.func`, which would leave them out.

What Python alone can hide (a module that reads the clock, or that holds records in a buffer) is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError
from decentral_dp.models.autodiff import quiet_torch
from decentral_dp.models.devices import default_device, module_on, tensor
from decentral_dp.models.mlp import Mlp
from decentral_dp.models.module import TorchModel, as_model, forward_one, trainable
from decentral_dp.models.row_locality import COUNTS
from decentral_dp.user_code import USER_ERRORS, reason, run_file

# Made-up records that a module is tried on.
_TRIED_RECORDS = 6
_MEND = "write it in torch, in float64, as a pure function of a batch: no branches on values, no .item() or .numpy()"


def load_module(path: Path, name: str, n_features: int, outputs: int, seed: int, device: str) -> Mlp | TorchModel:
    """Load the model that a function of a file makes.

    Args:
        path: of the Python file.
        name: of the function in it.
        n_features: columns of the records, the function's first argument.
        outputs: columns that the module has to give, the function's second.
        seed: the public one, of torch's own generator while the function runs.
        device: of torch.

    Returns:
        The model, by ghost norms where they are exact.

    Raises:
        InputError: with one sentence, a file that does not run or lacks the function. Also a module that is random,
            mixes records, changes as it is used, or gives anything but (n, outputs) float64 numbers.
    """
    file = run_file(path)
    make = getattr(file, name, None)
    if not callable(make):
        raise InputError(
            f"{path}: it defines no function {name}; write {name}(n_features, outputs), which returns a torch module, "
            "or say in problem.model.name what it is called."
        )
    with _public_draws(seed):
        try:
            made = make(n_features, outputs)
        except InputError:
            raise
        except USER_ERRORS as error:
            raise InputError(
                f"{path}: {name}({n_features}, {outputs}), of so many features and outputs, does not run: "
                f"{reason(error)}; mend the function."
            ) from error
    if not isinstance(made, nn.Module):
        raise InputError(f"{path}: {name} returned {type(made).__name__}, not a torch module; return an nn.Module.")
    with quiet_torch():
        checked = _checked_module(made, f"{path}: {name}", n_features, outputs, seed, device)
        return _checked_model(checked, f"{path}: {name}", n_features, outputs, device)


def _checked_model(module: nn.Module, where: str, n_features: int, outputs: int, device: str) -> Mlp | TorchModel:
    """The model, its rows tried on the processor, where they have the same bits every time. Raises InputError."""
    on_processor = as_model(module_on(module, "cpu"), n_features, outputs, "cpu", where)
    if isinstance(on_processor, TorchModel):
        on_processor.check_rows_apart(COUNTS)
    return on_processor if device == "cpu" else as_model(module_on(module, device), n_features, outputs, device, where)


@contextmanager
def _public_draws(seed: int) -> Iterator[None]:
    """torch's own generator set by the public seed, and put back."""
    draws = torch.Generator().manual_seed(int(public_generator(seed, "module").integers(2**63)))
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(draws.get_state())
        yield


def _checked_module(module: nn.Module, where: str, n_features: int, outputs: int, seed: int, device: str) -> nn.Module:
    _check_global_hooks(where)
    for name, layer in module.named_modules():
        _check_layer(f"{where}: layer {name!r}" if name else where, layer)
    _check_parameter_hooks(module, where)
    draw = np.random.default_rng(0)
    # In [0, 1), where logarithms, roots and indices of embeddings are what they should be.
    made_up = [draw.random((_TRIED_RECORDS, n_features)) for _ in range(2)]
    try:
        module = module.double().train()
        with _public_draws(seed):
            # Lazy layers get their parameters: here, whatever the device, whose draws would be others.
            module(tensor(made_up[0]))
        module, inputs, others = module_on(module, device), *(tensor(a, device) for a in made_up)
        with default_device(device):
            _check_outputs(module, where, inputs, others, outputs)
            _check_parameters(module, where)
            _check_records_apart(module, where, inputs, others)
            _check_gradients(module, where, inputs)
    except InputError:
        raise
    except USER_ERRORS as error:
        why = _known_cause(module, error) or f"{reason(error)}; {_MEND}."
        raise InputError(f"{where}: the module does not run on one record at a time: {why}") from error
    return module


def _known_cause(module: nn.Module, error: BaseException) -> str:
    """The cause of what torch says of other things, and its fix; "" where it is none that is known."""
    kinds = {type(layer) for layer in module.modules()}
    if isinstance(error, IndexError) and kinds & {nn.Embedding, nn.EmbeddingBag}:
        return (
            "an index of an embedding is out of range, for records outside the declared ranges are tried as well. "
            "Fix: cut indices, as in index.clamp(0, num_embeddings - 1)."
        )
    if nn.GroupNorm in kinds and "more than 1 value per channel" in str(error):
        return (
            "GroupNorm with as many groups as channels normalises single numbers of a flat batch, to 0. Fix: take "
            "fewer groups, or nn.LayerNorm."
        )
    return ""


def _check_global_hooks(where: str) -> None:
    """Refuse hooks on all modules of the process: they are no part of the module, and of no other process."""
    for kind in ("forward", "forward_pre", "backward", "backward_pre"):
        if getattr(nn.modules.module, f"_global_{kind}_hooks"):
            raise InputError(
                f"{where}: torch has a {kind} hook on all modules, and a record's gradient has to be the module's own; "
                "remove it, and write what it does into the module."
            )


def _check_parameter_hooks(module: nn.Module, where: str) -> None:
    """Refuse hooks of parameters: a record's gradient is taken by values in the place of the parameters."""
    for name, value in module.named_parameters():
        if value._backward_hooks or getattr(value, "_post_accumulate_grad_hooks", None):
            raise InputError(
                f"{where}: parameter {name!r} has a hook on its gradient, which a record's gradient would not meet; "
                "remove it, and write what it does into the module."
            )


def _check_layer(where: str, layer: nn.Module) -> None:
    kind = type(layer).__name__
    if layer._backward_hooks or layer._backward_pre_hooks:
        raise InputError(
            f"{where} is {kind} with a backward hook, which a record's gradient would not meet; remove it, and write "
            "what it does into the module (forward hooks and parametrizations are taken)."
        )
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        raise InputError(
            f"{where} is {kind}, which normalises a record by the others of its batch, so that no clip bounds what one "
            "record moves; take nn.GroupNorm or nn.LayerNorm."
        )
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        raise InputError(
            f"{where} is {kind} with track_running_stats, which remembers records from batch to batch; "
            "take track_running_stats=False, or nn.GroupNorm."
        )
    if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
        raise InputError(
            f"{where} is {kind}, and torch.func has no gradients of single records for it. Fix: write the recurrence "
            "with nn.Linear layers and a loop over the columns."
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        raise InputError(
            f"{where} is {kind} with max_norm, which changes its weights whenever it is used. Fix: leave max_norm out."
        )
    if isinstance(layer, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise InputError(
            f"{where} is {kind}, which takes no gradients of single records. Fix: return the module that is in it."
        )
    drops = isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0.0
    if drops or isinstance(layer, nn.RReLU | nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
        raise InputError(
            f"{where} is {kind}, which is random, and a record's gradient has to be a function of the record; "
            "leave it out."
        )


def _check_outputs(module: nn.Module, where: str, inputs: Tensor, others: Tensor, outputs: int) -> None:
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    untouched = inputs.clone()
    out: Any = module(inputs)
    module(others)
    if not isinstance(out, Tensor):
        raise InputError(f"{where}: the module returned {type(out).__name__}, not a tensor; return (n, {outputs}).")
    if out.shape != (len(inputs), outputs):
        raise InputError(
            f"{where}: the module returned shape {tuple(out.shape)} for {len(inputs)} records; "
            f"return {outputs} numbers for each, ({len(inputs)}, {outputs})."
        )
    if out.dtype != torch.float64:
        raise InputError(
            f"{where}: the module returned {out.dtype}, but clipping and sums need torch.float64; cast nothing down."
        )
    if not torch.equal(inputs, untouched):
        raise InputError(f"{where}: the module changes its records in place; leave them as they are.")
    for name, buffer in module.named_buffers():
        if not torch.equal(before.get(name, buffer.new_empty(0)), buffer):
            raise InputError(
                f"{where}: the module changes its buffer {name!r} when it is used, which remembers records from batch "
                "to batch; take layers that remember nothing, such as nn.GroupNorm."
            )


def _check_parameters(module: nn.Module, where: str) -> None:
    if not trainable(module):
        raise InputError(f"{where}: the module has no trainable parameters; give it some.")
    for name, value in trainable(module):
        if value.dtype != torch.float64:
            raise InputError(f"{where}: parameter {name!r} is {value.dtype}; it must be real.")
        if not torch.isfinite(value).all():
            raise InputError(f"{where}: parameter {name!r} starts as no finite number; draw or set it.")


def _check_records_apart(module: nn.Module, where: str, inputs: Tensor, others: Tensor) -> None:
    """The same records alone, twice, and beside others."""
    out = module(inputs)
    if not _is_close(out, module(inputs)):
        raise InputError(
            f"{where}: the module gives different outputs for the same records, and a record's gradient has to be a "
            "function of the record; draw nothing at random, and remember nothing."
        )
    single = torch.cat([module(record[None]) for record in inputs])
    batched = torch.cat([module(torch.cat([inputs[:k], 3.0 * others[k:]]))[:k] for k in range(1, len(inputs))])
    again = torch.cat([out[:k] for k in range(1, len(inputs))])
    if not _is_close(out, single) or not _is_close(again, batched):
        raise InputError(
            f"{where}: a record's output depends on the other records of its batch, so that no clip bounds what one "
            "record moves; let no operation run over the first axis."
        )


def _check_gradients(module: nn.Module, where: str, inputs: Tensor) -> None:
    """Once in the form in which gradients are taken, where a failure would pass for a bad record."""
    parameters = {name: value.detach() for name, value in trainable(module)}
    untouched = inputs.clone()

    together = vmap(lambda record: forward_one(module, parameters, record))(inputs)
    # Outputs that add up to 1, as a Softmax gives them, depend on parameters although their sum does not.
    weights = torch.cos(torch.arange(float(together.shape[1]), dtype=together.dtype, device=together.device))
    rows = vmap(grad(lambda p, record: forward_one(module, p, record) @ weights), in_dims=(None, 0))(parameters, inputs)
    if not torch.equal(inputs, untouched):
        raise InputError(f"{where}: the module changes its records in place; leave them as they are.")
    if not _is_close(together, module(inputs)):
        raise InputError(f"{where}: the module's outputs under torch.func.vmap are others than without; {_MEND}.")
    if not any(bool(row.any()) for row in rows.values()):
        raise InputError(
            f"{where}: on synthetic records no output changes with a trainable parameter. Fix: leave out a last ReLU "
            "or Softmax, which may cut all of them, use the parameters, and detach nothing."
        )
    for k, record in enumerate(inputs):
        with torch.enable_grad():
            values = dict(trainable(module))
            plain = torch.autograd.grad(module(record[None])[0] @ weights, list(values.values()), allow_unused=True)
        for (name, value), slope in zip(values.items(), plain, strict=True):
            if not _is_close(rows[name][k], torch.zeros_like(value) if slope is None else slope):
                raise InputError(
                    f"{where}: a record's gradient by {name!r} under torch.func is another than by torch's own "
                    f"backward pass; {_MEND}."
                )


def _is_close(a: Tensor, b: Tensor) -> bool:
    """Up to rounding; one that is not a number is like another."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True)
