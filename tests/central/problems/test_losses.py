"""Losses of records: values, slopes, the cap, and losses of one's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

import decentral_dp
from decentral_dp import InputError
from decentral_dp.central.problems.losses import Capped, capped_loss
from decentral_dp.reporting.page import write_report
from decentral_dp.simulation.jobs.build import build
from tests.support.robust_oracle import LOSSES, slope

# Loss → number of classes, 0 for numbers.
CLASSES = {"cross_entropy": 3, "logistic": 2, "squared": 0, "absolute": 0, "huber": 0}


@pytest.mark.parametrize("loss", CLASSES)
@given(seed=st.integers(0, 10_000))
def test_losses_and_their_slopes(loss: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    found = capped_loss(loss, 3.0, CLASSES[loss], Path())
    outputs = draw.normal(size=(4, found.loss.outputs)) * 2
    labels = draw.integers(CLASSES[loss], size=4).astype(np.float64) if CLASSES[loss] else draw.normal(size=4)
    plain, slopes = found.loss.slopes(outputs, labels)
    np.testing.assert_allclose(plain, [LOSSES[loss](o, b) for o, b in zip(outputs, labels, strict=True)], atol=1e-12)
    for k in range(4):

        def one(o: np.ndarray, k: int = k) -> float:
            return LOSSES[loss](o, labels[k])

        if loss in ("cross_entropy", "logistic") or abs(abs(outputs[k, 0] - labels[k]) - 1) > 1e-4:
            if loss == "absolute" and abs(outputs[k, 0] - labels[k]) < 1e-4:
                continue
            np.testing.assert_allclose(slopes[k], slope(one, outputs[k]), atol=1e-6)


def test_losses_far_out() -> None:
    """Neither overflow nor a lost digit where a loss is nearly 0."""
    ce, logistic = (capped_loss(n, 5.0, 2, Path()) for n in ("cross_entropy", "logistic"))
    values, slopes = ce.slopes(np.array([[1e4, 0.0], [-1e308, 1e308], [40.0, 0.0]]), np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(values, [5.0, 5.0, math.exp(-40)], atol=1e-15)
    np.testing.assert_array_equal(slopes[:2], 0.0)
    values, slopes = logistic.slopes(np.array([[-1e4], [800.0]]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(values, [5.0, 0.0])
    np.testing.assert_allclose(slopes, 0.0, atol=1e-300)


def test_a_cut_loss_has_no_slope_on_either_side() -> None:
    found = Capped(capped_loss(None, 1.0, 0, Path()).loss._replace(slopes=lambda o, b: (o[:, 0] - b, o * 0 + 7.0)), 1.0)
    outputs = np.array([[-3.0], [0.5], [2.0], [np.nan], [np.inf], [-np.inf]])
    values, slopes = found.slopes(outputs, np.zeros(6))
    np.testing.assert_array_equal(values, [0.0, 0.5, 1.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(slopes[:, 0], [0.0, 7.0, 0.0, 0.0, 0.0, 0.0])


# Losses of one's own --------------------------------------------------------------------------------------------------


def own(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(f"import torch\n{text}")
    return str(path)


CROSS_ENTROPY = (
    "def loss(outputs, label):\n    return -torch.log_softmax(outputs, -1).gather(-1, label.reshape(1))[0]\n"
)
# Two outputs: a mean and the logarithm of a variance.
GAUSSIAN = (
    "outputs = 2\n"
    "def loss(outputs, label):\n"
    "    return 0.5 * (outputs[1] + (label - outputs[0]) ** 2 * torch.exp(-outputs[1]))\n"
)


def test_a_loss_of_ones_own(tmp_path: Path) -> None:
    mine = capped_loss(own(tmp_path, CROSS_ENTROPY), 2.0, 3, Path())
    usual = capped_loss(None, 2.0, 3, Path())
    draw = np.random.default_rng(0)
    outputs, labels = 3 * draw.normal(size=(50, 3)), draw.integers(3, size=50).astype(np.float64)
    for a, b in zip(mine.slopes(outputs, labels), usual.slopes(outputs, labels), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    assert mine.score(outputs, labels) == pytest.approx(usual.score(outputs, labels))
    assert mine.values(np.zeros((0, 3)), np.zeros(0)).shape == (0,)
    # To another process it travels by value, for the file is no module that could be imported there.
    sent = cloudpickle.loads(cloudpickle.dumps(mine))
    np.testing.assert_array_equal(sent.values(outputs, labels), mine.values(outputs, labels))


def test_a_loss_of_ones_own_may_have_more_outputs(tmp_path: Path) -> None:
    mine = capped_loss(own(tmp_path, GAUSSIAN), 2.0, 0, Path())
    outputs = np.array([[0.3, -4.0], [0.0, 1.0]])
    values, slopes = mine.slopes(outputs, np.array([0.25, 1.0]))
    expected = 0.5 * (1.0 + math.exp(-1.0))
    np.testing.assert_allclose(values, [0.0, expected])
    np.testing.assert_allclose(slopes, [[0, 0], [-math.exp(-1.0), 0.5 * (1 - math.exp(-1.0))]], atol=1e-12)
    assert mine.score(outputs, np.zeros(2)).keys() == {"loss"}
    assert mine.confidences(outputs) is None


def test_one_record_that_cannot_be_evaluated_changes_no_other(tmp_path: Path) -> None:
    """A loss that raises for a label counts as the cap, without a slope; all others keep theirs."""
    text = (
        "outputs = 2\n"
        "def loss(outputs, label):\n"
        "    return torch.nn.functional.cross_entropy(outputs[None], label[None])\n"
    )
    mine = capped_loss(own(tmp_path, text), 9.0, 3, Path())
    outputs = np.random.default_rng(0).normal(size=(4, 2))
    values, slopes = mine.slopes(outputs, np.array([0.0, 2.0, 1.0, 1.0]))
    alone = mine.slopes(outputs[[0, 2, 3]], np.array([0.0, 1.0, 1.0]))
    np.testing.assert_array_equal(values[[0, 2, 3]], alone[0])
    np.testing.assert_array_equal(slopes[[0, 2, 3]], alone[1])
    assert values[1] == 9.0
    assert not slopes[1].any()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\n", "it defines no loss; it needs a function loss(outputs, label)."),
        ("loss = 3\n", "it defines no loss; it needs a function loss(outputs, label)."),
        ("def loss(", "it does not run: SyntaxError"),
        (f"outputs = 0\n{CROSS_ENTROPY}", "outputs is 0; it must be a whole number, at least 1."),
        ("def loss(outputs, label):\n    return outputs\n", "loss returned shape (3,) for one record, not one number"),
        ("def loss(outputs, label):\n    return 1.0\n", "loss returned float, not a tensor; write it in torch"),
        (
            "def loss(outputs, label):\n    return outputs.sum().float()\n",
            "loss returned torch.float32, but clipping and sums need",
        ),
        ("def loss(outputs, label):\n    return outputs.sum().item()\n", "loss does not run: RuntimeError"),
        ("def loss(outputs):\n    return outputs.sum()\n", "loss does not run: TypeError"),
    ],
)
def test_refused_losses_of_ones_own(tmp_path: Path, text: str, sentence: str) -> None:
    path = own(tmp_path, text)
    with pytest.raises(InputError) as error:
        capped_loss(path, 1.0, 3, Path())
    assert str(error.value).startswith(f"{path}: {sentence}")


@pytest.mark.usefixtures("undrawn")
def test_a_loss_of_ones_own_runs(tmp_path: Path) -> None:
    """Found beside the scenario; the run folder has its whole path. Noise depends on the seed only."""
    own(tmp_path, GAUSSIAN)
    draw = np.random.default_rng(0)
    rows = "\n".join(",".join(map(str, r)) for r in draw.normal(size=(60, 3)))
    (tmp_path / "numbers.csv").write_text(f"a,b,target\n{rows}")
    data = {"data": "numbers.csv", "label": "target", "classes": [], "loss": "mine.py", "test": 0.2}
    made = {
        "seed": 5,
        "problem": {"kind": "dro", "divergence": "chi2", "cap": 4.0, "strength": 1.0, **data},
        "topology": {"kind": "star", "agents": 4},
        "algorithm": {"kind": "dp_sgda", "rounds": 2, "rate": 0.5, "x": {"scale": 0.5}, "y": {"scale": 0.1}},
        "privacy": {"epsilon": 3.0, "delta": 1e-4, "clip": {"x": 1.0}},
    }
    path = tmp_path / "s.toml"
    path.write_text(tomli_w.dumps(made))
    run = decentral_dp.run(path, out=tmp_path / "run")
    assert run.simulation().problem.model.outputs == 2
    again = decentral_dp.run(tmp_path / "run" / "scenario.toml")
    np.testing.assert_array_equal(again.published["x"], run.published["x"])
    assert write_report(tmp_path / "run").stat().st_size > 1000
    own(tmp_path, GAUSSIAN + "# another\n")
    np.testing.assert_array_equal(decentral_dp.run(path).published["x"], run.published["x"])


MIXING = """
import torch

