"""Machines that round differently: their digests, and the releases of blocks on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.engines import ray as ray_engine
from decentral_dp.engines.arithmetic import machine_digest
from decentral_dp.engines.protocol import RunControl
from decentral_dp.errors import InputError
from decentral_dp.privacy.releasers import ScheduledReleaser
from tests.support.processor import narrow_environment, wide_features

Make = Callable[..., dict[str, Any]]
PRINT = "from decentral_dp.engines.arithmetic import machine_digest; print(machine_digest())"


def digest_in(environment: dict[str, str]) -> str:
    process = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True)
    return process.stdout.strip()


def test_a_machine_has_one_digest_and_another_processor_has_another() -> None:
    assert digest_in(dict(os.environ)) == machine_digest()
    if not wide_features():
        pytest.skip("numpy uses no AVX-512 here that could be switched off")
    assert digest_in(narrow_environment()) != machine_digest()


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_blocks_that_round_differently_release_the_same_draws_on_the_same_grid(
    scenario: Make, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    """Last bits of one block's queries move its values by few cells, and change neither noise nor ε."""
    base = scenario(run={"blocks": 2}, algorithm={"rounds": 4}, privacy={"mechanism": mechanism})
    plain = decentral_dp.run(base)
    add_noise = ScheduledReleaser._add_noise
    cells, blocks = list[float](), list[ScheduledReleaser]()

    def rounded_otherwise(self: Any, index: int, bounded: Any, widths: Any, noise: Any) -> Any:
        released, cells_whole = add_noise(self, index, bounded, widths, noise)
        if self not in blocks:
            blocks.append(self)
        if self is blocks[0]:
            return released, cells_whole
        up = {
            c: replace(v, private=v.private * (1.0 + 2.0**-52), public=v.public * (1.0 + 2.0**-52))
            for c, v in bounded.items()
        }
        shifted, cells_whole = add_noise(self, index, up, widths, noise)
        cells.append(
            float(
                (
                    np.abs(np.concatenate([*shifted.values()], 1) - np.concatenate([*released.values()], 1))
                    / noise.grid
                ).max()
            )
        )
        return shifted, cells_whole

    monkeypatch.setattr(ScheduledReleaser, "_add_noise", rounded_otherwise)
    shifted = decentral_dp.run(base)
    assert cells
    assert max(cells) <= 2.0
    assert all(cell == round(cell) for cell in cells)
    assert shifted.records.same_releases(plain.records)
    np.testing.assert_array_equal(shifted.simulation().budget.epsilon, plain.simulation().budget.epsilon)
    for channel, value in plain.released.items():
        np.testing.assert_allclose(shifted.released[channel], value, rtol=0, atol=1e-9 * np.abs(value).max())


def test_actors_that_start_again_on_another_machine_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_call_all", lambda actors, method: list(actors))
    calls = list[Any]()
    control = RunControl(check_machines=calls.append)
    assert ray_engine._checked_machines(["a", "b"], [], control) == ["a", "b"]
    assert ray_engine._checked_machines(["a", "b"], ["a", "b"], control) == ["a", "b"]
    assert calls == [["a", "b"]] * 2
    with pytest.raises(InputError, match="1 of 2 blocks"):
        ray_engine._checked_machines(["a", "c"], ["a", "b"], control)
    assert len(calls) == 2
