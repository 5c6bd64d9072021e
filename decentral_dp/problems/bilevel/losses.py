"""Any bilevel problem from two per-record torch functions; every oracle follows by `torch.func`.

    upper_loss(x, y, features, label) → h      one number per record; validation records
    lower_loss(x, y, features, label) → l      one number per record; train records
    regulariser(x, y) → R                      data-independent: exact, never clipped, never charged
    predict(y, features)                       class scores (classes,), a label (integer), or a score (float)

x: (p,), y: (q,), features: (n_features,), float64; label: float64, or with `classes` an integer index.

Per record, vectorised over the records by `vmap`: ∇_y l, ∇²_yy l·z and ∇²_xy l·z are one forward-mode derivative of
∇_{x,y} l along (0, z) (forward over reverse; reverse over reverse where an operation has no forward mode).

A loss sees one record at a time and has to be pure. `vmap` enforces it: branching on a value, leaving torch
(`.item()`, `.numpy()`), random draws, in-place changes of arguments and running statistics (BatchNorm) are refused when
the problem is built. What Python alone can hide (a loss that counts its own calls, or reads the clock) is not seen.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.bounded import Array, LipschitzConstants
from decentral_dp.errors import InputError, needing, quoted
from decentral_dp.files.source_lines import defined, place_of
from decentral_dp.models.autodiff import Loss, Penalty, Predict, trace
from decentral_dp.models.devices import check_device
from decentral_dp.models.row_locality import COUNTS
from decentral_dp.problems.bilevel.loss_problem import LossProblem
from decentral_dp.problems.protocol import TERMS
from decentral_dp.user_code import NEAR, USER_ERRORS, blamed, run_file

# Why a term reads records.
READS = {
    "lower_grad_y": "lower_loss uses y",
    "lower_hvp": "the y-gradient of lower_loss uses y",
    "lower_jvp": "the y-gradient of lower_loss uses x",
    "upper_grad_y": "upper_loss uses y",
    "upper_grad_x": "upper_loss uses x",
}


def from_losses(
    upper_loss: Loss,
    lower_loss: Loss,
    *,
    p: int,
    q: int,
    n_features: int,
    classes: int | None = None,
    regulariser: Penalty | None = None,
    predict: Predict | None = None,
    free: Iterable[str] = (),
    constants: LipschitzConstants | None = None,
    start: Mapping[str, Array] | None = None,
    name: str = "from_losses",
    device: str = "cpu",
) -> LossProblem:
    """Make a bilevel problem from an upper and a lower per-record loss.

    Every term that the losses can make data-dependent is charged. A term whose derivative is absent from the graph of
    the loss is found by tracing and is free: `upper_grad_x` if h does not use x, `lower_jvp` if ∇_y l does not use x,
    `lower_hvp` if ∇_y l does not use y. The trace holds for all values, since a loss that branches on one is refused.
    Where x enters only through `detach`, its derivative is zero in torch and the term counts as free. Put penalties
    without data into `regulariser`: inside a loss they are clipped and charged with the records.

    Args:
        upper_loss: h, (x, y, features, label) → one number.
        lower_loss: l, likewise.
        p: dimension of x.
        q: dimension of y.
        n_features: columns of the records.
        classes: number of classes, declared and not read off the data; labels are then integers 0 … classes − 1.
            Default none: labels are numbers.
        regulariser: R, (x, y) → one number; default none.
        predict: (y, features) → class scores, a label or a score; default none.
        free: terms that the caller expects to touch no data; it claims nothing, it only refuses where the trace
            disagrees.
        constants: Lipschitz and swap constants of one's own, labelled "declared" whatever their label.
        start: "x" or "y" → public vector that it starts from, such as random weights of a network; default 0. It must
            not hang on the records.
        name: for messages.
        device: "cpu", the default, or "cuda": where the losses and their derivatives are computed. Clips, sums and
            noise stay on the processor.

    Raises:
        InputError: for a device that is not there, for a start of another shape, and for a loss that is not a scalar
            float64 function of these arguments, that does not depend on y, that cannot be differentiated twice, or that
            contradicts `free`.

    Example:
        >>> import decentral_dp
        >>> problem = decentral_dp.from_losses(
        ...     upper_loss=lambda x, y, features, label: (features @ y - label) ** 2,
        ...     lower_loss=lambda x, y, features, label: (features @ y - label) ** 2,
        ...     regulariser=lambda x, y: x.exp().sum() * (y @ y), p=1, q=3, n_features=3)
        >>> problem.p, problem.q
        (1, 3)
    """
    for key, size, least in (("p", p, 1), ("q", q, 1), ("n_features", n_features, 1), ("classes", classes, 2)):
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if (size is None and key != "classes") or (size is not None and (not whole or size < least)):
            raise InputError(f"{name}: {key} is {size!r}; it must be a whole number, at least {least}.")
    if isinstance(free, str) or not isinstance(free, Iterable):
        raise InputError(f'{name}: free is {free!r}; it must be a list of terms, as in free = ["upper_grad_x"].')
    claimed = tuple(free)
    for term in claimed:
        if term not in TERMS:
            raise InputError(f"{name}: free names {term!r}, which is no term; the terms are {', '.join(TERMS)}.")
    check_device(device, f"{name}: device")
    sizes = (int(p), int(q), int(n_features))
    starts = _starts(start or {}, {"x": sizes[0], "y": sizes[1]}, name)
    with needing("from_losses"):
        reads_records, forward = trace(upper_loss, lower_loss, regulariser, predict, sizes, classes)
    for term in claimed:
        if term in reads_records:
            raise InputError(
                f"{name}: {term} is declared free, but {READS[term]}, so the term reads records; "
                "take it out of `free`, or move what needs no data into the regulariser."
            )
    declared = None if constants is None else replace(constants, label="declared")
    functions = (upper_loss, lower_loss, regulariser, predict)
    problem = LossProblem(*functions, *sizes, classes, declared, name, reads_records, forward, starts)
    problem.check_rows_apart(COUNTS)
    return on_device(problem, device)


def on_device(problem: LossProblem, device: str) -> LossProblem:
    """The same problem, whose losses and derivatives are computed on a device.

    Args:
        problem: as of `from_losses`.
        device: "cpu" or "cuda".

    Returns:
        The problem itself where it is there already.

    Raises:
        InputError: the device is not there, a loss holds tensors that are elsewhere, or it computes something else
            there.
    """
    if problem.device == device:
        return problem
    check_device(device, f"{problem.name}: device")
    functions = (problem.upper_loss, problem.lower_loss, problem.penalty, problem.predict)
    found = trace(*functions, (problem.p, problem.q, problem.n_features), problem.classes, device)
    if found.reads_records != problem.reads_records:
        raise InputError(
            f'{problem.name}: on device = "{device}" the losses depend on other arguments than on the processor; let '
            "them not ask where they are computed."
        )
    return replace(problem, device=device, forward=found.forward)


def _starts(given: Mapping[str, Any], sizes: Mapping[str, int], name: str) -> dict[str, Array]:
    starts = {}
    for variable, values in given.items():
        if variable not in sizes:
            raise InputError(f"{name}: start names {quoted(variable)}; only x and y start anywhere.")
        vector = np.asarray(values, dtype=np.float64)
        if vector.shape != (sizes[variable],) or not np.isfinite(vector).all():
            raise InputError(
                f"{name}: start of {variable} has the shape {vector.shape}; wanted {sizes[variable]} finite numbers."
            )
        starts[variable] = vector
    return starts


def load_losses(path: Path) -> Callable[[int, int], LossProblem]:
    """A factory (n_features, n_classes) → problem from a Python file of the user's own.

    The file defines `upper_loss` and `lower_loss`; `p` and `q` as whole numbers or as functions of `n_features` and
    `n_classes` (0 where the label is a number), by these names; and, if wanted, `regulariser`, `predict`, `free` and
    `constants`, all as `from_losses` takes them. The file is run: it is code, not data.

    Raises InputError, with one sentence, for a file that is missing, does not run, or lacks a definition.
    """
    module = run_file(path, "`losses` must name a Python file with the two losses")

    def optional(key: str) -> Any:
        return getattr(module, key, None)

    for key in ("upper_loss", "lower_loss", "p", "q"):
        if not hasattr(module, key):
            raise InputError(f"{path}: it defines no {key}; it needs upper_loss, lower_loss, p and q.")
    for key in ("upper_loss", "lower_loss", "regulariser", "predict"):
        if optional(key) is not None and not callable(optional(key)):
            raise InputError(f"{path}: {key} is {type(optional(key)).__name__}; it must be a function.")

    missing = [key for key in ("regulariser", "predict") if optional(key) is None]
    for found, line in defined(path).items():
        near = next(iter(difflib.get_close_matches(found, missing, n=1, cutoff=NEAR)), None)
        if near is not None and near != found and abs(len(near) - len(found)) <= 1:
            raise InputError(
                f"{path}: it defines {found}, in line {line} of {path}, which nothing asks for; did you mean {near}? "
                f"Call it that, or _{found} where it is one of your own."
            )

    def build(n_features: int, n_classes: int) -> LossProblem:
        sizes = {key: _size(path, key, getattr(module, key), n_features, n_classes) for key in ("p", "q")}
        return from_losses(
            module.upper_loss,
            module.lower_loss,
            **sizes,
            n_features=n_features,
            classes=n_classes or None,
            regulariser=optional("regulariser"),
            predict=optional("predict"),
            free=optional("free") or (),
            constants=optional("constants"),
            name=str(path),
        )

    return build


def _size(path: Path, key: str, given: Any, n_features: int, n_classes: int) -> Any:
    """p or q of a file; `from_losses` checks that it is a whole number."""
    if not callable(given):
        return given
    known = {"n_features": n_features, "n_classes": n_classes}
    asked = list(inspect.signature(given).parameters)
    if not set(asked) <= set(known):
        raise InputError(
            f"{path}: {key} takes {', '.join(asked)}; it can take n_features and n_classes, by these names."
        )
    try:
        return given(**{a: known[a] for a in asked})
    except USER_ERRORS as error:
        raise InputError(f"{path}: {key} does not run: {blamed(error, place_of(given))}; mend the function.") from error
