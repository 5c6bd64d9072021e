"""Partitions from outside are tried: what reads labels is said, and what deals otherwise when asked again is found."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from decentral_dp.data import Shards
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.probing.pairs import deal_trial


@pytest.fixture(scope="module")
def shards() -> Shards:
    found: Shards = build_job("ldp_dsbo").shards
    return found


def in_turn(labels: Any, agents: int, **rest: Any) -> Any:
    return np.arange(len(labels)) % agents


def sorted_by_label(labels: Any, agents: int, **rest: Any) -> Any:
    owner = np.empty(len(labels), dtype=int)
    owner[np.argsort(labels, kind="stable")] = np.arange(len(labels)) * agents // len(labels)
    return owner


DEALS = {
    "places": (in_turn, False),
    "sorted by label": (sorted_by_label, True),
    "own label": (lambda labels, agents, **rest: labels.astype(int) % agents, True),
}


@pytest.mark.parametrize("deal", DEALS)
def test_a_deal_that_reads_labels_is_told_from_one_that_does_not(shards: Shards, deal: str) -> None:
    assert deal_trial(DEALS[deal][0], shards) == ("", DEALS[deal][1])


calls = itertools.count()
WRONG = {
    "another deal each time": (
        lambda labels, agents, **rest: (np.arange(len(labels)) + next(calls)) % agents,
        "Asked twice",
    ),
    "a record too few": (lambda labels, agents, **rest: in_turn(labels[1:], agents), "lost or doubled"),
    "no such agent": (lambda labels, agents, **rest: in_turn(labels, agents) + 1, "and there are agents 0 to"),
    "shares": (lambda labels, agents, **rest: np.linspace(0.0, 1.0, len(labels)), "wanted one agent for each record"),
}


@pytest.mark.parametrize("planted", WRONG)
def test_what_is_no_deal_is_found(shards: Shards, planted: str) -> None:
    deal, told = WRONG[planted]
    assert told in deal_trial(deal, shards)[0]
