"""Auditing whole transcripts of gossip algorithms by exact likelihood ratios.

Many copies of one agent draw their transcripts with the real mechanism in two neighbouring data
sets. All copies receive the same messages. Rounded queries are known in either data set, so no distinguisher does
better.
"""

from __future__ import annotations

import pytest

from tests.support.transcript_settings import (
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
