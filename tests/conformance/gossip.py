"""Conformance of gossip algorithms: messages follow the formulas, and the plan lists all releases.

A test class that inherits `GossipConformance` names an algorithm, and has its formulas as a loop over agents.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from decentral_dp.algorithms.protocol import Planned
from decentral_dp.errors import InputError
from decentral_dp.privacy.clipping import RECORD, Unit
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support import naive
from tests.support.naive import CLIPS, READ, SAMPLING_NAMES, SAMPLINGS, UNCLIPPED, Scene, finished, ledgers, shares
from tests.support.replay import Noise, certified_change, conversation, loud, quiet, realised_change

Told = Sequence[Mapping[str, np.ndarray]]
Shares = list[dict[str, np.ndarray]]


_ZEROED = Unit(1, zeroed=True)


def largest(every: Shares, channel: str) -> np.ndarray:
    """Over the seeds, release by release."""
    return np.max([one[channel] for one in every], axis=0)


def with_fields_of(kind: type, algorithm: Any) -> Any:
    """The same algorithm as another class."""
    return kind(**{name: getattr(algorithm, name) for name in inspect.signature(kind).parameters})


def halved(planned: Mapping[str, Planned], *channels: str) -> dict[str, Planned]:
    """Account a replaced record as one that is only removed or only added."""
    half = {c: planned[c]._replace(sensitivity={k: s / 2 for k, s in planned[c].sensitivity.items()}) for c in channels}
    return {**planned, **half}


class GossipConformance:
    """table: the [algorithm] table. loop: a class with its formulas, unless `told` is overridden.

    small: what jobs are made of. kinds: problems of the comparisons with the loop.
    short: changes of the table to be compared with the loop too.
    moved: kind of record → the channels that one such record can move. bugs: subclasses whose plan is not their record.
    leaks: (subclass, kind of record) where something moves that counts as public.
    refused: (key, value or None to leave it out, text of the error).
    """

    table: ClassVar[Mapping[str, Any]]
    loop: ClassVar[Any]
    small: ClassVar[naive.Small] = naive.SMALL
    kinds: ClassVar[Sequence[str]] = ("logistic_hyperparameter", "quadratic", "crossed")
    longer: ClassVar[Mapping[str, Any]] = {}
    hosted: ClassVar[Sequence[str]] = ("crossed", "logistic_hyperparameter")
    blocks: ClassVar[Sequence[int]] = (1, 3)
    short: ClassVar[Sequence[Mapping[str, Any]]] = ()
    moved: ClassVar[Mapping[str, set[str]]]
    rounds: ClassVar[int] = 3
    seeds: ClassVar[int] = 6
    bugs: ClassVar[Sequence[type]] = ()
    leaks: ClassVar[Sequence[tuple[type, str]]] = ()
    refused: ClassVar[Sequence[tuple[str, Any, str]]] = ()

    def __init_subclass__(cls) -> None:
        # Without cases there is no such test; pytest would count it as skipped.
        for test, cases in {
            "test_short_runs_and_loops": cls.short,
            "test_a_planted_bug_is_refused_by_the_comparison_of_plan_and_record": cls.bugs,
            "test_a_planted_leak_is_seen_by_the_replay": cls.leaks,
            "test_refusals": cls.refused,
        }.items():
            setattr(cls, test, getattr(GossipConformance, test) if cases else None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        cases: dict[str, Sequence[Any]] = {
            "kind": self.kinds,
            "host": self.hosted,
            "brief": self.short,
            "bug": self.bugs,
            "leak": self.leaks,
            "refusal": self.refused,
        }
        for name in cases.keys() & set(metafunc.fixturenames):
            metafunc.parametrize(name, cases[name], ids=str if name == "brief" else None)

    def content(
        self, guarantee: str = "certified", mechanism: str = "laplace", sampling: Any = "full", **tables: Any
    ) -> dict[str, Any]:
        """A small scenario; keyword tables change it."""
        content = self.small.base({**self.table, **tables.pop("algorithm", {})}, guarantee, mechanism, **tables)
        content["problem"]["sampling"] = sampling
        return content

    def made(self, kind: str, content: Mapping[str, Any], *, priced: bool = False) -> Job:
        return self.small.made(kind, dict(content), priced=priced)

    def job(self, kind: str = "", *guarantee: str, **more: Any) -> Job:
        """Build a job without a budget, by default on the problem whose terms all read records; see `content`."""
        return self.made(kind or self.small.all_read, self.content(*guarantee, **more))

    def told(self, job: Job, kind: str, noise: Noise, clips: Mapping[str, float], **how: Any) -> Told:
        """Return all messages, by loops over agents and records."""
        messages: Told = self.loop(job, kind, noise, clips, **how).run()
        return messages

    def agrees(self, job: Job, kind: str, noise: Noise, clips: Mapping[str, float]) -> Job:
        naive.agree(job, noise, self.told(job, kind, noise, clips))
        return job

    def certified(self) -> Any:
        """The algorithm for replays of one agent."""
        raise NotImplementedError

    def scene(self, worst: bool) -> Scene:
        """Return the messages and received values of the agent in a replay."""
        raise NotImplementedError

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        """Asserts where the bound is reached; every: realised over certified change per seed, of which 0, 2, … are at
        worst."""
        raise NotImplementedError

    def data_sets(
        self, kind: str, norm: Any = "l1", sampling: Any = READ[0], seed: int = 0, algorithm: Any = None,
        problem: Any = None,
    ) -> list[list[dict[str, Any]]]:  # fmt: skip
        """Replay one agent on two data sets that differ in one record of this split, worst-case for even seeds."""
        worst, rng = seed % 2 == 0, np.random.default_rng([7, seed])
        pair = self.small.neighbours(rng, kind, worst)
        return naive.data_sets(
            algorithm or self.certified(), problem or self.small.problem, self.rounds, self.scene(worst), pair, norm,
            sampling, rng,
        )  # fmt: skip

    def published(self, said: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the published part of the last message."""
        return said

    # Messages follow the formulas ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("sampling", SAMPLINGS[:2], ids=SAMPLING_NAMES[:2])
    def test_without_noise_it_is_the_loop(self, kind: str, sampling: Any) -> None:
        job = self.agrees(self.job(kind, "none", sampling=sampling, algorithm=self.longer), kind, quiet, UNCLIPPED)
        # The real engine and mechanism say the same.
        last = finished(job).last_snapshot
        for channel, value in self.published(conversation(job)[-1]).items():
            np.testing.assert_allclose(last.released[channel], value, atol=1e-13)

    @pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
    def test_released_values_are_used_with_their_noise(self, kind: str, mechanism: str) -> None:
        for sampling in SAMPLINGS[:2]:
            self.agrees(self.job(kind, mechanism=mechanism, sampling=sampling), kind, loud, CLIPS)

    def test_printed_has_its_noise_where_the_paper_has_it(self, kind: str) -> None:
        self.agrees(self.job(kind, "as_published"), kind, loud, UNCLIPPED)

    def test_protocols_differ_only_by_noise(self) -> None:
        """With noise the two protocols differ, without it they are equal."""
        wide = self.content()
        wide["privacy"]["clip"] = dict.fromkeys("xyz", 1e6)
        jobs = [self.made(self.small.all_read, content) for content in (wide, self.content("as_published"))]
        with_noise, without = ([conversation(j, n)[-1]["x"] for j in jobs] for n in (loud, quiet))
        np.testing.assert_allclose(*without, atol=1e-12)
        assert np.abs(with_noise[0] - with_noise[1]).max() > 0.01

    def test_short_runs_and_loops(self, brief: Mapping[str, Any]) -> None:
        job = self.agrees(self.job(algorithm=brief), self.small.all_read, loud, CLIPS)
        assert finished(job).ledger.same_releases(job.ledger)

    # The ledger ------------------------------------------------------------------------------------------------------

    def free(self, kind: str) -> set[str] | None:
        """Return the channels without noise; None if not tested."""
        return None

    def hosted_content(self, mechanism: str, sampling: Any, blocks: int) -> dict[str, Any]:
        content = self.content("certified", mechanism, sampling, run={"blocks": blocks})
        content["problem"]["partition"] = {"kind": "dirichlet", "alpha": 3.0}
        content["problem"]["synthetic"] = {"dimension": 2, "records": 16, "test_records": 4}
        return content

    def same_ends(self, ends: Sequence[Mapping[str, np.ndarray]]) -> None:
        for end in ends[1:]:
            for channel, value in ends[0].items():
                np.testing.assert_allclose(end[channel], value, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("sampling", SAMPLINGS, ids=SAMPLING_NAMES)
    @pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
    def test_planned_is_recorded_however_the_agents_are_hosted(self, host: str, mechanism: str, sampling: Any) -> None:
        ends = []
        for blocks in self.blocks:
            # The plan does not know of blocks.
            job = self.made(host, self.hosted_content(mechanism, sampling, blocks), priced=not ends)
            assert ends or np.isfinite(job.budget.epsilon).all()
            outcome = finished(job)
            assert outcome.ledger.same_releases(job.ledger)
            assert not outcome.ledger.same_releases(job.ledger.rescale(1.0 + 1e-9)), "the comparison has no power"
            free = {c.channel for c in job.ledger.channels if not c.mechanism.charged}
            assert self.free(host) in (None, free)
            ends.append(outcome.last_snapshot.released)
        self.same_ends(ends)

    # Adversaries -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("sampling", READ, ids=SAMPLING_NAMES)
    @pytest.mark.parametrize("norm", ["l1", "l2"])
    @pytest.mark.parametrize("split", ["train", "validation"])
    def test_no_neighbour_exceeds_the_certificate_and_the_worst_reaches_it(
        self, split: str, norm: Any, sampling: Any
    ) -> None:
        every = [shares(self.data_sets(split, norm, sampling, seed), split, norm) for seed in range(self.seeds)]
        for seed, one in enumerate(every):
            for channel, share in one.items():
                assert (share <= 1.0 + 1e-9).all(), (channel, seed)
                assert channel in self.moved[split] or (share == 0.0).all(), (channel, seed)
        # A fresh batch may leave the record out.
        if sampling.kind != "fixed_batch":
            self.reached(split, sampling.kind, every)

    @pytest.mark.parametrize("sampling", READ[:2], ids=SAMPLING_NAMES[:2])
    def test_a_record_that_contributes_nothing_moves_half(self, sampling: Any) -> None:
        """Sensitivities are planned, carried and attained; algorithms with a memory are refused."""
        algorithm, problem = self.certified(), self.small.problem
        if not algorithm.memoryless:
            with pytest.raises(InputError, match="not derived for"):
                self.job(privacy={"neighbours": "zero_out"})
            return
        public, largest = naive.public_of(self.rounds, sampling, problem), 0.0
        plain, planned = (algorithm.planned_releases(public._replace(unit=unit)) for unit in (RECORD, _ZEROED))
        for split, seed in itertools.product(self.small.zeroed, range(6)):
            rng = np.random.default_rng([7, seed])
            one, _ = self.small.neighbours(rng, split, seed % 2 == 0)
            other = {k: (rows.copy(), labels.copy()) for k, (rows, labels) in one.items()}
            # Every term of this kind of records is a multiple of the features.
            other[split][0][0] = 0.0
            scene = self.scene(seed % 2 == 0)
            runs = naive.data_sets(algorithm, problem, self.rounds, scene, (one, other), "l1", sampling, rng, _ZEROED)
            for share in shares(runs, split, "l1").values():
                assert (share <= 1.0 + 1e-9).all()
                largest = max(largest, float(share.max(initial=0.0)))
            for channel, sizes in certified_change(runs[0], split).items():
                none = np.zeros((sizes.size, 1))
                np.testing.assert_allclose(planned[channel].sensitivity.get(split, none)[:, 0], sizes, rtol=1e-12)
                np.testing.assert_allclose(plain[channel].sensitivity.get(split, none)[:, 0], 2 * sizes, rtol=1e-12)
        assert largest > 0.9

    def test_the_released_plan_states_what_the_replay_carries(self) -> None:
        """The sensitivity tested above is the planned one."""
        for sampling in READ:
            planned = self.certified().planned_releases(naive.public_of(self.rounds, sampling, self.small.problem))
            run = self.data_sets("train", sampling=sampling)[0]
            for split in ("train", "validation"):
                for channel, sizes in certified_change(run, split).items():
                    listed = planned[channel].sensitivity.get(split, np.zeros((sizes.size, 1)))
                    np.testing.assert_allclose(listed[:, 0], sizes, rtol=1e-12)

    def test_a_forgotten_clip_exceeds_the_certificate(self) -> None:
        found = shares(self.data_sets("train", problem=self.small.unclipped), "train", "l1")
        assert min(found[channel].max() for channel in self.moved["train"]) > 10.0

    # Planted bugs and refusals ---------------------------------------------------------------------------------------

    def test_a_planted_bug_is_refused_by_the_comparison_of_plan_and_record(self, bug: type) -> None:
        job = self.job()
        recorded, planned = ledgers(job, with_fields_of(bug, job.algorithm))
        assert not recorded.same_releases(planned)
        recorded, planned = ledgers(job, job.algorithm)
        assert recorded.same_releases(planned)

    def test_a_planted_leak_is_seen_by_the_replay(self, leak: tuple[type, str]) -> None:
        """Replays on neighbouring data sets reveal bugs that plan and record share."""
        broken = with_fields_of(leak[0], self.certified())
        with pytest.raises(ValueError, match="counts as public"):
            realised_change(*self.data_sets(leak[1], algorithm=broken))

    def test_refusals(self, refusal: tuple[str, Any, str]) -> None:
        key, value, words = refusal
        content = self.content()
        content["algorithm"] = {k: v for k, v in (content["algorithm"] | {key: value}).items() if v is not None}
        with pytest.raises(InputError, match=words):
            self.made(self.small.all_read, content)
