"""Objectives and per-record terms of minimax problems."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from decentral_dp.central.problems.composite import make_custom_problem
from decentral_dp.central.problems.evaluator import make_evaluator
from decentral_dp.central.problems.saddle import MINIMAX_TERMS, Minimax, Saddle
from decentral_dp.errors import InputError
from decentral_dp.problems.entry import ProblemType


def _make_local(problem: Minimax, name: str, kind: str) -> Saddle:
    """State a problem in bilevel terms. Raises InputError if a gradient is not a mean over records."""
    if missing := [term for term in ("grad_x", "grad_y") if not problem.terms.get(term)]:
        raise InputError(
            f"algorithm.kind: {kind} requires {missing[0]} as a mean over records, which {name} does not "
            "have. Fix: use another algorithm or problem."
        )
    return Saddle(problem)


def _describe(make: Any) -> str:
    return inspect.getdoc(sys.modules[make.__module__]) or ""


MINIMAX = ProblemType(
    "minimax",
    methods=("slopes", "sums", "statistics"),
    members=("sums", *"pq", "start", "terms", "width", "prepare", "public", "public_ball", "project_x", "project_y"),
    evaluation_members=("scores",),
    terms=MINIMAX_TERMS,
    make_custom=make_custom_problem,
    describe=_describe,
    levels=1,
    weights="x",
    aim="x minimises and y maximises F(x, y).",
    norms=("l2",),
    uses_devices=True,
    make_local=_make_local,
    make_evaluator=make_evaluator,
)
