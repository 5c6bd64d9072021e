"""Mechanisms from outside are tried: sound ones pass, and each planted error is found by the trial that is for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decentral_dp.auditing.mechanism_trials import find_fault
from decentral_dp.privacy.custom_mechanism import register_outside
from decentral_dp.user_code import run_file

PAGE = Path(__file__).parents[2] / "docs" / "add_a_mechanism.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> type[Any]:
    """The guide's discrete Laplace noise."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path_factory.mktemp("page") / "discrete_laplace.py"
    file.write_text(text, encoding="utf-8")
    found: type[Any] = run_file(file).DiscreteLaplace
    return found


@dataclass(frozen=True)
class DiscreteGaussian:
    """Normal variates rounded to a fine grid, with the widest rounding of the query in the cost."""

    name = "discrete_gaussian"
    norm = "l2"
    deviation = 1.0
    unit = "μ"

    def cost(self, sensitivity: Any, scale: Any, width: int) -> Any:
        return (sensitivity + np.sqrt(width) * 2.0**-19 * scale) / scale

    def sample(self, generator: Any, query: Any, grid: float, scale: float) -> Any:
        return grid * (np.rint(query / grid) + np.rint(generator.normal(0.0, scale / grid, query.size)))


@dataclass(frozen=True)
class Staircase:
    """The staircase of Geng & Viswanath for one step of length `scale` and ε = 1, by their mixture of four draws.

    Its variance is the integral of v² over the steps of its density.
    """

    name = "staircase"
    norm = "l1"

    @property
    def deviation(self) -> float:
        b, cut = np.exp(-1.0), 1.0 / (1.0 + np.exp(0.5))
        k = np.arange(200.0)
        height = (1.0 - b) / (2.0 * (cut + b * (1.0 - cut)))
        inner = ((k + cut) ** 3 - k**3) / 3.0
        outer = ((k + 1.0) ** 3 - (k + cut) ** 3) / 3.0
        return float(np.sqrt(2.0 * height * np.sum(b**k * (inner + b * outer))))

    def cost(self, sensitivity: Any, scale: Any, width: int) -> Any:
        return np.ceil(np.asarray(sensitivity / scale)) + width * 2.0**-18 * (np.asarray(sensitivity) >= 0.0)

    def sample(self, generator: Any, query: Any, grid: float, scale: float) -> Any:
        b, cut, n = np.exp(-1.0), 1.0 / (1.0 + np.exp(0.5)), query.size
        sign, steps = 2 * generator.integers(0, 2, n) - 1, generator.geometric(1.0 - b, n) - 1
        part, late = generator.random(n), generator.random(n) >= cut / (cut + (1.0 - cut) * b)
        noise = sign * (steps + np.where(late, cut + (1.0 - cut) * part, cut * part)) * scale
        return grid * (np.rint(query / grid) + np.rint(noise / grid))


def test_the_example_of_the_guide_passes(page: type[Any]) -> None:
    assert find_fault(register_outside(page())) == ""


@pytest.mark.parametrize("made", [DiscreteGaussian, Staircase])
def test_sound_mechanisms_pass(made: type[Any]) -> None:
    assert find_fault(register_outside(made())) == ""


def half_cost(made: type[Any]) -> type[Any]:
    class Half(made):  # type: ignore[misc]
        def cost(self, sensitivity: Any, scale: Any, width: int) -> Any:
            return 0.5 * super().cost(sensitivity, scale, width)

    return Half


def sampling(draw: Callable[..., Any]) -> Callable[[type[Any]], type[Any]]:
    """A mechanism whose sampler asks that of its class in another way."""

    def changed(made: type[Any]) -> type[Any]:
        class Other(made):  # type: ignore[misc]
            def sample(self, generator: Any, query: Any, grid: float, scale: float) -> Any:
                return draw(super().sample, generator, query, grid, scale)

        return Other

    return changed


def other_norm(made: type[Any]) -> type[Any]:
    class Norm(made):  # type: ignore[misc]
        norm = "l2"

    return Norm


def other_deviation(made: type[Any]) -> type[Any]:
    class Deviation(made):  # type: ignore[misc]
        deviation = 2.0

    return Deviation


PLANTED: dict[str, tuple[Callable[[type[Any]], type[Any]], str]] = {
    "half the cost": (half_cost, "its cost is too low"),
    "one noise for all keys": (
        sampling(lambda own, g, q, grid, s: own(np.random.default_rng(0), q, grid, s)),
        "returns the same noise for agent 0, index 1 and channel y as for agent 1",
    ),
    "few different noise vectors": (
        sampling(lambda own, g, q, grid, s: own(np.random.default_rng(g.integers(2000)), q, grid, s)),
        "returns the same noise for",
    ),
    "noise without a key": (
        sampling(lambda own, g, q, grid, s: own(np.random.default_rng(), q, grid, s)),
        "returns different noise for one state",
    ),
    "half the noise": (sampling(lambda own, g, q, grid, s: own(g, q, grid, 0.5 * s)), "standard deviation"),
    "a scale that is not read": (sampling(lambda own, g, q, grid, s: own(g, q, grid, 1.0)), "standard deviation"),
    "one noise for all coordinates": (
        sampling(lambda own, g, q, grid, s: np.rint(q / grid) * grid + own(g, np.zeros(1), grid, s)),
        "its cost is too low",
    ),
    "the other norm": (other_norm, "its cost is too low"),
    "another deviation": (other_deviation, "Fix: correct deviation, or sample"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_detected(page: type[Any], planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # `build` refuses the plainest of them already.
    monkeypatch.setattr("decentral_dp.privacy.custom_mechanism._noise_faults", lambda mechanism: iter(()))
    change, told = PLANTED[planted]
    found = find_fault(register_outside(change(page)()))
    assert told in found
    assert found.startswith("discrete_laplace: ")
    assert "\n" not in found


def test_half_the_cost_of_a_gaussian_mechanism_is_detected() -> None:
    assert "got μ = 1 at" in find_fault(register_outside(half_cost(DiscreteGaussian)()))
