"""A budget seen from inside the network: what a few curious agents learn of another agent's record.

Exact where the whole of what an observer receives is a linear image of Gaussian noise, and refused elsewhere: gossip on
the lower level alone (`ldp_single_level`, `dp_dsgd`), Gaussian noise on released states, and a problem whose per-record
gradient does not depend on the state (`mean_estimation`), averaged over all records seen so far. `privacy.network` has
the formulas, `privacy.network_rounding` the bound for float64, `ASSUMPTIONS` what both rest on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text
from scipy.sparse.csgraph import shortest_path

from decentral_dp.algorithms.decentralised.single_level import DpDsgd, LdpSingleLevel
from decentral_dp.errors import InputError, quoted
from decentral_dp.job import Job, build
from decentral_dp.numbers import delta_text, epsilon_text
from decentral_dp.privacy.accountants import gaussian_epsilon
from decentral_dp.privacy.network import NetworkBudget, pairwise
from decentral_dp.privacy.network_rounding import Sent, certified_epsilon, rounding
from decentral_dp.privacy.sensitivity import Array, summation_slack
from decentral_dp.problems.mean_estimation import MeanEstimation
from decentral_dp.scenario import load
from decentral_dp.schema import Scenario
from decentral_dp.summary import console
from decentral_dp.topology.graph import few

if TYPE_CHECKING:
    import pandas as pd

ASSUMPTIONS = (
    "The observer follows the protocol and remembers everything: the messages that its neighbours send it, and its own "
    "noise, records and messages. It knows the graph, all weights, steps, noise scales and counts, and may know every "
    "record but the one in question.",
    "It sees nothing else: links between other agents are private, their noise is secret and independent, and nobody "
    "publishes the values that agents hold in the end.",
    "One train record of the victim is replaced. Against a coalition that includes its holder it has no protection.",
    "ε is exact for real numbers and ideal noise. Certified is a bound that also holds for the float64 numbers and "
    "noise of these messages: it adds what rounding can tell, and is never above the certified ε for every message.",
)


@dataclass(frozen=True, eq=False)
class NetworkView:
    """What each observer learns of each victim in one job; NaN where the victim is an observer.

    distance: (o, m) links between the victim and the nearest member of the observer. epsilon: (o, m) at delta, exact in
    real arithmetic. certified: (o, m) bound for float64. epsilon_total, certified_total: (m,) the same against somebody
    who sees every message. name: of the graph. labels: of the agents.
    """

    pairs: NetworkBudget
    distance: NDArray[np.int64]
    delta: float
    epsilon: Array
    certified: Array
    epsilon_total: Array
    certified_total: Array
    name: str
    labels: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row for each observer and each victim outside it: the columns of `network.parquet`."""
        import pandas as pd

        row, victim = np.nonzero(~np.isnan(self.pairs.mu))
        names = np.array(["+".join(map(str, members)) for members in self.pairs.observers])
        return pd.DataFrame(
            {
                "observer": names[row],
                "victim": victim,
                "distance": self.distance[row, victim],
                "mu": self.pairs.mu[row, victim],
                "epsilon": self.epsilon[row, victim],
                "certified": self.certified[row, victim],
                "epsilon_total": self.epsilon_total[victim],
                "certified_total": self.certified_total[victim],
                "delta": self.delta,
            }
        )


def network_budget(job: Job, coalitions: Sequence[Sequence[int]] | None = None) -> NetworkView:
    """The exact budget of every pair (observer, victim); observers are the coalitions, by default every agent alone.

    Raises InputError, with the reason, for a job that cannot be priced exactly.
    """
    algorithm, problem = _priceable(job)
    rounds, counts = np.arange(job.rounds), job.counts["train"]
    step = algorithm.y.series(job.rounds)
    averaged = job.stream.averaged(rounds[:, None], counts)
    noise = job.noise["y"].at(rounds + 1, "gaussian")
    pull, local = step * (1.0 + problem.ridge), np.zeros(job.rounds)
    # ∇_y R = (1 + ridge) y − ridge x is taken at the agent's own message, or at the mixture of messages.
    contraction, share = (pull, local + 1.0) if isinstance(algorithm, LdpSingleLevel) else (local, 1.0 - pull)
    arrivals = np.diff(averaged, axis=0, prepend=0) > 0
    injected = step[:, None] * 2.0 * job.clip.y / averaged
    mixing = job.topology.mixing.toarray()
    pairs = pairwise(mixing, contraction, injected, noise, coalitions, arrivals, share)
    hops = np.asarray(shortest_path(mixing != 0.0, directed=False, unweighted=True))
    summed = injected * (summation_slack(averaged, problem.q) - 1.0)
    start, x = (abs(algorithm.start.get(channel, 0.0)) for channel in "yx")
    added = step * (job.clip.y + problem.ridge * x)
    nu = rounding(Sent(mixing, share, contraction, noise, problem.q, summed, start, added), pairs.observers)
    draws = job.rounds * problem.q * (job.n_agents - np.array([len(members) for members in pairs.observers]))
    distance = np.array([hops[list(members)].min(axis=0) for members in pairs.observers])
    delta = job.scenario.privacy.delta
    inside = np.isnan(pairs.mu)
    if inside.all():
        raise InputError("network: every agent is an observer, so no pair is left to price; leave some agents outside.")
    return NetworkView(
        pairs,
        distance.astype(np.int64),
        delta,
        np.where(inside, np.nan, gaussian_epsilon(np.where(inside, 0.0, pairs.mu), delta)),
        certified_epsilon(pairs, nu, draws, delta, job.budget.epsilon),
        gaussian_epsilon(pairs.total, delta),
        job.budget.epsilon,
        job.topology.name,
        job.topology.labels,
    )


