"""What Python code can see beside its arguments is named, and said to be on its author's word."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load
from decentral_dp.models.build import ModelTable, build_model
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.probing.probe import HANDFUL, arrays_seen, components_of
from decentral_dp.simulation.statements.of_job import statement_of

torch = pytest.importorskip("torch")
TABLE = np.zeros((569, 30))
SETTINGS = np.zeros(HANDFUL)
CLOSED = "On the author's word: what Python code closes over, or reads from a disk, holds no records"


def by_closure() -> Callable[..., Any]:
    features = torch.zeros(569, 30)
    return lambda x, y: features.sum() + x


def by_global(x: Any, y: Any) -> Any:
    return TABLE.sum() + x


def by_default(x: Any, y: Any, table: Any = TABLE) -> Any:
    return x


def by_name_of_another(x: Any, y: Any) -> Any:
    return by_global(x, y)


def by_inner(x: Any, y: Any) -> Any:
    return [TABLE[k] for k in range(3)]


def of_numbers() -> Callable[..., Any]:
    records = [float(k) for k in range(100)]
    return lambda x, y: records[0] + x


def in_a_dict() -> Callable[..., Any]:
    kept = {"train": TABLE}
    return lambda x, y: kept["train"].sum()


class Holder:
    def __init__(self) -> None:
        self.seen = TABLE

    def __call__(self, x: Any, y: Any) -> Any:
        return self.seen.sum() + x

    def method(self, x: Any, y: Any) -> Any:
        return x


def harmless(x: Any, y: Any) -> Any:
    return np.exp(x) + SETTINGS.sum() + torch.nn.functional.relu(torch.zeros(())).numpy() + HANDFUL


NAMED: dict[str, tuple[Any, str]] = {
    "a closure": (by_closure(), "`<lambda>` closes over `features`, a Tensor of shape (569, 30)"),
    "a global": (by_global, "`by_global` closes over `TABLE`, an array of shape (569, 30)"),
    "a default": (by_default, "`by_default` closes over `table`, an array of shape (569, 30)"),
    "another function": (by_name_of_another, "`by_name_of_another` closes over `TABLE`, an array of shape (569, 30)"),
    "a comprehension": (by_inner, "`by_inner` closes over `TABLE`, an array of shape (569, 30)"),
    "numbers": (of_numbers(), "`<lambda>` closes over `records`, 100 numbers"),
    "a dict": (in_a_dict(), "closes over `kept['train']`, an array of shape (569, 30)"),
    "an object": (Holder(), "`Holder` closes over `seen`, an array of shape (569, 30)"),
    "a method": (Holder().method, "closes over `seen`, an array of shape (569, 30)"),
    "a partial function": (
        functools.partial(by_default, table=TABLE), "closes over `table`, an array of shape (569, 30)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_what_a_function_can_see_is_named(case: str) -> None:
    thing, told = NAMED[case]
    assert any(told in text for text in arrays_seen(thing)), arrays_seen(thing)


def test_settings_and_libraries_are_not_named() -> None:
    assert arrays_seen(harmless) == []
    assert arrays_seen(np.mean, torch.nn.functional.relu) == []


def test_a_circle_ends() -> None:
    one: list[Any] = []
    one.append(one)
    assert arrays_seen(functools.partial(harmless, one)) == []


def test_parts_of_a_problem_are_named_by_their_fields() -> None:
    @dataclass(frozen=True)
    class Posed:
        upper_loss: Any
        inner: tuple[int, ...] = field(default=(1, 2))

    assert {name for name, _ in components_of(Posed(by_global))} == {"", "upper_loss", "inner"}
    assert "`upper_loss` closes over `TABLE`" in arrays_seen(Posed(by_global))[0]


def test_buffers_of_a_module_are_named_and_weights_are_not(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, n_features, outputs):\n"
        "        super().__init__()\n"
        "        self.last = nn.Linear(n_features, outputs)\n"
        "        self.register_buffer('records', torch.ones(50, n_features))\n"
        "    def forward(self, a):\n"
        "        return self.last(a) * self.records.mean()\n"
        "def build(n_features, outputs):\n"
        "    return Net(n_features, outputs)\n",
        encoding="utf-8",
    )
    model = build_model(ModelTable(**{"kind": "torch", "file": "net.py"}), 30, 2, None, 0, "cpu", tmp_path)
    assert arrays_seen(model) == ["`Net` closes over `records`, a Tensor of shape (50, 30)"]


# On the statement, by whatever way the code comes.

LOSSES = """
import numpy as np

