"""Privacy cost of D-SGD against adversaries that receive published models only.

The default ε holds against an adversary that observes every message. If the agents keep their messages to themselves
and publish one average of their last models, or their last models, the noise of earlier rounds hides the change by one
record, and ε is smaller. `privacy.accounting.hidden_states` has the theorem. This module computes its public numbers
for a job. With ω = I + W, η the learning rate, L the largest curvature of a record's loss, m the ridge and h =
`step_factor`,

    dp_dsgd            R_ij = h(1) |ω_ij|
    ldp_single_level   R_ij = |ω_ij| for j ≠ i,     R_ii = h(ω_ii)
    D_t = η_t · 2C/N_t

A step must not move two models farther apart: the model is linear in clipped features, and its loss is convex. A secret
minibatch is accounted as if the record were read in every round, without amplification. On a time-varying network, ω
and R depend on the edges of the round. An agent that is offline in the next round does not send. Its neighbours keep
its last message, so R_i = e_i and s_i = D_i = 0. All graphs and losses are public before the run.

With `centring`, the means of the agents' features count as observed by the adversary, at μ_x. Given their value, the
centres are fixed, in the ball that contains all features, so that μ² = μ_x² + μ_y² (`add_release`). Features and the
intercept of a model with one output are then clipped separately, and `apart_factor` gives h. Pairwise noise of the
means counts at its effective scale.

If every weight of dp_dsgd is 1/m, every agent takes its step at the same mixture, and the average of the models equals
the model of one agent with noise s/√m and movement D/m.

With `privacy.colluders` = q, the adversary also receives the messages to q agents. ε is the largest over all sets of q
agents, by enumeration. On a constant network every agent has a neighbour that receives all its messages, so ε is that
of all messages.

ε includes the rounding of float64. Messages are multiples of a grid g, and an average is published as an exact sum,
divided once. The last shift of a message is also a multiple of g, which adds √q g to the distances of the last round.
Pairwise noise is a multiple of g, and its draws add to the samplers' draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.gossip.centring import Centring, strip_centring
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.gossip.ldp_single_level import LdpSingleLevel
from decentral_dp.bounded import Array, summation_slack
from decentral_dp.errors import Refusal, refuse
from decentral_dp.exchange import senders_of
from decentral_dp.models.envelope import SLOPE_ERROR
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon, largest_mu
from decentral_dp.privacy.accounting.float_slack import noise_alone
from decentral_dp.privacy.accounting.hidden_states import HiddenRounds, add_release, hidden_mu
from decentral_dp.privacy.clipping import RECORD
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.problems.training import CrossEntropy, Training

if TYPE_CHECKING:
    from decentral_dp.simulation.jobs.job import GossipJob

View: TypeAlias = Literal["final_models", "final_average"]

# Rounding of one operation in float64, times a margin for terms that the bounds of a step leave out.
_ROUNDING = 64.0 * 2.0**-53
# Largest number of different parts of a victim, in all rounds, for the exact bound: (T n³ for each victim).
_MOST_WORK = 4e9
# δ_n e^ε' over δ.
_LOST = 2.0 ** np.arange(-10.0, -30.0, -4.0)
# No Gaussian variate in float64 is larger, in standard deviations, and one in 10^440 real ones.
LARGEST_VARIATE = 45.0


class Steps(NamedTuple):
    """Public numbers of T rounds of training.

    Args:
        mixing: mixing weights ω = I + W of every round, (m, m) each.
        visible: masks of the rounds, true if agent i is j or may receive the round's message from agent j, (m, m) each.
        factors: distinct R, the Lipschitz factors of a step in l2, (K, m, m).
        factor_index: index of the R of each round, (T,).
        movement: D, the l2 change of the victim's noiseless message by its replaced record, (T, m).
        noise: standard deviations s of the noise, (T, m); 0 without a message, σ for pairwise correlated noise.
        rounding: increase of the l2 distance of two noiseless messages by float64, (T, m); +inf if messages may leave
            their grid.
        grid: grids of the messages, (T, m); 0 without a message.
        largest: bound on |coordinate| of a last message.
        dimension: dimension q of a message.
        covariance: covariance of pairwise correlated noise divided by σ², (m, m); None for independent noise.

    References:
        Proofs in docs/proofs/37 and 38.
    """

    mixing: tuple[Array, ...]
    visible: tuple[NDArray[np.bool_], ...]
    factors: Array
    factor_index: NDArray[np.int64]
    movement: Array
    noise: Array
    rounding: Array
    grid: Array
    largest: float
    dimension: int
    covariance: Array | None


def compute_steps(job: GossipJob) -> Steps:
    """Compute the public numbers of a job of `LdpSingleLevel` or `DpDsgd` with a linear model of bounded features."""
    algorithm, problem = cast(LdpSingleLevel | DpDsgd, strip_centring(job.algorithm)), cast(Training, job.problem)
    features, intercept = cast("tuple[float, float]", gradient_lengths(job))
    rounds, m = np.arange(job.rounds), job.n_agents
    step = algorithm.learning_rate.series(job.rounds)
    averaged = np.asarray(job.sampling.averaged_counts(rounds[:, None], job.counts["train"]), dtype=np.float64)
    clip = job.clip.bounds("y", rounds)
    own_point = isinstance(algorithm, LdpSingleLevel)
    # ω of every round, and the agents that may receive its messages.
    changes, identity = job.topology.over_time, np.eye(m)
    if changes is None:
        mixed = identity + job.topology.mixing.toarray()
        mixing, visible = (mixed,) * job.rounds, ((mixed != 0.0) | (identity > 0.0),) * job.rounds
    else:
        received = [changes.received_weights(t).toarray() for t in range(job.rounds)]
        sent = [changes.sent_weights(t + 1).toarray() for t in range(job.rounds)]
        mixing = tuple(w + np.diag(1.0 - w.sum(axis=1)) for w in received)
        visible = tuple((w != 0.0) | (identity > 0.0) for w in sent)
    curvatures, sends = [problem.loss.curvature * length**2 for length in (features, intercept)], sent_messages(job)
    # Envelopes are convex, and the gradient of a record of two classes or a number is φ'(aᵀy) a.
    scalar = job.clip.envelope or not isinstance(problem.loss, CrossEntropy)
    has_parts = len(problem.parts_of_clip) > 1
    factors: dict[tuple[int, float, bytes], Array] = {}
    keys = []
    for omega, eta, senders in zip(mixing, step.tolist(), sends, strict=True):
        keys.append((id(omega), eta, senders.tobytes()))
        if keys[-1] in factors:
            continue
        weight = np.diag(omega) if own_point else 1.0
        if has_parts:
            own_factor = apart_factor(weight, curvatures[0], curvatures[1], eta, problem.l2)
        else:
            own_factor = step_factor(weight, sum(curvatures), eta, problem.l2, scalar)
        factor = np.abs(omega)
        if own_point:
            np.fill_diagonal(factor, own_factor)
        else:
            factor = factor * own_factor
        factors[keys[-1]] = np.where(senders[:, None], factor, identity)
    number = {key: place for place, key in enumerate(factors)}
    index, stacked = np.array([number[key] for key in keys], dtype=np.int64), np.stack([*factors.values()])
    movement = (step * 2.0 * clip)[:, None] / averaged * summation_slack(averaged, problem.q)
    noise = job.noise["y"].scales(rounds + 1, GAUSSIAN)
    movement, noise = np.where(sends, movement, 0.0), np.where(sends, noise, 0.0)
    rounding, grid, largest = _bound_rounding(job, mixing, stacked[index], step, noise, averaged, clip, own_point)
    covariance = None if job.pairs is None else job.pairs.covariance(0, np.arange(m))
    return Steps(mixing, visible, stacked, index, movement, noise, rounding, grid, largest, problem.q, covariance)


def gradient_lengths(job: GossipJob) -> tuple[float, float] | None:
    """Bound the parts of ∇φ for features minus any centre that training may read, and for the intercept.

    The result is None for a network.
    """
    problem, centre = cast(Training, job.problem), 0.0
    if isinstance(job.algorithm, Centring):
        start = abs(job.algorithm.start.get("x", 0.0)) * math.sqrt(problem.p)
        # Room for the rounding of a projection and of public averages.
        centre = max(start, job.algorithm.radius) * (1.0 + 2.0**-40)
    return problem.centred_lengths(centre)


def sent_messages(job: GossipJob) -> NDArray[np.bool_]:
    """Return whether an agent sends the message of a round in the next round, (T, m)."""
    senders = senders_of(job.algorithm, job.public_network)
    if senders is None:
        return np.ones((job.rounds, job.n_agents), dtype=np.bool_)
    return np.stack([senders.mask_of_round(t + 1) for t in range(job.rounds)])


def step_factor(weight: float | Array, curvature: float, step: float, ridge: float, scalar: bool) -> float | Array:
    """Bound ‖(w − ηm) I − η J‖ for a step of length η on records of clipped gradients J and a ridge m outside the clip.

        scalar gradients φ'(aᵀy) a, or envelopes:  max(|w − ηm|, |w − ηm − ηL|)
        any convex loss, ηL ≤ 2u:                  u (1 − ηL/(4u))^(−1/2),    u = w − ηm
        else                                       |u| + ηL

    Args:
        weight: weight w of the point.
        curvature: largest curvature L of a record's loss.
        step: learning rate η.
        ridge: ridge m.
        scalar: whether every record's gradient is φ'(aᵀy) a with φ convex, as for logistic, squared and Huber losses,
            or the gradient of an envelope (`models.envelope`).

    Returns:
        The bound, with the shape of `weight`.

    References:
        Proof in docs/proofs/38.

    Example:
        >>> round(step_factor(1.0, 1.0, 0.5, 0.0, scalar=True), 12)
        1.0
        >>> round(float(step_factor(1.0, 1.0, 0.5, 0.0, scalar=False)), 4)
        1.069
    """
    left, scaled = np.asarray(weight, dtype=np.float64) - step * ridge, step * curvature
    if scalar:
        bound = np.maximum(np.abs(left), np.abs(left - scaled))
    else:
        positive = np.where(left > 0.0, left, 1.0)
        convex = positive / np.sqrt(1.0 - np.minimum(scaled / (4.0 * positive), 0.5))
        bound = np.where(scaled <= 2.0 * left, convex, np.abs(left) + scaled)
    # Rounded up.
    upwards = np.asarray(bound * (1.0 + 16.0 * 2.0**-53))
    return float(upwards) if upwards.ndim == 0 and np.isscalar(weight) else upwards


def apart_factor(weight: float | Array, features: float, intercept: float, step: float, ridge: float) -> float | Array:
    """Bound the factor of a step, like `step_factor`, if gradients of features and intercept are clipped separately.

        max(|u|, |u − X_1 − X_2|, e(X_1), e(X_2)),     u = w − ηm,     X_1 = ηL_1,  X_2 = ηL_2,  Y = √(X_1 X_2)
        e(X) = ½ (√(X² + Y²) + √((2u − X)² + Y²))

    Args:
        weight: weight w of the point.
        features: largest curvature L_1 of a record's loss in the weights of features.
        intercept: largest curvature L_2 in the intercept.
        step: learning rate η.
        ridge: ridge m.

    Returns:
        The bound, with the shape of `weight`.

    References:
        Proof in docs/proofs/38.

    Example:
        >>> round(float(apart_factor(1.0, 1.0, 0.04, 0.5, 0.0)), 4), float(apart_factor(1.0, 1.0, 0.0, 0.5, 0.0)) < 1.1
        (1.0423, True)
    """
    left = np.asarray(weight, dtype=np.float64) - step * ridge
    first, second, both = step * features, step * intercept, step * math.sqrt(features * intercept)
    parts = [0.5 * (np.hypot(x, both) + np.hypot(2.0 * left - x, both)) for x in (first, second)]
    bound = np.max([np.abs(left), np.abs(left - first - second), *parts], axis=0)
    upwards = np.asarray(bound * (1.0 + 32.0 * 2.0**-53))
    return float(upwards) if upwards.ndim == 0 and np.isscalar(weight) else upwards


def _bound_rounding(
    job: GossipJob, mixing: tuple[Array, ...], factors: Array, step: Array, noise: Array, averaged: Array, clip: Array,
    own_point: bool,
) -> tuple[Array, Array, float]:  # fmt: skip
    """Return bounds on the rounding of a step (T, m), grids of the messages (T, m), and the largest last coordinate.

    Messages are multiples of a grid g. Two messages at distance d before noise are at most d + √q g apart on the grid.
    """
    problem = cast(Training, job.problem)
    q, outputs, length = (
        problem.q,
        float(problem.model.outputs),
        math.hypot(*cast("tuple[float, float]", gradient_lengths(job))),
    )
    # An agent that does not send keeps a rounded message.
    sends = noise > 0.0
    grid = np.where(sends, GAUSSIAN.grid(np.where(sends, noise, 1.0), q), 0.0)
    cells = 1.5 if GAUSSIAN.rounds_at_random(q) else 1.0
    largest = float(np.abs(problem.start["y"]).max(initial=0.0)) + abs(job.algorithm.start.get("y", 0.0))
    spread = LARGEST_VARIATE * (1.0 if job.pairs is None else job.pairs.reach())
    inexact = SLOPE_ERROR * length if isinstance(problem.loss, CrossEntropy) else 0.0
    root_q, out, received = np.sqrt(q), np.zeros(noise.shape), np.zeros(noise.shape[1])
    for t, eta in enumerate(step):
        # Largest |output| of a record, and sup of ‖its gradient‖ before it is clipped.
        output = length * root_q * largest
        gradient = (output + 2.0) * length * np.sqrt(outputs)
        terms = averaged[t].max() + q + 8.0 * outputs + 32.0
        strayed = root_q * largest * (1.0 + eta * (problem.l2 + problem.loss.curvature * length**2)) + eta * (
            gradient * (1.0 + length) + clip.max()
        )
        computed = _ROUNDING * terms * strayed + eta * inexact
        out[t] = np.where(sends[t], factors[t] @ (root_q * received) + 2.0 * (root_q * cells * grid[t] + computed), 0.0)
        kept, absolute = 1.0 - eta * problem.l2, np.abs(mixing[t])
        if own_point:
            # The ridge is at the agent's released point, before mixing.
            np.fill_diagonal(absolute, np.abs(np.diag(mixing[t]) - eta * problem.l2))
            kept = 1.0
        grown = absolute.sum(axis=1).max() * abs(kept) * largest + eta * clip.max()
        last_sent = 0.0 if sends[t].all() else largest
        largest = max(last_sent, float((grown + computed + spread * noise[t] + 2.0 * grid[t]).max()))
        received = np.where(sends[t], grid[t], received)
        if not largest < 2.0**52 * grid[t].min(where=sends[t], initial=np.inf):
            out[t:] = np.where(sends[t:], np.inf, 0.0)
            break
    # Rounded up to 30 binary digits: equal agents have equal bounds in every order of summation.
    mantissa, exponent = np.frexp(out)
    return np.asarray(np.ldexp(np.ceil(mantissa * 2.0**30), exponent - 30)), grid, largest


# Steps of the calibration; two suffice where rounding is small.
_STEPS = 8
# Seconds for a system and round, and over agents³; largest number for all sets of colluders.
PER_ROUND, PER_CUBE, _MOST_SECONDS = 3e-4, 1.3e-9, 30.0
# Largest number of agents, whose factors are (m, m) arrays.
_MOST_AGENTS = 2000


# Row of the refusals of published models and of network DP.
NO_DELTA: Refusal[Any] = Refusal(
    lambda job: job.scenario.privacy.delta == 0.0,
    "privacy.delta",
    "Gaussian noise has no finite ε at δ = 0",
    "use a delta above 0, such as 1e-5",
)


def is_unbounded(job: Any) -> bool:
    """Return whether a step of training may move two models apart without bound."""
    lengths = gradient_lengths(job) if isinstance(job.problem, Training) else None
    return lengths is None or not math.isfinite(math.hypot(*lengths))


def _seconds_of_colluders(job: GossipJob) -> float:
    """Return the approximate time, in seconds, to compute ε against every set of colluders."""
    m = job.n_agents
    return math.comb(m, job.scenario.privacy.colluders) * m * job.rounds * (PER_ROUND + m**3 * PER_CUBE)


_HIDDEN = "privacy.adversary"
_REFUSALS: tuple[Refusal[GossipJob], ...] = (
    Refusal(
        lambda job: not isinstance(strip_centring(job.algorithm), LdpSingleLevel | DpDsgd) or job.has_server,
        _HIDDEN,
        "ε of published models is not derived for {of.scenario.algorithm.kind}",
        'use "dp_dsgd" or "ldp_single_level"',
    ),
    Refusal(
        lambda job: job.scenario.privacy.guarantee != "certified" or job.mechanism != GAUSSIAN,
        _HIDDEN,
        "ε of published models is derived for certified Gaussian noise",
        'set guarantee = "certified" and mechanism = "gaussian"',
    ),
    NO_DELTA,
    Refusal(
        is_unbounded,
        _HIDDEN,
        "not derived for neural networks or features without ranges, whose steps may amplify differences without bound",
        'use model = "linear" and declared ranges (scale = "public_ranges")',
    ),
    Refusal(
        lambda job: getattr(strip_centring(job.algorithm), "momentum", 0.0),
        "algorithm.momentum",
        "ε of published models is not derived with momentum (got {it})",
        "set it to 0, and the learning rate to λ/(1 − β)",
    ),
    Refusal(
        lambda job: job.unit != RECORD or getattr(strip_centring(job.algorithm), "local_steps", None),
        "privacy.unit",
        "ε of published models is derived for one replaced record and one gradient per round only",
        "remove unit, neighbours and local_steps",
    ),
    Refusal(
        lambda job: job.sampling.kind == "poisson",
        "problem.sampling",
        "not derived for Poisson samples, whose batches may exceed their divisor",
        'use "full" or "fixed_batch"',
    ),
    Refusal(
        lambda job: job.factor is not None or (job.pairs is not None and job.topology.over_time is not None),
        "privacy.correlation",
        "ε of published models is not derived for noise correlated over rounds, or between agents of a "
        "changing network",
        "remove it",
    ),
    Refusal(
        lambda job: job.scenario.privacy.colluders > 0 and job.topology.over_time is None,
        "privacy.colluders",
        "no gain with colluding neighbours, who receive every message",
        'set colluders = 0, or adversary = "all_messages"',
    ),
    Refusal(
        lambda job: job.scenario.privacy.colluders > 0 and _seconds_of_colluders(job) > _MOST_SECONDS,
        "privacy.colluders",
        "too many sets of colluders to account for (got {of.scenario.privacy.colluders} of {of.n_agents} agents)",
        "use fewer colluders, agents or rounds",
    ),
    Refusal(
        lambda job: (
            job.scenario.topology.compression is not None
            or (job.topology.over_time is not None and job.topology.over_time.delay)
        ),
        "topology",
        "ε of published models is not derived for compressed or delayed messages",
        "remove compression and delay",
    ),
    Refusal(
        lambda job: job.scenario.privacy.domain,
        "privacy.box",
        "not supported, since the average of projected models reveals more than the average of the models",
        "remove it",
    ),
    Refusal(
        lambda job: job.scenario.tail_length > 1,
        "run.average",
        "not supported, since a mean over rounds reveals more than the last models",
        "remove it, or set it to 1",
    ),
    Refusal(
        lambda job: job.n_agents > _MOST_AGENTS,
        "topology.agents",
        f"too many agents for ε of published models (expected at most {_MOST_AGENTS})",
        "use fewer agents",
    ),
)


def refuse_hidden(job: GossipJob) -> None:
    """Refuse a job for which ε of published models is not derived. Raises InputError."""
    refuse(job, _REFUSALS)


def has_published_epsilon(job: GossipJob) -> bool:
    """Return whether ε of published models is derived for a job."""
    # `gossip_setup` refuses these together with privacy.adversary.
    is_refused_early = job.scenario.is_byzantine or job.scenario.problem.weights == "records"
    return not is_refused_early and not any(row.find(job) for row in _REFUSALS)


def account_published(job: GossipJob, with_noise: Callable[[float], GossipJob], view: View) -> GossipJob:
    """Return the job with ε of each agent against an adversary that receives only the published models.

    With a target ε, its noise is calibrated so that the worst agent spends the target.

    Args:
        job: planned job that `refuse_hidden` accepts.
        with_noise: function c → job with the noise of its models times c.
        view: published models.
    """
    mu = _hidden_mu(job, view)
    if job.scenario.privacy.epsilon is not None:
        job, mu = _calibrate(job, mu, with_noise, view)
    return replace(job, published=_epsilon(job, add_release(mu, _centre_mu(job)), job.budget.epsilon))


def _epsilon(job: GossipJob, mu: Array, total_epsilon: Array | float) -> Array:
    """Compute ε for these μ and the float64 noise of all agents, capped at ε of all messages."""
    privacy, q, pairs = job.scenario.privacy, job.problem.q, job.pairs
    p = job.problem.p if isinstance(job.algorithm, Centring) else 0
    variates, bits = job.n_agents, max(GAUSSIAN.bits(q), GAUSSIAN.bits(max(p, 1)))
    if pairs is not None:
        # As for the ledger: the grid is finer compared with the largest scale that is drawn.
        links, own = pairs.links(), pairs.own_deviations(np.arange(job.n_agents))
        variates += len(links)
        bits += math.ceil(math.log2(max(own.max(), pairs.ratios(links).max())))
    draws = np.array([(job.rounds * q + p) * variates])
    return epsilon_in_float64(mu, draws, bits, privacy.delta, total_epsilon, privacy.epsilon)


def _calibrate(
    job: GossipJob, mu: Array, with_noise: Callable[[float], GossipJob], view: View
) -> tuple[GossipJob, Array]:
    """Return the job with the noise for its target ε, and μ of its models.

    μ is nearly A/c + B for the noise of models times c, with B from the rounding of float64. Each step solves this for
    the last two c. The mean of features keeps its noise and therefore its share of the target. The noise for all
    messages, c = 1, meets the target. If B is large, no other noise is tried.
    """
    aim = math.sqrt(max(0.0, _largest_mu(job) ** 2 - float(_centre_mu(job).max()) ** 2)) * (1.0 - 2.0**-40)
    factors, reached = [1.0], [float(mu.max())]
    if reached[0] > aim:
        return job, mu
    best, met = (job, mu), reached[0]
    for _ in range(_STEPS):
        slope, least = 0.0, 0.0
        if len(factors) > 1 and factors[-1] != factors[-2]:
            (first, second), (more, less) = reached[-2:], (1.0 / factors[-2], 1.0 / factors[-1])
            slope = (first - second) / (more - less)
            least = second - slope * less
        if not (slope > 0.0 and least < aim):
            # The rounding B changes by a power of two with the noise.
            slope, least = reached[-1] * factors[-1], 0.0
        if not (math.isfinite(slope) and slope > 0.0 and aim > 0.0):
            break
        # Noise is drawn on grids of powers of two, so that μ is no smooth function.
        factors.append(slope / (aim * (1.0 - 2.0**-20) - least))
        job = with_noise(factors[-1])
        mu = _hidden_mu(job, view)
        reached.append(float(mu.max()))
        if met < reached[-1] <= aim:
            best, met = (job, mu), reached[-1]
        if met >= aim * (1.0 - 1e-4):
            break
    return best


def _largest_mu(job: GossipJob) -> float:
    """Return the largest μ at which a job meets its target ε; 0 if there is none."""
    target = cast(float, job.scenario.privacy.epsilon)
    low, high = 0.0, largest_mu(target, job.scenario.privacy.delta)
    while high - low > 1e-10 * high and high > 1e-12:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _epsilon(job, np.array([middle]), np.inf)[0] <= target else (low, middle)
    return low


def _centre_mu(job: GossipJob) -> Array:
    """Return μ of the release of each agent's mean of features, (m,); 0 without such a release."""
    if not isinstance(job.algorithm, Centring):
        return np.zeros(job.n_agents)
    release = next(c for c in job.ledger.channels if c.channel == "x")
    return job.mechanism.cost(release.sensitivity["train"][0], release.scale[0], job.problem.p)[release.group]


