"""Auditing whole transcripts of gossip algorithms by exact likelihood ratios.

Many copies of one agent draw their transcripts with the real mechanism in two neighbouring data
sets. All copies receive the same messages. Rounded queries are known in either data set, so no distinguisher does
better.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decentral_dp.algorithms.gossip.spdb import Spdb
from decentral_dp.bounded import Bounded
from decentral_dp.exchange import Bundle
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.clipping import Clip
from tests.support.naive import misheard
from tests.support.replay import Crossed
from tests.support.transcript_settings import (
    START,
    STEP,
    Quieter,
    Setting,
)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [
        ("ldp_dsbo", "train", 0.25),
        ("ldp_dsbo, private state", "train", 0.25),
        ("ma_dsbo", "train", 0.25),
        ("ma_dsbo", "validation", 0.4),
        # One of two rounds releases gradients.
        ("adasdbo", "train", 0.25),
        ("adasdbo", "validation", 0.25),
        ("f2sa", "train", 0.25),
        ("f2sa", "validation", 0.25),
        ("dsoba", "train", 0.25),
        ("dsoba", "validation", 0.25),
        ("ldp_single_level", "train", 0.25),
        ("dp_dsgd", "train", 0.25),
        ("push_sum", "train", 0.25),
        ("choco", "train", 0.25),
        ("federated", "train", 0.1),
        ("exact_diffusion", "train", 0.25),
        # One of two rounds releases a gradient.
        ("gradient_tracking", "train", 0.25),
    ],
)
def test_transcripts_show_at_most_the_certified_epsilon(name: str, kind: str, share: float, mechanism: str) -> None:
    size = 0.4 if kind == "train" else 0.8
    shown, certified = Setting(name, mechanism, kind, size).audit(delta=1e-3)
    assert share * certified <= shown <= certified


@pytest.mark.parametrize(("name", "kind", "share"), [("spdb", "train", 0.25), ("bsa", "validation", 0.2)])
def test_series_and_answers_show_at_most_the_certified_epsilon(name: str, kind: str, share: float) -> None:
    shown, certified = Setting(name, "gaussian", kind, 0.6, copies=600).audit(delta=1e-2)
    assert share * certified <= shown <= certified


# Planted bugs -------------------------------------------------------------------------------------------------------


def unnoised(channel: str, step: Any) -> Any:
    """A step that takes its own message on a channel for released before noise was added."""

    def heard(exchange: Any, reply: Any) -> Any:
        own = exchange.values.get(channel)
        if not isinstance(own, Bounded):
            return reply
        return reply._replace(released=Bundle({**reply.released, channel: own.value}))

    return misheard(step, heard)


class Peeking(Spdb):
    """Continues its series from what it had before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        return unnoised("v", super().step(t, dataset, s))


def test_a_series_without_noise_exceeds_the_certified_epsilon() -> None:
    """A single transcript is a counterexample; the ledger and the budget are those of the sound program."""
    good, bad = (c(STEP, STEP, 0.5, STEP, smoothness=2.0, inverse=2, start=START) for c in (Spdb, Peeking))
    largest, budgets = [], []
    for program in (good, bad):
        made = Setting("spdb", kind="validation", copies=600, algorithm=program)
        said, ledger = made.transcripts(0, seed=5)
        largest.append(float(np.abs(made.scores(said)).max()))
        budgets.append(float(price(ledger, 0.0).epsilon_pure[0]))
    assert budgets[0] == budgets[1]
    assert largest[0] <= budgets[0] < 0.95 * largest[1]


@pytest.mark.parametrize("name", ["ma_dsbo", "dp_dsgd"])
def test_a_third_of_the_noise_exceeds_the_certified_epsilon(name: str) -> None:
    made = Setting(name, size=0.5, mechanism="gaussian", copies=1500)
    shown, certified = made.audit(delta=1e-2)
    assert shown <= certified
    shown, same = replace(made, sampler=Quieter).audit(delta=1e-2)
    assert same == certified
    assert shown > certified


def test_a_forgotten_clip_exceeds_the_certified_epsilon() -> None:
    class Unclipped(Crossed):
        def terms(self, x: Any, y: Any, z: Any, a: Any, b: Any, clip: Clip, wanted: Any = ()) -> Any:
            return super().terms(x, y, z, a, b, Clip(clip.norm), wanted)

    for name in ("ma_dsbo", "dp_dsgd"):
        shown, certified = Setting(name, copies=600, size=0.2, problem=Unclipped(2)).audit()
        assert shown > certified
