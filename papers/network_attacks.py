"""Attacks on published ε for honest-but-curious neighbours, compared with the claim and the certificate.

`python -m papers.network_attacks` prints them.

Noise has one standard deviation, graphs have their usual weights (1/3 on paths and rings), and the record of one agent
moves its noiseless message by D. All results are in μ: the two views are as distinguishable as two Gaussian
distributions of standard deviation 1 whose means differ by μ. The claim is the μ of linear gossip, which published
calculators use for training. It fails in three ways:

    feedback     a hidden agent's gradient turns with its state, and repeats a weakened message at full clip;
    curvature    hidden agents with ηh = 1 remove the noise that linear gossip relies on;
    turning      the victim's contributions change their sign, where linear gossip assumes equal ones.

The last case tests the certificate: the μ of the senders that the observer selected is no bound if it selects them by
earlier messages. The μ of all possible senders is a bound.

Four games have agents that are offline, on networks that lose messages, deliver them late or change: an agent that does
not send keeps its last message. The claim there is the μ of agents that add noise in every round.

Two games test the accounting of pairwise noise, against an adversary that sees all messages, with the noise of the
package. They refute no claim; draws, keys and colluders must agree with the accounting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text
from scipy.special import ndtr, ndtri

from decentral_dp.auditing.network_gossip import pairwise
from decentral_dp.bounded import Array, Bounded, Sensitivity
from decentral_dp.data.dataset import public_generator
from decentral_dp.formatting import at_least_text, epsilon_text
from decentral_dp.participants import Network
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.accounting.hidden_states import HiddenRounds, hidden_mu
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.pair_noise import PairDraws, PairNoise
from decentral_dp.privacy.randomness import Streams, seeded_root, tag
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from decentral_dp.reporting.terminal import console
from decentral_dp.simulation.statistics import bound_by_counts
from decentral_dp.topology import build_topology
from decentral_dp.topology.over_time import OverTime, fixed_weights, matching, off_diagonal

RUNS = 50_000
# δ of the certified ε.
DELTA = 1e-5
_ROOT = float(np.sqrt(2.0 * np.pi))
# Range of quadratures in standard deviations.
_TAIL = 7.0


class Attack(NamedTuple):
    """The result of one observer, in μ.

    Args:
        case: what happens, where, and for how long.
        method: "exact" (Gaussian laws), "integral" (total variation of the views) or "runs" (a lower bound).
        shown: μ is at least this.
        claimed: μ of linear gossip; of the selected messages, if the observer selects senders; of fresh noise in every
            round, if agents are offline; NaN for pairwise noise.
        certified: by `hidden_states.hidden_mu`, at most `everything`; by `correlated_noise` for pairwise noise.
        everything: μ against an adversary that sees all messages and all shared noise; NaN if the victim's message has
            no noise.
    """

    case: str
    method: Literal["exact", "integral", "runs"]
    shown: float
    claimed: float
    certified: float
    everything: float

    @property
    def epsilon(self) -> float:
        """Return the certified ε at δ = 1e-5."""
        return float(gaussian_epsilon(self.certified, DELTA))

    @property
    def holds(self) -> bool:
        """Whether no more is shown than is certified."""
        return self.shown <= self.certified * (1.0 + 1e-9)

    @property
    def claim(self) -> Literal["refuted", "stands", "–"]:
        """Whether more is shown than is claimed."""
        if np.isnan(self.claimed):
            return "–"
        return "refuted" if self.shown > self.claimed * (1.0 + 1e-9) else "stands"


@dataclass(frozen=True)
class NetworkAudit:
    """Results of all attacks. runs: of each of two data sets. confidence: of each bound from runs.

    Example:
        >>> found = audit_network(runs=1000)
        >>> found.status, max(found.attacks, key=lambda attack: attack.shown / attack.claimed).case
        ('ok', 'relay of signs, path 8')
    """

    attacks: tuple[Attack, ...]
    runs: int
    confidence: float

    @property
    def status(self) -> Literal["ok", "refuted"]:
        """ "refuted" where some attack shows more than is certified."""
        return "ok" if all(attack.holds for attack in self.attacks) else "refuted"


def audit_network(runs: int = RUNS, confidence: float = 0.95, seed: int = 0) -> NetworkAudit:
    """Attack claimed and certified privacy costs of honest-but-curious neighbours in training.

    Args:
        runs: number of runs on each of two data sets, for the attacks that no quadrature reaches.
        confidence: confidence level of each bound from runs.
        seed: seed of the noise of these runs.

    Returns:
        The result of each attack, with both privacy costs.

    Example:
        >>> shown = audit_network(runs=1000).attacks[2]
        >>> shown.case, round(shown.shown, 4), round(shown.claimed, 4), round(shown.certified, 4)
        ('curvature, star 6', 13.4252, 8.775, 13.7113)
    """
    return NetworkAudit(tuple(_attacks(runs, 1.0 - confidence, seed)), runs, confidence)


def _attacks(runs: int, risk: float, seed: int) -> Iterator[Attack]:
    path, star, ring, long = (_mixing_matrix(*graph) for graph in (("path", 3), ("star", 6), ("ring", 16), ("path", 8)))
    last = WatchedGossip(path, 2, 0, _impulse(2, 2.0))
    for who, variance in (("path 3", 2.0 / 9.0), ("active", 1.0 / 9.0)):
        shown = total_variation_mu(sign_feedback(variance, 0.0))
        # No factor bounds a sign.
        yield Attack(f"sign feedback, {who}", "integral", shown, last.linear(), 2.0, 2.0)

    leaves = WatchedGossip(star, 2, 1, np.full(100, 2.0))
    steep = np.repeat([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]], 100, axis=0)
    yield leaves.attack("curvature, star 6", "exact", leaves.linear(share=steep))

    next_door = WatchedGossip(ring, 0, 1, np.ones(100))
    still = np.ones((100, 16))
    still[:, 1] = 0.0
    yield next_door.attack("own curvature, ring 16", "exact", next_door.linear(share=still))
    turning = next_door.linear(sign=np.resize([1.0, -1.0], 100))
    yield next_door.attack("turning sign, ring 16", "exact", turning)

    slow = WatchedGossip(path, 2, 0, _impulse(6, 2.0))
    shown = counted_mu(*tanh_feedback(runs, seed), risk)
    # The gradient −tanh of h is 1-smooth, and pulls states apart by 1 + 1.
    yield slow.attack("tanh feedback, path 3", "runs", shown, np.array([[1.0], [2.0], [1.0]]))

    far = WatchedGossip(long, 7, 0, _impulse(7, 8.0))
    shown = counted_mu(*relay(runs, seed), risk)
    yield Attack("relay of signs, path 8", "runs", shown, far.linear(), 8.0, 8.0)

    for case, game in OFFLINE.items():
        yield game.attack(case)

    either, both = (_picked_price(0.5, children) for children in ([4], [4, 5]))
    shown = total_variation_mu(picked_child(0.5))
    yield Attack("selected senders", "integral", shown, either, both, float("nan"))

    for who, shared in (
        ("shared noise, ring 16", SharedNoise.on_a_ring(16, 4.0, 0)),
        ("shared noise, colluder", SharedNoise.on_a_ring(16, 4.0, 1)),
        ("zero sum, 2 colluders", SharedNoise.on_a_ring(8, 3.0, 2, all_pairs=True)),
        ("unlike scales, path 6", SharedNoise.on_a_path(6)),
    ):
        shown = counted_mu(*shared.scores(runs, seed), risk)
        everything = (
            2.0 * float(np.sqrt(shared.rounds)) / float(shared.noise.own_deviations(np.array([shared.victim]))[0])
        )
        yield Attack(who, "runs", shown, float("nan"), shared.ledger_mu, everything)


class WatchedGossip(NamedTuple):
    """Gossip of noise 1, observed by one agent. mixing: I + W. movement: D, (T,)."""

    mixing: Array
    observer: int
    victim: int
    movement: Array

    def linear(self, share: Array | None = None, sign: Array | float = 1.0) -> float:
        """μ where all gradients are linear: exact.

        share: (T, m) what a step keeps of the mixture, 1 − ηh; by default all. sign: (T,) of the contributions.
        """
        m, rounds = len(self.mixing), self.movement.size
        pushed = np.zeros((rounds, m))
        pushed[:, self.victim] = sign * self.movement
        still, noise = np.zeros(rounds), np.ones((rounds, m))
        budget = pairwise(self.mixing - np.eye(m), still, pushed, noise, [[self.observer]], share=share)
        return float(budget.mu[0, self.victim])

    def attack(self, case: str, method: Literal["exact", "runs"], shown: float, factors: Array | float = 1.0) -> Attack:
        """Return the empirical μ and the privacy costs. factors: (m, 1) or a number, of each agent's step."""
        m, rounds = len(self.mixing), self.movement.size
        visible = np.repeat(self.mixing[[self.observer]] != 0.0, rounds, axis=0)
        noise = np.ones((rounds, m))
        noise[:, self.observer] = np.inf
        every = np.broadcast_to(factors * self.mixing, (rounds, m, m))
        everything = float(np.linalg.norm(self.movement))
        movement = np.repeat(self.movement[:, None], m, axis=1)
        certified = min(_certified_mu(every, noise, visible, self.victim, movement), everything)
        return Attack(case, method, shown, self.linear(), certified, everything)


