"""Auditing fresh batches by exact likelihood ratios: several exchanges per round, each with a fresh batch.

As in test_audit_family, but of the two records of the kind that is replaced every mean reads one, drawn in secret.
Given the transcript so far a release is then a mixture over the draw, and the mixtures of different exchanges are
independent. The records are worst: both say the opposite in one data set, and one of them in the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from decentral_dp.bounded import Bounded, Split
from decentral_dp.data import Sampling
from decentral_dp.engines.host import Host
from decentral_dp.engines.protocol import AgentNode
from decentral_dp.exchange import Bundle
from decentral_dp.participants import LocalDataset
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.privacy.accounting.loss_distributions import amplify
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import Streams, seeded_root
from tests.support.release_cost_oracle import grid
from tests.support.replay import Script
from tests.support.transcript_settings import CLIP, ROUNDS, WEIGHT, Setting, log_law


@dataclass(frozen=True)
class Sampled(Setting):
    """One of two records a mean, of the kind that is replaced; the other kind has a single one."""

    def drive(self, side: int, releaser: Callable[[], Any], only: int | None = None) -> Host:
        """only: which of the two records every mean reads; None to draw."""
        records: dict[Any, Any] = {}
        for split in ("train", "validation"):
            labels = np.array([-1.0 if side else 1.0, -1.0]) if split == self.kind else np.ones(1)
            if only is not None and split == self.kind:
                labels = labels[[only]]
            rows = np.tile([1e4, 0.0], (labels.size, 1))
            records[split] = [self.problem.prepare(rows, labels, "l1")] * self.copies
        agents, weights = np.arange(self.copies), np.full(self.copies, WEIGHT)
        sampling = Sampling("fixed_batch", batch=1) if only is None else Sampling("full")
        batches = Streams(seeded_root(side, b"sampled"), "batch", agents)
        clip = Clip("l1", x=CLIP, y=CLIP, z=CLIP)
        dataset = LocalDataset(agents, self.problem, records, weights, sampling, clip, batches)
        host = Host(AgentNode(agents, self.program, dataset, releaser, (0,), sp.csr_array(weights[:, None])), ROUNDS)
        said = host.advance()
        for _ in range(ROUNDS * self.program.releases_per_round):
            said = host.advance(np.full((1, said.shape[1]), 5.0))
        return host

    def scores(self, said: list[Bundle]) -> np.ndarray:
        wanted = {}
        for pair in [(side, only) for side in (0, 1) for only in (0, 1)]:
            script = Script(said)
            self.drive(pair[0], lambda script=script: script, pair[1])
            wanted[pair] = script.wanted
        total = np.zeros(self.copies)
        for index in range(1, len(said)):
            laws = {pair: self.law(index, said[index], values[index]) for pair, values in wanted.items()}
            total += np.logaddexp(laws[0, 0], laws[0, 1]) - np.logaddexp(laws[1, 0], laws[1, 1])
        return total

    def law(self, index: int, said: Bundle, values: Any) -> np.ndarray:
        """log-probability of all releases of one index, per copy."""
        total = np.zeros(self.copies)
        for channel, value in values.items():
            if isinstance(value, Bounded):
                scale = self.noise[channel].scales(index // self.program.releases_per_round, "laplace")[:1, None]
                integers = np.rint((said[channel] - value.public) / grid(scale, "laplace", 1))
                total += log_law(integers, value.private, scale, "laplace").sum(axis=1)
        return total


def apart(ledger: Ledger, split: Split) -> float:
    """ε with amplification channel by channel."""
    lines = [c for c in ledger.charged_channels if split in c.sensitivity]
    return sum(float(amplify(c.sensitivity[split][:, 0] / c.scale[:, 0], c.rate[split][:, 0]).sum()) for c in lines)


@pytest.mark.parametrize(
    ("name", "split"), [("ldp_dsbo", "train"), ("spdb", "train"), ("spdb", "validation"), ("bsa", "train")]
)
def test_fresh_batches_in_every_exchange_cost_their_charge(name: str, split: Split) -> None:
    """The largest likelihood ratio met. x and y of SPDB share a batch: amplified one by one they would be too cheap."""
    made = Sampled(name, kind=split, size=0.8, copies=600)
    said, ledger = made.transcripts(0, seed=5)
    certified = float(account(ledger, 0.0).records[split].epsilon_pure[0])
    largest = float(np.abs(made.scores(said)).max())
    assert 0.99 * certified <= largest <= certified
    rates = np.concatenate(
        [c.rate[split][c.sensitivity[split] > 0.0] for c in ledger.charged_channels if split in c.sensitivity]
    )
    assert (rates == 0.5).all()
    if (name, split) == ("spdb", "train"):
        assert largest > 1.05 * apart(ledger, split)