p, q = 1, lambda n_features: n_features
kept = np.zeros((455, 30))

def upper_loss(x, y, features, label):
    return (features @ y - label) ** 2 * x.exp().sum() + 0.0 * kept[0, 0]

def lower_loss(x, y, features, label):
    return (features @ y - label) ** 2 * x.exp().sum()
"""


def notes(job: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = statement_of(job).notes
    return found


@pytest.mark.usefixtures("undrawn")
def test_a_losses_file_is_named_with_what_it_holds(scenario: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LOSSES, encoding="utf-8")
    content = scenario(problem={"kind": "from_losses", "losses": "mine.py"})
    run = decentral_dp.run(load(content, folder=tmp_path), out=tmp_path / "out")
    said = run.result["privacy"]["notes"]
    assert any(note.startswith('On the author\'s word: "mine.py" gives losses of one record alone') for note in said)
    (closed,) = [note for note in said if note.startswith(CLOSED)]
    assert closed.endswith("Here `upper_loss` closes over `kept`, an array of shape (455, 30).")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "an array of shape (455, 30)" in page


def test_losses_as_an_object(scenario: Any) -> None:
    features = np.zeros((455, 30))

    def loss(x: Any, y: Any, a: Any, label: Any) -> Any:
        return (a @ y - label) ** 2 * x.exp().sum() + 0.0 * features[0, 0]

    problem = decentral_dp.from_losses(loss, loss, p=1, q=30, n_features=30)
    said = notes(build(scenario(), problem=problem))
    assert any("`upper_loss` closes over `features`, an array of shape (455, 30)" in note for note in said)


MINIMAX: dict[str, Any] = {
    "problem": {"kind": "dro", "data": "breast_cancer", "scale": "public_ranges", "normalise": "l2", "cap": 3.0,
                "divergence": "chi2", "strength": 1.0},
    "topology": {"kind": "star", "agents": 3},
    "algorithm": {"kind": "dp_sgda", "rounds": 2, "rate": 0.2, "x": {"scale": 0.1}, "y": {"scale": 0.1}},
    "privacy": {"epsilon": 2.0, "delta": 1e-5, "clip": {"x": 1.0, "y": 1.0}},
}  # fmt: skip


def test_a_model_file_of_a_coordinators_run(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def build(n_features, outputs):\n"
        "    return nn.Sequential(nn.Linear(n_features, 3), nn.GELU(), nn.Linear(3, outputs))\n",
        encoding="utf-8",
    )
    problem = MINIMAX["problem"] | {"model": {"kind": "torch", "file": "net.py"}}
    said = notes(build(load({**MINIMAX, "problem": problem}, folder=tmp_path)))
    assert any('"net.py" makes a module whose outputs and gradients are of one record alone' in note for note in said)


def test_data_and_a_partition_are_code_too(scenario: Any) -> None:
    table = np.arange(569)

    def deal(labels: Any, agents: int) -> Any:
        return table[: len(labels)] % agents

    said = notes(build(scenario(), partition=deal))
    assert any("`deal` closes over `table`, an array of shape (569,)" in note for note in said)
    records = (np.random.default_rng(0).random((60, 4)), np.arange(60) % 2)
    told = {"scale": "none", "classes": [0, 1]}
    assert any(note.startswith(CLOSED) for note in notes(build(scenario(problem=told), data=records)))


def test_our_own_code_is_on_nobodys_word(scenario: Any) -> None:
    for job in (build(scenario()), build(MINIMAX)):
        assert not any("author's word" in note for note in notes(job))
        assert not statement_of(job).is_on_authors_word