class OfflineGossip(NamedTuple):
    """Gossip of noise 1 whose agents are offline in some rounds, by public Bernoulli draws.

    Args:
        kind: kind of the graph.
        agents: m.
        rounds: T.
        reads: number of first rounds in which a record changes the victim's message by 1.
        seed: seed of the draws.
        observer: an agent.
        victim: another one.
        offline: probability of an agent in a round.
        drop: probability of a message.
        delay: rounds that a message takes.
        pairs: whether a matching of the links is drawn in each round.
    """

    kind: str
    agents: int
    rounds: int
    reads: int
    seed: int
    observer: int
    victim: int
    offline: float
    drop: float = 0.0
    delay: int = 0
    pairs: bool = False

    def network(self) -> OverTime:
        """Return which messages are sent and arrive, round by round."""
        links = off_diagonal(build_topology(self.kind, self.agents).mixing)
        made = (matching if self.pairs else fixed_weights)(links, self.seed)
        return replace(made, offline=self.offline, drop=self.drop, delay=self.delay)

    def shown(self) -> float:
        """Compute μ of what the observer receives. A message is a row of coefficients of noise and record."""
        m, network = self.agents, self.network()
        state, held = np.zeros((2, m, self.rounds * m + 1))
        sent, received = [], []
        for t in range(self.rounds + 1):
            message = state.copy()
            if t:
                message[:, (t - 1) * m : t * m] += np.eye(m)
            received.append(message[network.sent_weights(t).toarray()[self.observer] != 0.0])
            held = np.where(_online(network, t)[:, None], message, held)
            sent.append(message)
            arrives = network.received_weights(t).toarray()
            state = (1.0 - arrives.sum(axis=1))[:, None] * held + arrives @ sent[max(0, t - network.delay)]
            state[self.victim, -1] += float(t < self.reads)
        seen = np.concatenate(received)
        # Its own noise the observer knows.
        seen[:, self.observer : -1 : m] = 0.0
        shift, covariance = seen[:, -1], seen[:, :-1] @ seen[:, :-1].T
        return float(np.sqrt(max(0.0, shift @ np.linalg.pinv(covariance, rcond=1e-13, hermitian=True) @ shift)))

    def price(self, held: bool = True) -> float:
        """Compute the privacy cost of the pair. A late message is an additional agent that keeps a copy for a round.

        held: whether agents that do not send hold their last message; else they add noise in every round.
        """
        m, network, size = self.agents, self.network(), self.agents * (1 + self.delay)
        noise, visible = np.zeros((self.rounds, size)), np.ones((self.rounds, size), dtype=np.bool_)
        movement, factors = np.zeros((self.rounds, size)), []
        for t in range(self.rounds):
            arrives = network.received_weights(t).toarray()
            passes = np.eye(size, k=-m)
            passes[:m] = 0.0
            passes[:m, :m] = np.diag(1.0 - arrives.sum(axis=1))
            passes[:m, size - m :] += arrives
            sends = _online(network, t + 1) | (not held)
            passes[:m][~sends] = np.eye(m, size)[~sends]
            factors.append(passes)
            noise[t, :m] = sends
            visible[t, :m] = network.sent_weights(t + 1).toarray()[self.observer] != 0.0
            visible[t, self.observer] = True
            # Before a copy of a message there is the public start.
            visible[t, m:] = visible[t - 1, : size - m] if t else True
            movement[t, :m] = sends * float(t < self.reads)
        noise[:, self.observer :: m] = np.inf
        return _certified_mu(np.stack(factors), noise, visible, self.victim, movement)

    def attack(self, case: str) -> Attack:
        """Return the empirical μ and the privacy costs."""
        network = self.network()
        everything = float(np.sqrt(sum(_online(network, t + 1)[self.victim] for t in range(self.reads))))
        return Attack(case, "exact", self.shown(), self.price(held=False), min(self.price(), everything), everything)