def _hidden_mu(job: GossipJob, view: View) -> Array:
    """Return μ of each agent's models, (m,), at any centre of features, for the worst set of colluders."""
    steps, m, colluders = compute_steps(job), job.n_agents, job.scenario.privacy.colluders
    rounds = published_rounds(steps, view)
    if colluders:
        mu = np.zeros(m)
        for members in combinations(range(m), min(colluders, m - 1)):
            outside = np.setdiff1d(np.arange(m), members)
            mu[outside] = np.maximum(
                mu[outside], hidden_mu(add_members(rounds, steps, members), outside, steps.movement)
            )
        return mu
    different = {id(omega): omega for omega in steps.mixing}.values()
    # Every weight of every round is 1/m, up to rounding that `rounding` covers.
    is_complete = (steps.noise > 0.0).all() and all(np.abs(omega * m - 1.0).max() < m * 2.0**-50 for omega in different)
    if view == "final_average" and isinstance(strip_centring(job.algorithm), DpDsgd) and is_complete:
        # One agent, whose noise and movement are those of the average.
        chain = HiddenRounds(
            rounds.factors.sum(axis=2, keepdims=True)[:, :1],
            steps.factor_index,
            np.sqrt(np.square(_own_noise(steps)).sum(axis=1, keepdims=True)) / m,
            rounds.observed[:, :1],
            rounds.rounding.max(axis=1, keepdims=True),
            np.ones(1),
        )
        return np.array([hidden_mu(chain, [0], steps.movement[:, v : v + 1] / m)[0] for v in range(m)])
    cells = int((_MOST_WORK / (m * job.rounds)) ** (1.0 / 3.0))
    return hidden_mu(rounds, np.arange(m), steps.movement, most_cells=max(1, cells))


