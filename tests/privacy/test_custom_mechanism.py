"""A mechanism from outside: the example of `docs/add_a_mechanism.md`, by every way to name it, and its refusals."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.privacy.custom_mechanism import register_outside
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import LAPLACE
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.job_statement import gossip_horizon
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.statement import Horizon
from decentral_dp.user_code import UserCodeError, run_file
from tests.support.mechanism_checks import deviation_complaints, price_complaints

Make = Callable[..., dict[str, Any]]
PAGE = Path(__file__).parents[2] / "docs" / "add_a_mechanism.md"
FILE, NAME = "discrete_laplace.py", "discrete_laplace:DiscreteLaplace"


def example() -> str:
    """The page's Python block, to the letter."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example, where we are."""
    (tmp_path / FILE).write_text(example(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def made(folder: Path) -> type[Any]:
    found: type[Any] = run_file(folder / FILE).DiscreteLaplace
    return found


@pytest.fixture
def package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The example in an installed package."""
    site = folder / "site"
    home = site / "my_noise"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / FILE).write_text(example(), encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))
    # For processes of a study and of Ray.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    yield "my_noise.discrete_laplace:DiscreteLaplace"
    for name in [n for n in sys.modules if n.partition(".")[0] == "my_noise"]:
        del sys.modules[name]


def content(scenario: Make, mechanism: Any = NAME, **changes: Any) -> dict[str, Any]:
    return scenario(**({"privacy": {"mechanism": mechanism}, "algorithm": {"rounds": 3}} | changes))


def test_module_object_and_package_are_one_mechanism(scenario: Make, made: type[Any], package: str) -> None:
    by_path = decentral_dp.run(content(scenario))
    by_object = decentral_dp.run(content(scenario, "laplace"), mechanism=made())
    by_package = decentral_dp.run(content(scenario, package))
    for run in (by_path, by_object, by_package):
        privacy = run.result["privacy"]
        assert run.result["status"] == "ok"
        assert privacy["mechanisms"] == ["discrete_laplace"]
        assert 3.9 < privacy["epsilon_max"] <= 4.0
        assert privacy["clip"]["norm"] == "l1"
        assert privacy["unverified"]["mechanism"] == "discrete_laplace"
        assert set(run.ledger["mechanism"]) == {"discrete_laplace", "free"}
    for other in (by_object, by_package):
        np.testing.assert_array_equal(other.simulation().budget.epsilon, by_path.simulation().budget.epsilon)
        assert other.records.same_releases(by_path.records)


def test_a_stream_without_end_is_not_priced_by_the_formula_of_another_mechanism(scenario: Make) -> None:
    @dataclass(frozen=True)
    class Dearer:
        """Three times the cost of Gaussian noise, and no δ is left for the sampler: the planned rounds have no ε."""

        name, norm, unit, deviation = "dearer", "l2", "μ", 1.0

        def cost(self, sensitivity: Any, scale: Any, width: int) -> Any:
            return 3.0 * sensitivity / scale

        def float_slack(self, loss: Any, width: int) -> Any:
            return 0.0 * loss, 0.5 + 0.0 * loss

        def sample(self, generator: Any, query: Any, grid: float, scale: float) -> Any:
            return grid * np.rint((query + generator.normal(scale=scale, size=query.shape)) / grid)

    table, noise = scenario(problem={"sampling": {"kind": "streaming", "batch_size": 5}}), {"scale": 1.0}
    table["privacy"] = {"mechanism": "gaussian", "clip": table["privacy"]["clip"], "y": noise, "z": noise}
    job = decentral_dp.build(table, mechanism=Dearer())
    assert np.isinf(job.simulation().budget.epsilon).all()
    assert gossip_horizon(job.simulation()) == Horizon(math.inf, None)


# Each draw is a call of Python; with these, every planted bug below is still found.
DRAWS = 10_000


def test_the_example_has_the_deviation_and_the_price_it_states(made: type[Any]) -> None:
    assert deviation_complaints(register_outside(made()), draws=DRAWS) == []
    for width in (1, 9):
        assert price_complaints(register_outside(made()), width=width, draws=DRAWS) == []


def test_it_composes_as_the_worst_of_its_pure_price(made: type[Any]) -> None:
    def spent(mechanism: Any) -> Any:
        one = np.ones((20, 1))
        group, index = np.zeros(1, dtype=np.int64), np.arange(1, 21)
        line = ChannelLedger("y", mechanism, 1, group, index, one, {"train": 0.2 * one}, {"train": one})
        return account(Ledger(1, (line,)), 1e-5)

    mine, known, worst = spent(register_outside(made())), spent(LAPLACE), spent("pure")
    assert mine.epsilon_pure[0] == pytest.approx(4.0, rel=1e-4)
    assert known.epsilon[0] < mine.epsilon[0] == pytest.approx(worst.epsilon[0], rel=1e-3)


WRONG = {
    "class Nothing: pass": ("Nothing", "lacks a name"),
    'class NoNorm:\n    name = "n"': ("NoNorm", 'lacks norm = "l1" or "l2"'),
    'class Taken:\n    name = "laplace"\n    norm = "l1"': ("Taken", "lacks a name"),
    'class NoDeviation:\n    name = "n"\n    norm = "l1"': ("NoDeviation", "lacks deviation"),
    'class NoCost:\n    name = "n"\n    norm = "l1"\n    deviation = 1.0': ("NoCost", "lacks a method cost"),
    "number = 3": ("number", "lacks a name"),
    "def function(): ...": ("function", "lacks a name"),
    "1 / 0": ("Nothing", "cannot be imported: ZeroDivisionError"),
    "x = 1": ("Missing", "defines no Missing"),
}
BASE = """
import numpy as np
def of(generator, part): return np.random.default_rng(generator.bit_generator.state["state"][part].tolist())
class Last:
    def __init__(self, generator): self.generator = generator
    def laplace(self, *law): return self.generator.laplace(*law) * (np.arange(law[-1]) < max(7, law[-1] - 1))
class Mine:
    name, norm, deviation = "mine", "l1", 1.0
    def cost(self, sensitivity, scale, width): return sensitivity / scale
    def sample(self, generator, query, grid, scale): return SAMPLE
""".replace("SAMPLE", SAMPLE := "np.rint((query + generator.laplace(0.0, scale, query.size)) / grid) * grid")
NO_NOISE = "one value in coordinate 0 under 60 keys"
CHANGES = {
    "return sensitivity / scale": {
        "return -sensitivity / scale": "expected costs of at least 0",
        "return 0 * sensitivity / scale": "cost is 0 for a sensitivity above 0",
        "return scale / (sensitivity + 1)": "grow with the sensitivity and fall with the scale",
        "return sensitivity * scale": "grow with the sensitivity and fall with the scale",
        "return 1 / 0": r"cost fails with ZeroDivisionError: division by zero, in line 9 of .*mine\.py",
        "return 3.0": "one for each sensitivity",
        "return 1j * sensitivity / scale": "cost fails with TypeError: Cannot cast",
        "raise StopIteration": "cost fails with StopIteration",
        "raise GeneratorExit": "cost fails with GeneratorExit",
    },
    f"return {SAMPLE}": {
        "return np.rint(query / grid) * grid": NO_NOISE,
        "return query": "off the grid",
        "return np.zeros(1 + query.size)": "finite numbers",
        "return np.full(query.size, np.nan)": "finite numbers",
        "raise type('Odd', (Exception,), {})('own')": "sample fails with Odd: own",
        "raise GeneratorExit": "sample fails with GeneratorExit",
        "return generator.no_such_law()": r"sample fails with AttributeError: .*, in line 10 of .*mine\.py",
        # One coordinate of many; and a mechanism whose noise is rounded away.
        f"generator = Last(generator); return {SAMPLE}": "one value in coordinate 63 under 60 keys",
        "return np.rint(query + generator.laplace(0.0, 1e-3, query.size))": NO_NOISE,
        # No key, the agent's key without the index, and the index without the agent.
        f"generator = np.random.default_rng(0); return {SAMPLE}": NO_NOISE,
        f"generator = of(generator, 'key'); return {SAMPLE}": "equal noise under two keys",
        f"generator = of(generator, 'counter'); return {SAMPLE}": "equal noise under two keys",
        f"generator = np.random.default_rng(generator.integers(9)); return {SAMPLE}": "equal noise under two keys",
        SAMPLE.replace("query.size", "1").join(["return ", ""]): "equal noise to two coordinates",
        f"generator = np.random.default_rng(); return {SAMPLE}": "different noise under one key",
    },
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_mechanism_is_refused(scenario: Make, folder: Path, text: str) -> None:
    name, words = WRONG[text]
    (folder / "wrong.py").write_text(text + "\n")
    with pytest.raises(InputError, match=re.escape(words)):
        decentral_dp.run(content(scenario, f"wrong:{name}"))


@pytest.mark.parametrize(("right", "wrong"), [(right, wrong) for right in CHANGES for wrong in CHANGES[right]])
def test_wrong_prices_and_samples_are_refused(scenario: Make, folder: Path, right: str, wrong: str) -> None:
    (folder / "mine.py").write_text(BASE.replace(right, wrong))
    with pytest.raises(InputError, match=CHANGES[right][wrong]) as refused:
        decentral_dp.run(content(scenario, "mine:Mine"), out=folder / "out")
    assert str(refused.value).endswith("Fix: change the class.")
    # A sampler is tried before a run begins.
    assert not (folder / "out").exists()


# The end of the class → options of the scenario, and a part of the error.
ADDED = {
    "    def float_slack(self, loss, width): return -loss, 0.0 * loss": ("", "float_slack returns"),
    "    def float_slack(self, loss, width): return loss * np.nan, loss": ("", "float_slack returns"),
    "    def float_slack(self, loss, width): return [0.0] * 7, 0.0": ("", "float_slack fails with"),
    "    def __init__(self, cells): ...": (", cells = 3", "Mine is not a dataclass"),
}


@pytest.mark.parametrize("text", ADDED)
def test_what_a_class_has_beside_its_price_is_refused(scenario: Make, folder: Path, text: str) -> None:
    options, said = ADDED[text]
    (folder / "mine.py").write_text(f"{BASE.rstrip()}\n{text}\n")
    kind: Any = {"kind": "mine:Mine", **({"cells": 3} if options else {})}
    with pytest.raises(InputError, match=re.escape(said)):
        build(decentral_dp.load(content(scenario, kind)))


@pytest.mark.usefixtures("undrawn")
def test_a_sampler_that_fails_later_ends_the_run_with_its_line(scenario: Make, folder: Path) -> None:
    """It was sound when it was tried: what was released until then is on record, and the scenario is not to blame."""
    flag, right = folder / "later", "    def sample(self, generator, query, grid, scale): return"
    later = f"{right} 1 / 0 if Path({str(flag)!r}).exists() else"
    text = f"from pathlib import Path\n{BASE.replace(right, later)}"
    (folder / "mine.py").write_text(text)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "1 / 0" in one)

    def reached(at: Progress) -> None:
        if at.done == 1:
            flag.touch()

    given = content(scenario, "mine:Mine", run={"evaluate_every": 1})
    said = f"mine: sample fails with ZeroDivisionError: division by zero, in line {line} of {folder / 'mine.py'}. Fix"
    with pytest.raises(UserCodeError, match=re.escape(said)) as ended:
        decentral_dp.run(given, out=folder / "out", callbacks=[reached])
    assert re.match(r"round [23]: .* may have been released, and is on record in ", str(ended.value))