def _priceable(job: Job) -> tuple[LdpSingleLevel | DpDsgd, MeanEstimation]:
    """Algorithm and problem of a job whose messages are exactly Gaussian; InputError with the reason for any other."""
    privacy, kind = job.scenario.privacy, job.scenario.algorithm.kind
    if not isinstance(job.algorithm, LdpSingleLevel | DpDsgd):
        raise InputError(
            f"algorithm.kind: {kind} sends messages that are not linear in each other, so what one agent learns from "
            'its neighbours cannot be priced exactly; use "ldp_single_level" or "dp_dsgd".'
        )
    if not isinstance(job.problem, MeanEstimation):
        raise InputError(
            f"problem.kind: gradients of {job.scenario.problem.kind} depend on the state, and so does what is clipped "
            'off them, so messages are not Gaussian and cannot be priced exactly; use "mean_estimation".'
        )
    if privacy.guarantee != "certified":
        raise InputError(
            f'privacy.guarantee: "{privacy.guarantee}" leaves records unclipped or without noise, so pairs of agents '
            'cannot be priced; use "certified".'
        )
    if job.mechanism != "gaussian":
        raise InputError(
            f"privacy.mechanism: sums of {job.mechanism} noise have no closed form, so what mixed messages hide cannot "
            'be priced exactly; use "gaussian".'
        )
    if privacy.delta == 0.0:
        raise InputError("privacy.delta: Gaussian noise has no finite ε at δ = 0; use a delta above 0, such as 1e-5.")
    if job.stream.kind == "minibatch":
        raise InputError(
            "problem.stream: a secret minibatch makes messages mixtures of Gaussian laws, which cannot be priced "
            'exactly; use "all", or records that accumulate.'
        )
    return job.algorithm, job.problem


def coalitions_of(texts: Sequence[str], job: Job) -> list[list[int]]:
    """Sets of agents from texts such as "0,3" or "Medici, Pazzi": agents as the graph calls them."""
    named = {label: agent for agent, label in enumerate(job.topology.labels)}
    out = []
    for text in texts:
        parts = [part.strip() for part in text.split(",")]
        for part in parts:
            if part not in named:
                raise InputError(
                    f"--coalition: no agent {quoted(part)}; this graph has {few(list(named), 'agent')}; "
                    "name some of them with commas between."
                )
        out.append([named[part] for part in parts])
    return out


def beside(scenario: Scenario, graphs: Sequence[str], agents: int) -> dict[str, NetworkView]:
    """The same scenario on other graphs, every agent observing alone. graphs: "torus" or "random_regular,degree=4"."""
    views = {}
    for graph in graphs:
        kind, *options = [part.strip() for part in graph.split(",")]
        table = ", ".join([f'kind = "{kind}"', f"agents = {agents}", *options])
        views[", ".join([kind.replace("_", " "), *options])] = network_budget(
            build(load(scenario, [f"topology={{{table}}}"]))
        )
    return views


def print_view(view: NetworkView, title: str) -> None:
    """ε by distance, and the largest certified one, beside those for every message; and what they rest on."""
    out, delta = console(), delta_text(view.delta)
    alone = all(len(members) == 1 for members in view.pairs.observers)
    out.print(Text(title or "Network", style="bold"))
    out.print(f"ε of one record at δ = {delta}, exact in real arithmetic for every pair, and certified for float64:")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("observer")
    for head in ("links away", "pairs", "least ε", "mean ε", "largest ε", "certified"):
        table.add_column(head, justify="right")
    groups = [("one agent", slice(None))] if alone and len(view.pairs.observers) == len(view.labels) else [
        (_spoken(members, view.labels), slice(row, row + 1)) for row, members in enumerate(view.pairs.observers)
    ]  # fmt: skip
    for name, rows in groups:
        epsilon, certified, distance = view.epsilon[rows], view.certified[rows], view.distance[rows]
        for links in np.unique(distance[~np.isnan(epsilon)]):
            there = (distance == links) & ~np.isnan(epsilon)
            values = epsilon[there]
            shown = (values.min(), values.mean(), values.max(), certified[there].max())
            numbers = [epsilon_text(float(v)) for v in shown]
            table.add_row(Text(name), str(links), str(values.size), *numbers)
            name = ""
    whole = view.epsilon_total
    total = [epsilon_text(float(v)) for v in (whole.min(), whole.mean(), whole.max(), view.certified_total.max())]
    table.add_row("every message", "–", str(len(view.labels)), *total)
    out.print(table)
    out.print()
    for sentence in ASSUMPTIONS:
        out.print(Text(f"– {sentence}"))


def _spoken(members: Sequence[int], labels: Sequence[str]) -> str:
    return ("agents " if len(members) > 1 else "agent ") + ", ".join(labels[i] for i in members)


def write_view(view: NetworkView, folder: Path, others: Mapping[str, NetworkView]) -> list[Path]:
    """network.parquet and the figures; `others`: the same scenario on other graphs, for one more figure."""
    from decentral_dp.plots.pairs import write_pairs

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out: {folder} exists already, and nothing is written over. Give a new or an empty folder.")
    folder.mkdir(parents=True, exist_ok=True)
    view.to_frame().to_parquet(folder / "network.parquet", index=False)
    return [folder / "network.parquet", *write_pairs(view, folder, others)]