def _certified_mu(factors: Array, noise: Array, visible: NDArray[np.bool_], victim: int, movement: Array) -> float:
    """Compute μ of one victim for R of each round, (T, m, m)."""
    rounds, m = noise.shape
    hidden = HiddenRounds(factors, np.arange(rounds), noise, visible, np.zeros((rounds, m)), np.zeros(m))
    return float(hidden_mu(hidden, [victim], movement)[0])


def _online(network: OverTime, t: int) -> NDArray[np.bool_]:
    online = network.online(t)
    return np.ones(network.n_agents, dtype=np.bool_) if online is None else online


OFFLINE: Mapping[str, OfflineGossip] = {
    "offline, star 6": OfflineGossip("star", 6, 8, 1, 113, 1, 0, 0.3),
    "offline, drop, ring 6": OfflineGossip("ring", 6, 12, 3, 8, 1, 3, 0.4, drop=0.3),
    "offline, late, star 5": OfflineGossip("star", 5, 10, 1, 14, 1, 0, 0.3, delay=1),
    "offline, matching of 6": OfflineGossip("complete", 6, 10, 2, 97, 0, 2, 0.4, pairs=True),
}


class SharedNoise(NamedTuple):
    """Independent noise of standard deviation at least 1 and pairwise noise, against an adversary of all messages.

    colluders: agents that share their secrets with it. victim: its record moves its message by 2, in alternating
    directions.
    """

    noise: PairNoise
    colluders: tuple[int, ...]
    victim: int
    rounds: int

    @classmethod
    def on_a_ring(cls, agents: int, ratio: float, colluders: int, all_pairs: bool = False) -> SharedNoise:
        """Neighbours, or every two agents, share noise of `ratio` times the deviation of own noise.

        The neighbours on one side collude.
        """
        noise = PairNoise(ratio, colluders, Network(build_topology("ring", agents).mixing), all_pairs=all_pairs)
        return cls(noise, tuple(range(1, 1 + colluders)), 0, 4)

    @classmethod
    def on_a_path(cls, agents: int) -> SharedNoise:
        """Own noise is 1, 2 or 3, and links share 1, 2, … in turn."""
        network, links = Network(build_topology("path", agents).mixing), np.arange(agents - 1)
        ratio = np.zeros((agents, agents))
        ratio[links, links + 1] = ratio[links + 1, links] = 1.0 + links
        return cls(PairNoise(ratio, 0, network, np.resize([1.0, 2.0, 3.0], agents)), (), 1, 4)

    @property
    def ledger_mu(self) -> float:
        """μ as a ledger charges it."""
        return 2.0 * float(np.sqrt(sum(self.noise.gain(t)[self.victim] ** -2.0 for t in range(self.rounds))))

    def scores(self, runs: int, seed: int) -> tuple[Array, Array]:
        """(runs,) log-likelihood ratios in either data set, each of a coordinate of the package's own releases.

        The direction of a round turns that of the round before, or follows the sign of what the victim sent then.
        """
        network, root = self.noise.network, seeded_root(seed, b"audit of shared noise")
        m, zero = network.n_agents, np.zeros((network.n_agents, 2 * runs))
        everybody = np.arange(m)
        schedules = {"y": NoiseSchedule(np.ones(m), np.zeros(m))}
        streams, pairs = Streams(root, "noise", everybody), PairDraws(self.noise, root, everybody)
        releaser = ScheduledReleaser(GAUSSIAN, schedules, streams, pairs=pairs)
        value = Bounded(zero, zero, {"train": Sensitivity(np.ones(m), np.ones(m), None)}, "l2")
        # A colluder has the seeds of its edges.
        honest = np.setdiff1d(everybody, self.colluders)
        disclosed = PairDraws(self.noise, root, everybody, np.array(self.colluders, dtype=np.int64))
        grid = GAUSSIAN.grid(np.ones(1), 2 * runs)[:, None]
        information = np.linalg.inv(self.noise.covariance(0, honest))[list(honest).index(self.victim)]
        side = np.repeat([1.0, -1.0], runs)
        way, score = np.ones(2 * runs), np.zeros(2 * runs)
        for t in range(self.rounds):
            sent = releaser.release(t + 1, {"y": value})["y"].copy()
            sent[self.victim] += way * side
            unknown = sent - grid * disclosed.sums(t + 1, t + 1, tag("y"), np.broadcast_to(1.0 / grid, (1, 2 * runs)))
            score += 2.0 * way * (information @ unknown[honest])
            way = -way if t % 2 == 0 else np.sign(sent[self.victim])
        return score[:runs], score[runs:]


