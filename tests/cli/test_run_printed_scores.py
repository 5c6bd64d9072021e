"""Scores at the end of a run, as the terminal prints them."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

import decentral_dp
from decentral_dp.cli.run import print_scores


def test_errors_of_prices_have_no_digits_behind_the_point_and_shares_have_four() -> None:
    draw = np.random.default_rng(4)
    features = draw.uniform(-1.0, 1.0, (60, 2))
    labels = 5e5 + features @ np.array([2e5, 1e5])
    run = decentral_dp.run(
        {
            "seed": 1,
            "problem": {"kind": "ridge_hyperparameter", "data": "breast_cancer", "label_range": [0, 1e6]},
            "topology": {"kind": "complete", "agents": 2},
            "algorithm": {"kind": "ldp_dsbo", "rounds": 2, **{c: {"scale": 0.1} for c in "xyz"}},
            "privacy": {"guarantee": "none"},
        },
        data={
            "features": features,
            "labels": labels,
            "classes": [],
            "split": np.resize(["train", "validation", "test"], 60),
        },
    )
    out = io.StringIO()
    print_scores(Console(file=out, width=100), run.result)
    lines = {line.split()[0]: line.split()[1:] for line in out.getvalue().splitlines() if line}
    assert float(lines["test_rmse"][0]) == round(run.result.metrics["test_rmse"])
    assert all(re.fullmatch(r"\d{5,7}", text) for text in lines["test_rmse"])
    assert all(re.fullmatch(r"\d\.\d{4}", text) for text in lines["test_loss"])


@pytest.mark.parametrize("name", ["dp_dsgd", "dp_sgda"])
def test_scores_are_labelled_as_not_covered(name: str) -> None:
    """Of agents and of a coordinator: wherever scores are printed."""
    run = decentral_dp.run(name, set={"algorithm.rounds": 1})
    out = io.StringIO()
    print_scores(Console(file=out, width=100), run.result)
    printed = " ".join(out.getvalue().split())
    assert "test_accuracy" in printed or "test_auc" in printed
    assert "no ε covers them" in printed