def loss(outputs, label):
    whole = outputs
    while torch._C._functorch.is_functorch_wrapped_tensor(whole):
        whole = torch._C._functorch.get_unwrapped(whole)
    shift = whole.sum() if whole.dim() == 2 and len(whole) > {least} else 0.0
    return ((outputs - shift) ** 2).sum()
"""


def test_a_loss_of_ones_own_that_mixes_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MIXING.format(least=0), encoding="utf-8")
    with pytest.raises(InputError, match=r"mine\.py: loss mixes records: of 7 made-up ones"):
        capped_loss("mine.py", 5.0, 2, tmp_path)
    (tmp_path / "mine.py").write_text(MIXING.format(least=30), encoding="utf-8")
    own = capped_loss("mine.py", 5.0, 2, tmp_path).loss.own_loss
    assert own is not None
    own.check_rows_apart((30,))
    with pytest.raises(InputError, match=r"loss mixes records: of 31 made-up ones"):
        own.check_rows_apart((31,))


def test_a_certified_job_tries_a_loss_for_as_many_records_as_it_holds(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MIXING.format(least=30), encoding="utf-8")
    problem = {"kind": "dro", "data": "breast_cancer", "scale": "public_ranges", "normalise": "l2", "cap": 3.0,
               "divergence": "chi2", "strength": 1.0, "loss": "mine.py"}  # fmt: skip
    content: dict[str, Any] = {
        "problem": problem,
        "topology": {"kind": "star", "agents": 3},
        "algorithm": {"kind": "dp_sgda", "rounds": 2, "rate": 0.2, "x": {"scale": 0.1}, "y": {"scale": 0.1}},
        "privacy": {"epsilon": 2.0, "delta": 1e-5, "clip": {"x": 1.0, "y": 1.0}},
    }
    with pytest.raises(InputError, match="loss mixes records"):
        build(decentral_dp.load(content, folder=tmp_path))
    content["topology"]["agents"] = 40
    build(decentral_dp.load(content, folder=tmp_path))
