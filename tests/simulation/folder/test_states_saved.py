"""Saved states: every shipped algorithm's, to the bit, and nothing that runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl, SavedState, Snapshot
from decentral_dp.simulation.folder.states import AuthorModule, UnreadableError, from_bytes, module_of, to_bytes
from decentral_dp.simulation.jobs.build import build_job
from tests.golden.cases import is_planned_only, scenario_names
from tests.support.published import scenario_file

OWN = AuthorModule(__name__, globals())
HERE = [n for n in scenario_names() if not is_planned_only(n)]


@pytest.mark.parametrize("name", HERE)
def test_every_shipped_scenario_goes_on_from_a_file_to_the_bit(name: str) -> None:
    job = build_job(decentral_dp.load(scenario_file(name)))
    rounds = min(job.rounds, 3)
    home, seen, kept = module_of(job.algorithm), [], []

    def observe(s: Snapshot) -> bool:
        seen.append(s)
        if s.round == rounds - 1:
            kept.append(to_bytes(list(s.save().parts), home))
        return s.round == rounds

    whole = job.start(LocalEngine(), RunControl(range(rounds + 1), observe))
    saved = SavedState(rounds - 1, tuple(from_bytes(kept[0], home)))
    # The first round was charged before, the last after it was kept.
    again = job.start(LocalEngine(), RunControl([rounds], lambda s: s.round == rounds, saved_state=saved))
    for part in ("released", "published", "state"):
        for channel, value in getattr(whole.last_snapshot, part).items():
            np.testing.assert_array_equal(getattr(again.last_snapshot, part)[channel], value, strict=True)
    assert again.ledger.to_frame().equals(whole.ledger.to_frame())


class Inner(NamedTuple):
    a: Any
    b: float


@pytest.mark.parametrize(
    "value",
    [
        None,
        -0.0,
        float("nan"),
        {"x": [1, (2.5, "text")], 3: True},
        Inner(np.float64(1.0), 2.0),
        np.arange(12.0).reshape(3, 4)[:, 1:3],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.zeros((0, 3)),
        np.array(5, dtype=np.int32),
    ],
    ids=str,
)
def test_values_come_back_as_they_were(value: Any) -> None:
    back = from_bytes(to_bytes(value, OWN), OWN)
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        np.testing.assert_array_equal(back, value, strict=True)
        assert value.size == 0 or back.strides == value.strides
    elif isinstance(value, Inner):
        assert back == value
        assert type(back.a) is np.float64
    else:
        assert repr(back) == repr(value)


def test_what_is_no_value_is_refused() -> None:
    for bad in (object(), lambda: None, np.array([object()]), {"x": {1, 2}}):
        with pytest.raises(TypeError, match="cannot be kept"):
            to_bytes(bad, OWN)
    with pytest.raises(TypeError, match="define it where the algorithm is"):
        to_bytes(Inner(1.0, 2.0), AuthorModule("another_module", {}))

    class Hidden(NamedTuple):
        a: Any

    # It is kept only where it would be found again.
    with pytest.raises(TypeError, match="define it at the top of its file"):
        to_bytes(Hidden(1.0), OWN)


@pytest.mark.parametrize(
    "described",
    [
        {"named": ["os", "system"], "parts": [{"value": "true"}]},
        {"named": ["subprocess", "Popen"], "parts": [{"value": "true"}]},
        {"named": ["decentral_dp.config.loading", "load"], "parts": [{"value": "quadratic"}]},
        {"named": ["decentral_dp.config.loading", "Path"], "parts": [{"value": "quadratic"}]},
        {"array": "a9", "scalar": False},
        {"nothing": 1},
    ],
)
def test_a_file_cannot_choose_what_is_called(described: Any) -> None:
    import io
    import json

    out = io.BytesIO()
    np.savez(out, structure=np.array(json.dumps(described)))
    with pytest.raises(UnreadableError):
        from_bytes(out.getvalue(), OWN)
