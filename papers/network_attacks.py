"""Attacks on published ε for honest-but-curious neighbours, compared with the claim and the certificate.

`python -m papers.network_attacks` prints the results.

All agents add noise of standard deviation 1, graphs have their usual weights (1/3 on paths and rings), and the record
of one agent changes its noiseless message by D. All results are in μ of Gaussian differential privacy. The claim is the
μ of linear gossip, which published calculators use for training. It fails in three cases:

    feedback     the sign of a hidden agent's gradient depends on its state and amplifies a weak message to the clip;
    curvature    hidden agents with ηh = 1 remove the noise that linear gossip relies on;
    alternating  the victim's contributions change their sign, but linear gossip assumes equal signs.

Another attack tests the certificate for an observer that selects its senders by earlier messages. The μ of the selected
senders is not a bound. The μ of all possible senders is one.

Four attacks have offline agents, on networks that drop or delay messages or change over rounds. An agent that does not
send keeps its last message. The claim is the μ of agents that add noise in every round.

Four attacks test the accounting of pairwise noise against an adversary that observes all messages, with the noise of
the package. They refute no claim. The draws, keys and colluders have to agree with the accounting.
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
# Range of the quadratures in standard deviations.
_TAIL = 7.0


class Attack(NamedTuple):
    """The result of one attack, in μ.

    Args:
        case: attack and graph.
        method: "exact" (Gaussian distributions), "integral" (total variation) or "runs" (a lower bound).
        empirical: lower bound on μ.
        claimed: μ of linear gossip, of the selected messages if the observer selects senders, or of fresh noise in
            every round if agents are offline. NaN for pairwise noise.
        certified: μ of `hidden_states.hidden_mu`, at most `all_messages`, or of the ledger for pairwise noise.
        all_messages: μ against an adversary that observes all messages and all pairwise noise. NaN if the victim's
            message has no noise.
    """

    case: str
    method: Literal["exact", "integral", "runs"]
    empirical: float
    claimed: float
    certified: float
    all_messages: float

    @property
    def epsilon(self) -> float:
        """Certified ε at δ = 1e-5."""
        return float(gaussian_epsilon(self.certified, DELTA))

    @property
    def holds(self) -> bool:
        """Whether the lower bound is at most the certified μ."""
        return self.empirical <= self.certified * (1.0 + 1e-9)

    @property
    def claim(self) -> Literal["refuted", "open", "–"]:
        """Whether the lower bound exceeds the claimed μ."""
        if np.isnan(self.claimed):
            return "–"
        return "refuted" if self.empirical > self.claimed * (1.0 + 1e-9) else "open"


@dataclass(frozen=True)
class NetworkAudit:
    """Results of all attacks.

    Args:
        attacks: result of each attack.
        runs: number of runs on each of the two data sets.
        confidence: confidence level of each bound from runs.

    Example:
        >>> audit = audit_network(runs=1000)
        >>> audit.status, max(audit.attacks, key=lambda attack: attack.empirical / attack.claimed).case
        ('ok', 'relay of signs, path 8')
    """

    attacks: tuple[Attack, ...]
    runs: int
    confidence: float

    @property
    def status(self) -> Literal["ok", "refuted"]:
        """Whether some attack exceeds the certified μ ("refuted") or none does ("ok")."""
        return "ok" if all(attack.holds for attack in self.attacks) else "refuted"


def audit_network(runs: int = RUNS, confidence: float = 0.95, seed: int = 0) -> NetworkAudit:
    """Attack claimed and certified network DP against honest-but-curious neighbours in training.

    Args:
        runs: number of runs on each of the two data sets, for attacks without a closed form.
        confidence: confidence level of each bound from runs.
        seed: seed of the noise of these runs.

    Returns:
        The result of each attack, with the claimed and the certified μ.

    Example:
        >>> attack = audit_network(runs=1000).attacks[2]
        >>> attack.case, round(attack.empirical, 4), round(attack.claimed, 4), round(attack.certified, 4)
        ('curvature, star 6', 13.4252, 8.775, 13.7113)
    """
    return NetworkAudit(tuple(_attacks(runs, 1.0 - confidence, seed)), runs, confidence)


def _attacks(runs: int, risk: float, seed: int) -> Iterator[Attack]:
    path, star, ring, long = (_mixing_matrix(*graph) for graph in (("path", 3), ("star", 6), ("ring", 16), ("path", 8)))
    last = ObservedGossip(path, 2, 0, _impulse(2, 2.0))
    for case, variance in (("path 3", 2.0 / 9.0), ("active", 1.0 / 9.0)):
        empirical = total_variation_mu(sign_feedback(variance, 0.0))
        # The sign function has no Lipschitz factor.
        yield Attack(f"sign feedback, {case}", "integral", empirical, last.linear(), 2.0, 2.0)

    leaves = ObservedGossip(star, 2, 1, np.full(100, 2.0))
    steep = np.repeat([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]], 100, axis=0)
    yield leaves.attack("curvature, star 6", "exact", leaves.linear(share=steep))

    adjacent = ObservedGossip(ring, 0, 1, np.ones(100))
    curved = np.ones((100, 16))
    curved[:, 1] = 0.0
    yield adjacent.attack("own curvature, ring 16", "exact", adjacent.linear(share=curved))
    alternating = adjacent.linear(sign=np.resize([1.0, -1.0], 100))
    yield adjacent.attack("alternating, ring 16", "exact", alternating)

    smooth = ObservedGossip(path, 2, 0, _impulse(6, 2.0))
    empirical = counted_mu(*tanh_feedback(runs, seed), risk)
    # The gradient −tanh of h is 1-smooth, so a step increases distances by a factor of at most 1 + 1.
    yield smooth.attack("tanh feedback, path 3", "runs", empirical, np.array([[1.0], [2.0], [1.0]]))

    distant = ObservedGossip(long, 7, 0, _impulse(7, 8.0))
    empirical = counted_mu(*relay(runs, seed), risk)
    yield Attack("relay of signs, path 8", "runs", empirical, distant.linear(), 8.0, 8.0)

    for case, gossip in OFFLINE.items():
        yield gossip.attack(case)

    either, both = (_selected_sender_cost(0.5, children) for children in ([4], [4, 5]))
    empirical = total_variation_mu(selected_sender(0.5))
    yield Attack("selected senders", "integral", empirical, either, both, float("nan"))

    for case, pairwise_noise in (
        ("pairwise, ring 16", SharedNoise.on_a_ring(16, 4.0, 0)),
        ("pairwise, colluder", SharedNoise.on_a_ring(16, 4.0, 1)),
        ("zero sum, 2 colluders", SharedNoise.on_a_ring(8, 3.0, 2, all_pairs=True)),
        ("unequal scales, path 6", SharedNoise.on_a_path(6)),
    ):
        empirical = counted_mu(*pairwise_noise.scores(runs, seed), risk)
        deviation = float(pairwise_noise.noise.own_deviations(np.array([pairwise_noise.victim]))[0])
        all_messages = 2.0 * float(np.sqrt(pairwise_noise.rounds)) / deviation
        yield Attack(case, "runs", empirical, float("nan"), pairwise_noise.ledger_mu, all_messages)


class ObservedGossip(NamedTuple):
    """Gossip with noise of standard deviation 1 and one observing agent.

    Attributes:
        mixing: I + W, (m, m).
        observer: agent that observes.
        victim: agent that holds the record.
        movement: D of each round, (T,).
    """

    mixing: Array
    observer: int
    victim: int
    movement: Array

    def linear(self, share: Array | None = None, sign: Array | float = 1.0) -> float:
        """Compute μ exactly for linear gradients.

        Args:
            share: factors 1 − ηh of the mixture in each step, (T, m), by default 1.
            sign: signs of the contributions, (T,).
        """
        m, rounds = len(self.mixing), self.movement.size
        contributions = np.zeros((rounds, m))
        contributions[:, self.victim] = sign * self.movement
        no_curvature, noise = np.zeros(rounds), np.ones((rounds, m))
        budget = pairwise(self.mixing - np.eye(m), no_curvature, contributions, noise, [[self.observer]], share=share)
        return float(budget.mu[0, self.victim])

    def attack(
        self, case: str, method: Literal["exact", "runs"], empirical: float, factors: Array | float = 1.0
    ) -> Attack:
        """Compute the claimed and the certified μ of an attack. factors: Lipschitz factors of steps, one or (m, 1)."""
        m, rounds = len(self.mixing), self.movement.size
        visible = np.repeat(self.mixing[[self.observer]] != 0.0, rounds, axis=0)
        noise = np.ones((rounds, m))
        noise[:, self.observer] = np.inf
        bounds = np.broadcast_to(factors * self.mixing, (rounds, m, m))
        all_messages = float(np.linalg.norm(self.movement))
        movement = np.repeat(self.movement[:, None], m, axis=1)
        certified = min(_certified_mu(bounds, noise, visible, self.victim, movement), all_messages)
        return Attack(case, method, empirical, self.linear(), certified, all_messages)


class OfflineGossip(NamedTuple):
    """Gossip with noise of standard deviation 1 in which agents are offline by public Bernoulli draws.

    Args:
        kind: kind of the graph.
        agents: m.
        rounds: T.
        reads: number of first rounds in which a record changes the victim's message by 1.
        seed: seed of the draws.
        observer: agent that observes.
        victim: agent that holds the record.
        offline: probability that an agent is offline in a round.
        drop: probability that a message is lost.
        delay: delay of messages in rounds.
        pairs: whether to draw a matching of the edges in each round.
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
        """Return the sent and the received messages of each round."""
        edges = off_diagonal(build_topology(self.kind, self.agents).mixing)
        network = (matching if self.pairs else fixed_weights)(edges, self.seed)
        return replace(network, offline=self.offline, drop=self.drop, delay=self.delay)

    def exact_mu(self) -> float:
        """Compute μ of the received messages exactly, from their coefficients of all noise and of the record."""
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
        coefficients = np.concatenate(received)
        # The observer knows its own noise.
        coefficients[:, self.observer : -1 : m] = 0.0
        shift, covariance = coefficients[:, -1], coefficients[:, :-1] @ coefficients[:, :-1].T
        return float(np.sqrt(max(0.0, shift @ np.linalg.pinv(covariance, rcond=1e-13, hermitian=True) @ shift)))

    def accounted_mu(self, held: bool = True) -> float:
        """Compute the accounted μ. Delayed messages are additional agents that keep a copy for one round.

        held: whether agents that do not send hold their last message, or add noise in every round.
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
            # Before the first copy of a message, the state is the public start.
            visible[t, m:] = visible[t - 1, : size - m] if t else True
            movement[t, :m] = sends * float(t < self.reads)
        noise[:, self.observer :: m] = np.inf
        return _certified_mu(np.stack(factors), noise, visible, self.victim, movement)

    def attack(self, case: str) -> Attack:
        """Compute the exact, the claimed and the certified μ."""
        network = self.network()
        all_messages = float(np.sqrt(sum(_online(network, t + 1)[self.victim] for t in range(self.reads))))
        certified = min(self.accounted_mu(), all_messages)
        return Attack(case, "exact", self.exact_mu(), self.accounted_mu(held=False), certified, all_messages)


def _certified_mu(factors: Array, noise: Array, visible: NDArray[np.bool_], victim: int, movement: Array) -> float:
    """Compute the certified μ of one victim from the Lipschitz factors of each round, (T, m, m)."""
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
    """Own noise of standard deviation at least 1 and pairwise noise, with an adversary that observes all messages.

    Attributes:
        noise: pairwise and own noise of the agents.
        colluders: agents that share their secrets with the adversary.
        victim: agent whose record changes its message by 2, with alternating signs.
        rounds: number of rounds.
    """

    noise: PairNoise
    colluders: tuple[int, ...]
    victim: int
    rounds: int

    @classmethod
    def on_a_ring(cls, agents: int, ratio: float, colluders: int, all_pairs: bool = False) -> SharedNoise:
        """Build pairwise noise between neighbours, or between all agents, on a ring.

        Args:
            agents: number of agents.
            ratio: standard deviation of pairwise noise over that of own noise.
            colluders: number of colluding agents, next to the victim on one side.
            all_pairs: whether all pairs of agents have pairwise noise.
        """
        noise = PairNoise(ratio, colluders, Network(build_topology("ring", agents).mixing), all_pairs=all_pairs)
        return cls(noise, tuple(range(1, 1 + colluders)), 0, 4)

    @classmethod
    def on_a_path(cls, agents: int) -> SharedNoise:
        """Build noise on a path with standard deviations 1, 2 or 3 of own noise and 1, 2, … on the edges."""
        network, edges = Network(build_topology("path", agents).mixing), np.arange(agents - 1)
        ratio = np.zeros((agents, agents))
        ratio[edges, edges + 1] = ratio[edges + 1, edges] = 1.0 + edges
        return cls(PairNoise(ratio, 0, network, np.resize([1.0, 2.0, 3.0], agents)), (), 1, 4)

    @property
    def ledger_mu(self) -> float:
        """μ of the ledger."""
        return 2.0 * float(np.sqrt(sum(self.noise.gain(t)[self.victim] ** -2.0 for t in range(self.rounds))))

    def scores(self, runs: int, seed: int) -> tuple[Array, Array]:
        """Compute log-likelihood ratios (runs,) under each data set, one for each coordinate of the package's releases.

        In each round, the sign of the change is the opposite of the last one, or the sign of the victim's last message.
        """
        network, root = self.noise.network, seeded_root(seed, b"audit of shared noise")
        m, zero = network.n_agents, np.zeros((network.n_agents, 2 * runs))
        agents = np.arange(m)
        schedules = {"y": NoiseSchedule(np.ones(m), np.zeros(m))}
        streams, pairs = Streams(root, "noise", agents), PairDraws(self.noise, root, agents)
        releaser = ScheduledReleaser(GAUSSIAN, schedules, streams, pairs=pairs)
        value = Bounded(zero, zero, {"train": Sensitivity(np.ones(m), np.ones(m), None)}, "l2")
        # A colluder has the seeds of its edges.
        honest = np.setdiff1d(agents, self.colluders)
        disclosed = PairDraws(self.noise, root, agents, np.array(self.colluders, dtype=np.int64))
        grid = GAUSSIAN.grid(np.ones(1), 2 * runs)[:, None]
        information = np.linalg.inv(self.noise.covariance(0, honest))[list(honest).index(self.victim)]
        side = np.repeat([1.0, -1.0], runs)
        direction, score = np.ones(2 * runs), np.zeros(2 * runs)
        for t in range(self.rounds):
            sent = releaser.release(t + 1, {"y": value})["y"].copy()
            sent[self.victim] += direction * side
            unknown = sent - grid * disclosed.sums(t + 1, t + 1, tag("y"), np.broadcast_to(1.0 / grid, (1, 2 * runs)))
            score += 2.0 * direction * (information @ unknown[honest])
            direction = -direction if t % 2 == 0 else np.sign(sent[self.victim])
        return score[:runs], score[runs:]


def _mixing_matrix(kind: str, agents: int) -> Array:
    matrix: Array = np.eye(agents) + build_topology(kind, agents).mixing.toarray()
    return matrix


def _impulse(rounds: int, size: float) -> Array:
    return np.asarray(np.where(np.arange(rounds) == 0, size, 0.0))


def _density(x: Array) -> Array:
    return np.asarray(np.exp(-0.5 * x * x) / _ROOT)


def total_variation_mu(distance: float) -> float:
    """Compute μ from the total variation δ(0) = 2Φ(μ/2) − 1.

    Example:
        >>> round(total_variation_mu(0.38292492254802624), 9)
        1.0
    """
    return float(2.0 * ndtri(0.5 + 0.5 * distance))


def counted_mu(first: Array, second: Array, risk: float) -> float:
    """Compute a lower bound on μ with confidence 1 − `risk` from the scores (n,) under each data set."""
    return bound_by_counts(first, second, 0.0, risk, np.linspace(0.05, 0.95, 91), "μ")


def sign_feedback(variance: float, epsilon: float) -> float:
    """Compute δ(ε) of two rounds on the path v – h – o with weights w = 1/3, if the gradient of h is −sign(state).

    In round 0, o receives a part k of the next state of h. In round 1 it receives, with u = ±1 + N(0, 1),

        y = w u + sign(k + w u) + N(0, 1).

    Args:
        variance: variance of k, 2/9 if h and o add noise and 1/9 if o sends 0.
        epsilon: ε.
    """
    w, spread = 1.0 / 3.0, np.sqrt(10.0) / 3.0
    x = np.linspace(-_TAIL, _TAIL, 301)
    k, weight = np.sqrt(variance) * x[:, None], _density(x) * (x[1] - x[0])
    y = np.linspace(-_TAIL - 2.0, _TAIL + 2.0, 4001)

    def density(side: float) -> Array:
        out = np.zeros((x.size, y.size))
        for sign in (-1.0, 1.0):
            residual = y - sign - w * side
            # Given y − sign, u is normal with variance 1/(1 + w²).
            mean = side + w / spread**2 * residual
            out += _density(residual / spread) / spread * ndtr(sign * spread * (mean + k / w))
        return out

    excess = np.maximum(density(1.0) - np.exp(epsilon) * density(-1.0), 0.0)
    return float(weight @ excess.sum(axis=1) * (y[1] - y[0]))


def selected_sender(bend: float) -> float:
    """Compute the total variation of messages to an observer that selects its senders.

    Two hidden agents hold m_1, m_2 = ±1/2 + N(0, 1). A neighbour sends bend·(|m_1| − |m_2|) + N(0, 1). The observer
    then receives the noiseless message of a child of the selected agent.
    """
    # Simpson's rule on both sides of 0, at which |m| has a kink.
    m, y = np.linspace(-_TAIL, _TAIL, 241), np.linspace(0.0, _TAIL, 121)
    weight_m, weight_y = ((x[1] - x[0]) / 3.0 * np.array([1.0, *[4.0, 2.0] * (x.size // 2)]) for x in (m, y))
    weight_m[-1] = weight_y[-1] = weight_y[0]
    pull = bend * np.abs(m)
    points = _density(y[:, None, None] - pull[:, None] + pull)

    def density(side: float) -> Array:
        return np.asarray(points @ (weight_m * _density(m - side)) * _density(m - side))

    # By symmetry, both children and both signs of the difference contribute equally.
    return float(weight_y @ np.abs(density(0.5) - density(-0.5)) @ weight_m)


def _selected_sender_cost(bend: float, children: list[int]) -> float:
    """Compute the accounted μ with these children as senders.

    The agents are v, h_1, h_2, the neighbour, and a child of each h.
    """
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
    """Simulate the path v – h – o for 6 rounds, with gradient −tanh(state) of h, and score the messages to o.

    The score is the log-likelihood ratio of the messages of h. A filter on a grid tracks the unknown part r of the
    message m_v = c + r with c known: r_0 = ±1 + N(0, 1) and r_{t+1} = ⅔ r_t + N(0, 1).

    Returns:
        Scores (runs,) under each data set.
    """
    r = np.linspace(-6.0, 6.0, 61)
    step = _density(r - 2.0 / 3.0 * r[:, None])
    step /= step.sum(axis=1, keepdims=True)
    scores = []
    for side in (1.0, -1.0):
        draw = public_generator(seed, "feedback", int(side > 0.0)).standard_normal
        v, h, o = side + draw(runs), draw(runs), draw(runs)
        c, score = np.zeros(runs), np.zeros(runs)
        beliefs = {sign: np.broadcast_to(_density(r - sign), (runs, r.size)) for sign in (1.0, -1.0)}
        for _ in range(5):
            state = (v + h + o) / 3.0
            sent = state + np.tanh(state) + draw(runs)
            possible = (c + h + o)[:, None] / 3.0 + r / 3.0
            fits = _density(sent[:, None] - possible - np.tanh(possible))
            for sign, belief in beliefs.items():
                joint = belief * fits
                likelihood = joint.sum(axis=1)
                score += sign * np.log(likelihood)
                beliefs[sign] = joint / likelihood[:, None] @ step
            c = (2.0 * c + h) / 3.0
            v, o, h = (2.0 * v + h) / 3.0 + draw(runs), (h + 2.0 * o) / 3.0 + draw(runs), sent
        scores.append(score)
    return scores[0], scores[1]


def relay(runs: int, seed: int) -> tuple[Array, Array]:
    """Simulate a path of 8 in which agent k steps along 4 sign(state) in round k.

    Returns:
        Messages of agent 6 as scores, (runs,) under each data set.
    """
    mixing = _mixing_matrix("path", 8)
    scores = []
    for side in (1.0, -1.0):
        draw = public_generator(seed, "relay", int(side > 0.0)).standard_normal
        m = draw((runs, 8))
        m[:, 0] += 4.0 * side
        for k in range(1, 7):
            m = m @ mixing.T
            m[:, k] += 4.0 * np.sign(m[:, k])
            m += draw((runs, 8))
        scores.append(m[:, 6])
    return scores[0], scores[1]


def print_attacks(audit: NetworkAudit) -> None:
    """Print one line for each attack."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("attack")
    for head in ("empirical", "claimed", "certified", "all sent", "ε"):
        table.add_column(head, justify="right")
    table.add_column("claim")
    for a in audit.attacks:
        costs = ["–" if np.isnan(mu) else f"{mu:.4f}" for mu in (a.claimed, a.certified, a.all_messages)]
        empirical = at_least_text(a.empirical) if a.method == "runs" else f"{a.empirical:.4f}"
        table.add_row(*map(Text, (a.case, empirical, *costs, epsilon_text(a.epsilon), a.claim)))
    console().print(table)


if __name__ == "__main__":
    print_attacks(audit_network())