def _own_noise(steps: Steps) -> Array:
    """Return the standard deviations (T, m) of the noise without pairs, which cancel in a sum, rounded down."""
    if steps.covariance is None:
        return steps.noise
    sizes = np.abs(steps.covariance).sum(axis=1)
    square = steps.covariance.sum(axis=1) - 4.0 * (len(sizes) + 2.0) * 2.0**-53 * sizes
    return np.asarray(steps.noise * np.sqrt(np.maximum(square, 0.0)))


def published_rounds(steps: Steps, view: View | Literal["all_messages"]) -> HiddenRounds:
    """Return the rounds of a job, in which only messages of published models are observed.

    Args:
        steps: the job's steps.
        view: published models; "all_messages" if none are published.
    """
    noise, m = steps.noise, steps.noise.shape[1]
    weights, seen = np.zeros(m), np.zeros(noise.shape, dtype=np.bool_)
    rounding, sends = steps.rounding, noise > 0.0
    if view == "final_average":
        weights[:] = 1.0 / m
        last = _own_noise(steps)[-1]
        unequal = last.max() / last.min(where=sends[-1], initial=np.inf)
        rounding = rounding.copy()
        rounding[-1] += math.sqrt(steps.dimension) * steps.grid.max() * unequal
        # The public start of an agent that never sends may not be on the grid.
        is_exact = m * steps.largest < 2.0**52 * steps.grid.min(where=sends, initial=np.inf)
        if not (sends.any(axis=0).all() and is_exact):
            rounding[-1] = np.inf
    elif view == "final_models":
        # The last message of an agent that is absent is an earlier one.
        seen = np.arange(len(noise))[:, None] >= len(noise) - 1 - np.argmax(sends[::-1], axis=0)
    return HiddenRounds(steps.factors, steps.factor_index, noise, seen, rounding, weights, steps.covariance)


