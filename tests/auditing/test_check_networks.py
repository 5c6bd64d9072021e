"""Every gossip algorithm where agents are absent and messages are lost or compressed: nothing leaks there either."""

from __future__ import annotations

import pytest

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.auditing.check import _NETWORKS, _networks, target_of
from decentral_dp.auditing.check import try_component as check

GOSSIP = sorted(kind for kind, entry in ALGORITHMS.items() if entry.setting == "gossip")
# Algorithms that must not be refused, by network.
RUN = {"absent agents": {"push_sum", "dp_dsgd"}, "compressed messages": {"choco", "dp_dsgd"}}


def test_every_network_is_tried() -> None:
    assert RUN.keys() == _NETWORKS.keys()
    assert set.union(*RUN.values()) <= set(GOSSIP)


@pytest.mark.parametrize("kind", GOSSIP)
def test_no_algorithm_fails(kind: str) -> None:
    for row in _networks(target_of(kind)[0], pairs=4, seed=0, rounds=4):
        assert row.verdict == "checked" or (row.verdict == "not tried" and kind not in RUN[row.name]), row


def test_centred_features_pass() -> None:
    """A mean of features: pairs of data sets in which all other records are 0 are among those tried."""
    content = {
        "seed": 1,
        "problem": {"kind": "classification", "data": "breast_cancer", "scale": "public_ranges"},
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": "dp_dsgd", "rounds": 8, "y": {"scale": 0.5}, "centring": True},
        "privacy": {"epsilon": 4.0, "clip": {"x": 1.0, "y": 0.1}, "share": {"x": 0.1, "y": 0.9}},
    }
    result = check(content, pairs=4, rounds=3)
    assert result.passed
    search = next(row for row in result.rows if row.name == "search")
    assert search.ratio == pytest.approx(1.0, rel=1e-6)