def _mixing_matrix(kind: str, agents: int) -> Array:
    mixed: Array = np.eye(agents) + build_topology(kind, agents).mixing.toarray()
    return mixed


def _impulse(rounds: int, size: float) -> Array:
    return np.asarray(np.where(np.arange(rounds) == 0, size, 0.0))


def _density(x: Array) -> Array:
    return np.asarray(np.exp(-0.5 * x * x) / _ROOT)


def total_variation_mu(distance: float) -> float:
    """Invert δ(0) = 2Φ(μ/2) − 1.

    Example:
        >>> round(total_variation_mu(0.38292492254802624), 9)
        1.0
    """
    return float(2.0 * ndtri(0.5 + 0.5 * distance))


def counted_mu(first: Array, second: Array, risk: float) -> float:
    """Bound μ from below, except with probability `risk`, by counts of the scores (n,) in either data set."""
    return bound_by_counts(first, second, 0.0, risk, np.linspace(0.05, 0.95, 91), "μ")


def sign_feedback(variance: float, epsilon: float) -> float:
    """Compute δ(ε) of two rounds on the path v – h – o, weights w = 1/3, where h's gradient is −sign(its state).

    In round 0, o receives a part k of h's next state. In round 1 it receives, with u = ±1 + N(0, 1),

        y = w u + sign(k + w u) + N(0, 1).

    Args:
        variance: variance of k: 2/9 if h and o add their noise, 1/9 if o sends 0 instead.
        epsilon: ε.
    """
    w, spread = 1.0 / 3.0, np.sqrt(10.0) / 3.0
    x = np.linspace(-_TAIL, _TAIL, 301)
    k, weight = np.sqrt(variance) * x[:, None], _density(x) * (x[1] - x[0])
    y = np.linspace(-_TAIL - 2.0, _TAIL + 2.0, 4001)

    def law(side: float) -> Array:
        out = np.zeros((x.size, y.size))
        for turn in (-1.0, 1.0):
            away = y - turn - w * side
            # Given y − turn, u is normal with variance 1/(1 + w²).
            mean = side + w / spread**2 * away
            out += _density(away / spread) / spread * ndtr(turn * spread * (mean + k / w))
        return out

    excess = np.maximum(law(1.0) - np.exp(epsilon) * law(-1.0), 0.0)
    return float(weight @ excess.sum(axis=1) * (y[1] - y[0]))


