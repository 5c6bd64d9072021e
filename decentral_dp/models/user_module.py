"""Custom torch modules, refused where a record's gradient is not its own.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError
from decentral_dp.models.autodiff import quiet_torch
from decentral_dp.models.devices import tensor, to_numpy
from decentral_dp.models.module import TorchModel, as_model, trainable
from decentral_dp.models.protocol import Slope
from decentral_dp.models.row_locality import COUNTS
from decentral_dp.user_code import USER_ERRORS, blame, call, reason

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
            return model if device == "cpu" else as_model(made.to(device), n_features, device, where)
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
    if not trainable(module):
        raise InputError(f"{where}: the module has no trainable parameters; give it some.")
    for name, value in trainable(module):
        if value.dtype != torch.float64 or not torch.isfinite(value).all():
            raise InputError(f"{where}: parameter {name!r} starts as {value.dtype}; it must be real and finite.")
    before, untouched = {name: value.clone() for name, value in module.state_dict().items()}, inputs.clone()
    together: Any = module(inputs)
    if not torch.equal(inputs, untouched):
        raise InputError(f"{where}: the module changes its records in place; leave them as they are.")
    for name, value in module.state_dict().items():
        if name not in before or not torch.equal(before[name], value):
            raise InputError(
                f"{where}: the module changes {name!r} when it is used, which remembers records from batch to batch; "
                "take layers that remember nothing, such as nn.GroupNorm or nn.LayerNorm instead of nn.BatchNorm."
            )
    wanted = (_TRIED_RECORDS, outputs)
    if not isinstance(together, Tensor) or together.shape != wanted or together.dtype != torch.float64:
        got = type(together).__name__
        if isinstance(together, Tensor):
            got = f"shape {tuple(together.shape)} of {together.dtype}"
        raise InputError(
            f"{where}: the module returned {got} for {_TRIED_RECORDS} records, expected {wanted} of torch.float64."
        )
    model = as_model(module, n_features, "cpu", where)
    # Raises what would otherwise pass for a bad record.
    model.gradients(tensor(model.start), inputs, tensor(cotangents))
    one_by_one, tape = model.forward(model.start, to_numpy(inputs))
    if not np.allclose(one_by_one, to_numpy(together), rtol=1e-9, atol=1e-12, equal_nan=True):
        raise InputError(
            f"{where}: a record's output depends on the other records of its batch, or on chance, so that no clip "
            "bounds what one record moves; let no operation run over the first axis, draw nothing, and remember "
            "nothing."
        )
    gradient = model.clipped_sum(Slope(tape, cotangents), np.zeros((_TRIED_RECORDS, 0)), math.inf)[0]
    with torch.enable_grad():
        total = (module(inputs) * tensor(cotangents)).sum()
        slopes = torch.autograd.grad(total, [v for _, v in trainable(module)], materialize_grads=True)
    plain = np.concatenate([to_numpy(slope).ravel() for slope in slopes])
    if not plain.any():
        raise InputError(
            f"{where}: on synthetic records no output changes with a trainable parameter. Fix: leave out a last ReLU "
            "or Softmax, which may cut all of them, use the parameters, and detach nothing."
        )
    if not np.allclose(gradient, plain, rtol=1e-9, atol=1e-12, equal_nan=True):
        raise InputError(
            f"{where}: gradients under torch.func are others than by torch's own backward pass, for example by a hook "
            f"on a gradient; {_MEND}."
        )
    model.check_rows_apart(COUNTS)
    return model