def add_members(rounds: HiddenRounds, steps: Steps, members: Sequence[int]) -> HiddenRounds:
    """Return the rounds with these agents added to the adversary, which observes everything that they receive."""
    is_received = np.stack([visible[list(members)].any(axis=0) for visible in steps.visible])
    noise = rounds.noise.copy()
    noise[:, list(members)] = np.inf
    return rounds._replace(noise=noise, observed=rounds.observed | is_received)


def epsilon_in_float64(
    mu: Array,
    draws: NDArray[np.int64],
    bits: int,
    delta: float,
    total_epsilon: Array | float,
    target: float | None = None,
) -> Array:
    """Compute ε of Gaussian pairs with noise drawn by float64 samplers, capped at ε of all messages.

    The distributions of both data sets are within e^{±τ} of the ideal ones except for δ_n (`float_slack.noise_alone`),
    so

        δ(ε' + 2τ) ≤ δ_n + e^τ (δ'(ε') + e^{ε'} δ_n),

    where an assumed bound on ε' determines the share δ_n of δ.

    Args:
        mu: parameter μ of the Gaussian pairs.
        draws: number of normal variates that the adversary does not draw; broadcasts with μ.
        bits: number of bits of the grid of the noise.
        delta: δ of the guarantee.
        total_epsilon: ε of all messages; broadcasts with μ.
        target: bound to try in addition to one near the result.
    """
    shape = np.broadcast(mu, draws, total_epsilon).shape
    pairs = np.stack([np.broadcast_to(part, shape).ravel() for part in (mu, draws, total_epsilon)])
    (distance, number, most), place = np.unique(pairs, axis=1, return_inverse=True)
    smallest = most.copy()
    # e^ε' of the slack is small for an ε' near the result.
    near = np.minimum(most, 1.0 + gaussian_epsilon(distance, delta))
    for reach in (near,) if target is None else (near, np.minimum(most, target)):
        for share in _LOST:
            lost = share * delta * np.exp(-np.minimum(reach, 700.0))
            tau = noise_alone(number, bits, lost)
            left = (delta - lost) * np.exp(-tau) - share * delta
            epsilon = gaussian_epsilon(distance, np.where(np.isfinite(tau), np.maximum(left, 0.0), 0.0)) + 2.0 * tau
            smallest = np.where(epsilon <= reach, np.minimum(epsilon, smallest), smallest)
    return np.asarray(smallest[place].reshape(shape))
