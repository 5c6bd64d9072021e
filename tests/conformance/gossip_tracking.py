"""Conformance of gossip algorithms that track the residual of a linear system, and planted errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from decentral_dp.algorithms.protocol import Planned
from tests.conformance.gossip import GossipConformance
from tests.support import naive
from tests.support.naive import CLIPS, SAMPLING_NAMES, SAMPLINGS, UNCLIPPED, finished
from tests.support.replay import loud


class Asked:
    """A shard, or a batch of it, that notes down every query and the number of the draw it is made of."""

    def __init__(self, of: Any, log: list[tuple[int, str]], draw: int = -1) -> None:
        self._of, self._log, self._draw = of, log, draw

    def __getattr__(self, name: str) -> Any:
        if self._draw >= 0:
            self._log.append((self._draw, name))
        return getattr(self._of, name)

    def batch(self, t: int, draw: int, kept: bool) -> Any:
        assert kept
        return Asked(self._of.batch(t, draw, kept=kept), self._log, draw)


class Ahead:
    """A shard, or a batch of it, whose Hessian is multiplied by more than the public difference it is asked for."""

    def __init__(self, of: Any, hidden: dict[str, np.ndarray]) -> None:
        self._of, self._hidden = of, hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def batch(self, *args: Any, **more: Any) -> Any:
        return Ahead(self._of.batch(*args, **more), self._hidden)

    def lower_hvp(self, x: Any, y: Any, along: Any) -> Any:
        return self._of.lower_hvp(x, y, along + self._hidden["along"])

    def lower_hessian_product(self, x: Any, y: Any, along: Any) -> Any:
        return self._of.lower_hessian_product(x, y, along + self._hidden["along"])


def tracked_twice(planned: Mapping[str, Planned], tracker: str, algorithm: Any) -> dict[str, Planned]:
    """Plan the increment of the tracker as a difference of two clipped means."""
    plan = planned[tracker]
    k = (plan.indices % algorithm.releases_per_round - 1 - algorithm.inner)[:, None]
    twice = {c: np.where(k > 1, 2.0, 1.0) * s for c, s in plan.sensitivity.items()}
    return {**planned, tracker: plan._replace(sensitivity=twice)}


class TrackingConformance(GossipConformance):
    """Conformance of algorithms that update a tracked residual by one product along a difference.

    `separately` of the loop selects the paper's difference of two means.
    differs: the first release that a clip makes different. asked: protocol → draw and query, of one round.
    """

    tracked_on: ClassVar[Sequence[str]]
    differs: ClassVar[str]
    asked: ClassVar[Mapping[str, Sequence[tuple[int, str]]]]

    @pytest.mark.parametrize("sampling", SAMPLINGS[:2], ids=SAMPLING_NAMES[:2])
    def test_where_no_clip_binds_it_is_the_tracking_of_the_paper(self, sampling: Any) -> None:
        """One product along a difference equals a difference of products, with noise, unless a clip binds."""
        for kind in self.tracked_on:
            wide, tight = self.content(sampling=sampling), self.content(sampling=sampling)
            wide["privacy"]["clip"] = dict.fromkeys("xyz", 1e6)
            self.agrees(self.made(kind, wide), kind, loud, UNCLIPPED)
            clips = CLIPS | {"z": 0.01}
            tight["privacy"]["clip"] = clips
            job = self.made(kind, tight)
            # The first increment is the same: it starts from 0.
            with pytest.raises(AssertionError, match=self.differs):
                naive.agree(job, loud, self.told(job, kind, loud, clips, separately=True))

    @pytest.mark.parametrize("protocol", ["released", "as_published"])
    def test_one_batch_serves_the_inverse_loop_of_the_certified_form_only(
        self, protocol: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Query retained terms once per round and one product per increment; the published form draws new samples."""
        log: list[tuple[int, str]] = []
        job = self.job(self.small.all_read, "certified" if protocol == "released" else "as_published")
        own = type(job.algorithm).step
        monkeypatch.setattr(type(job.algorithm), "step", lambda a, t, dataset, s: own(a, t, Asked(dataset, log), s))
        finished(job)
        assert log == [*self.asked[protocol]] * job.rounds