def picked_child(bend: float) -> float:
    """Compute the total variation of messages to an observer that selects its senders.

    Two hidden agents hold m_1, m_2 = ±1/2 + N(0, 1). A neighbour sends bend·(|m_1| − |m_2|) + N(0, 1); the observer
    then receives the noiseless child of the selected one.
    """
    # Simpson's rule on both sides of 0, where |m| has its kink.
    m, y = np.linspace(-_TAIL, _TAIL, 241), np.linspace(0.0, _TAIL, 121)
    weight_m, weight_y = ((x[1] - x[0]) / 3.0 * np.array([1.0, *[4.0, 2.0] * (x.size // 2)]) for x in (m, y))
    weight_m[-1] = weight_y[-1] = weight_y[0]
    pull = bend * np.abs(m)
    points = _density(y[:, None, None] - pull[:, None] + pull)

    def law(side: float) -> Array:
        return np.asarray(points @ (weight_m * _density(m - side)) * _density(m - side))

    # Both children are equal by symmetry, and so are the larger of p − q and 0 and that of q − p.
    return float(weight_y @ np.abs(law(0.5) - law(-0.5)) @ weight_m)


def _picked_price(bend: float, children: list[int]) -> float:
    """Compute μ for these children as senders: agents v, h_1, h_2, the neighbour, and a child of each h."""
    passes = np.zeros((6, 6))
    passes[[1, 2, 4, 5], [0, 0, 1, 2]], passes[3, [1, 2]] = 1.0, bend
    ridge = np.zeros((6, 6))
    ridge[[4, 5], [4, 5]] = 1.0
    noise = np.full((4, 6), 1e-6)
    noise[:, 1:4] = 1.0
    visible = np.zeros((4, 6), dtype=np.bool_)
    visible[2, 3] = visible[3, children] = True
    movement = np.zeros((4, 6))
    movement[0, 0] = 1.0
    return _certified_mu(np.stack([passes, passes, passes, ridge]), noise, visible, 0, movement)


def tanh_feedback(runs: int, seed: int) -> tuple[Array, Array]:
    """Play the path v – h – o for 6 rounds, where h's gradient is −tanh(its state), and score what o saw.

    The score is the log-likelihood ratio of h's messages, by a filter for what o does not know of v's: with
    m_v = c + r and c known, r_0 = ±1 + N(0, 1) and r_{t+1} = ⅔ r_t + N(0, 1), on a grid.

    Returns:
        (runs,) scores in either data set.
    """
    r = np.linspace(-6.0, 6.0, 61)
    step = _density(r - 2.0 / 3.0 * r[:, None])
    step /= step.sum(axis=1, keepdims=True)
    scores = []
    for side in (1.0, -1.0):
        draw = public_generator(seed, "feedback", int(side > 0.0)).standard_normal
        v, h, o = side + draw(runs), draw(runs), draw(runs)
        known, score = np.zeros(runs), np.zeros(runs)
        beliefs = {sign: np.broadcast_to(_density(r - sign), (runs, r.size)) for sign in (1.0, -1.0)}
        for _ in range(5):
            state = (v + h + o) / 3.0
            sent = state + np.tanh(state) + draw(runs)
            supposed = (known + h + o)[:, None] / 3.0 + r / 3.0
            fits = _density(sent[:, None] - supposed - np.tanh(supposed))
            for sign, belief in beliefs.items():
                joint = belief * fits
                likely = joint.sum(axis=1)
                score += sign * np.log(likely)
                beliefs[sign] = joint / likely[:, None] @ step
            known = (2.0 * known + h) / 3.0
            v, o, h = (2.0 * v + h) / 3.0 + draw(runs), (h + 2.0 * o) / 3.0 + draw(runs), sent
        scores.append(score)
    return scores[0], scores[1]


def relay(runs: int, seed: int) -> tuple[Array, Array]:
    """(runs,) scores of a path of 8 whose agent k steps along 4 sign(its state), only in round k: messages of 6."""
    mixed = _mixing_matrix("path", 8)
    scores = []
    for side in (1.0, -1.0):
        draw = public_generator(seed, "relay", int(side > 0.0)).standard_normal
        m = draw((runs, 8))
        m[:, 0] += 4.0 * side
        for k in range(1, 7):
            m = m @ mixed.T
            m[:, k] += 4.0 * np.sign(m[:, k])
            m += draw((runs, 8))
        scores.append(m[:, 6])
    return scores[0], scores[1]


def print_attacks(audit: NetworkAudit) -> None:
    """Print a line for each attack."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("attack")
    for head in ("shown μ", "claimed", "certified", "all seen", "ε"):
        table.add_column(head, justify="right")
    table.add_column("claim")
    for a in audit.attacks:
        prices = ["–" if np.isnan(mu) else f"{mu:.4f}" for mu in (a.claimed, a.certified, a.everything)]
        shown = at_least_text(a.shown) if a.method == "runs" else f"{a.shown:.4f}"
        table.add_row(*map(Text, (a.case, shown, *prices, epsilon_text(a.epsilon), a.claim)))
    console().print(table)


if __name__ == "__main__":
    print_attacks(audit_network())
