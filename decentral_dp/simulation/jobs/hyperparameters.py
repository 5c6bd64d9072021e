"""Hyper-parameters of training from public numbers only: default learning rate and clip, and stability on a graph.

T rounds of noisy steps with learning rate λ and momentum β cover the time τ = T λ/(1 − β) of gradient flow. A target
(ε, δ) corresponds to μ-Gaussian DP. With N records of each of m agents, the noise of all rounds gives every weight of
the average model, without curvature, the standard deviation

    D = C τ ν,      ν = 2/(N μ √m).

A replaced record moves a clipped mean by 2C/N, T releases share the budget, so that each has the standard deviation 2C
√T/(N μ), and the draws of m agents are averaged. D does not depend on T: many small steps cost time but add no noise.
The average of pairwise correlated noise equals that of independent noise of more agents, and m counts these
(`PairNoise.gain_of_average`). With problem.weights = "records", N is the mean of the agents' numbers of records, and
the largest weight multiplies L. Otherwise N is the smallest number. The benefit of a clip and of a time depends on the
records, and the tolerable noise D on public numbers only. So the rule is C τ = D/ν, within

    λ ≤ 1.5/L, L the largest curvature for all records of the declared ranges;    C within the range below.

If one of λ and C is set, the other follows from it. With `algorithm.centring`, linear models read privately centred
features: agents first release the mean of the features. The mean has a default share of the budget (`share_of_centre`),
and μ is computed from the rest. Gradient descent without noise is also faster if curvatures are equal.

A squared error that is clipped far below its usual size is an absolute error, which learns the median. For regression
the clip therefore grows with the budget, in units of half the label range, from 0.02 to 0.5, once τ is 2000, when
unclipped steps converge. At 0.5, τ grows. The values 1000, 2000 and 3000 were compared for a trusted server and five
agents at ε = 1, 3 and 8. On counts in 0:40, 6000 records of 8 features, where least squares have an R² of 0.07, 2000
learns 0.03 to 0.07, and a clip of 0.02 had −0.03 to −0.01. On symmetric labels both learn the same. With 1000 features,
short records lose 0.04.

Networks start from public random weights. L is the usual curvature there (`StepFacts.curvature`), and D is in units of
the standard deviation of these weights: 1.4 for classes, and 0.2 for numbers, since squared errors penalise outliers.

D and the ranges of C were chosen on synthetic data: 24 tables of 3 to 50 features (independent, correlated, of low
rank, heavy-tailed, binary, mixed, centred or not) with 2, 3, 5 and 10 classes or numbers, declared ranges up to 1.3
times the largest value, N = 640, m = 5 and ε from 0.4 to 8. The values for networks were chosen on seven tables of 6 to
64 features that no linear model fits (products, spheres, clusters, a network, low rank, sums of waves), of 2, 3, 4 and
10 classes or numbers, and on one that a linear model fits, with 64 and 128 hidden units at ε = 1 and 8. No user's table
is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.gossip.adassp import LABEL_FACTOR, AdaSsp
from decentral_dp.algorithms.gossip.centring import Centring, strip_centring
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Array
from decentral_dp.config.components import Components
from decentral_dp.config.scenario_components import CENTRED_SAMPLINGS
from decentral_dp.config.schema import PrivacyTable, Scenario, Schedule, by_channel
from decentral_dp.constants import family_of
from decentral_dp.data import Sampling, Shards
from decentral_dp.errors import InputError
from decentral_dp.formatting import schedule_text
from decentral_dp.privacy.accounting.accountants import largest_mu
from decentral_dp.privacy.clipping import Clip, Unit, unit_of
from decentral_dp.privacy.mechanisms import GAUSSIAN, Mechanism
from decentral_dp.privacy.pair_noise import PairNoise
from decentral_dp.privacy.releasers import NoiseSchedule
from decentral_dp.problems.protocol import PlannedTraining, StepFacts
from decentral_dp.problems.training import Training
from decentral_dp.topology import Topology

# Momentum and tail averages of the default hyper-parameters. Algorithms have neither unless a key sets it.
MOMENTUM = 0.9
TAIL_OF_LINEAR, TAIL_OF_NETWORK = 0.5, 0.2
# Fraction of the largest stable learning rate 2/L, times 2. Momentum allows more.
_OF_CURVATURE = 1.5
# C of sufficient statistics. Those of records that are uniform in their ranges have a norm of 0.4. On counts and on
# symmetric labels of 6000 records at ε = 1, 3 and 8, R² at 0.5 was within 0.01 of the best of 0.35, 0.5 and 0.7.
_CLIP_OF_STATISTICS = 0.5
# Noise of the features' mean in units of a record's norm: target and maximum. Range of the share of μ².
_CENTRE_NOISE, _MOST_CENTRE_NOISE, _FOR_CENTRE = 0.1, 0.5, (0.02, 0.05)


class Rule(NamedTuple):
    """Ranges of the default hyper-parameters.

    Args:
        displacement: displacement D.
        smallest_clip: smallest C.
        largest_clip: largest C.
        longest_time: largest τ.
        first_time: τ at which the clip begins to grow, before τ grows further, default infinite.
    """

    displacement: float
    smallest_clip: float
    largest_clip: float
    longest_time: float
    first_time: float = math.inf


# Regression (labels scaled to [−1, 1]), two classes, more classes.
_NUMBERS, _TWO, _MORE = (
    Rule(0.4, 0.02, 0.5, 15_000.0, 2000.0),
    Rule(6.0, 0.03, 0.25, 30_000.0),
    Rule(8.0, 0.03, 0.25, 30_000.0),
)
# Networks: D in standard deviations of the random start weights.
_NETWORK_OF_NUMBERS, _NETWORK_OF_CLASSES = Rule(0.2, 0.1, 1.0, math.inf), Rule(1.4, 0.3, 1.0, math.inf)


class TrainingFacts(NamedTuple):
    """Public numbers from which hyper-parameters follow.

    Args:
        classes: number of classes; 0 for regression.
        records: smallest number of train records of an agent, or N/m if every record counts equally.
        agents: number m of agents whose noise is averaged.
        mu: parameter μ; infinite without noise.
        rounds: number of rounds T.
        momentum: momentum β.
        curvature: bound L on the curvature.
        step: learning rate λ, if the scenario sets it.
        clip: clip C, if the scenario sets it.
        sensitivity_in_clips: sensitivity of a sum in units of C (`Unit.clips`), default 2 for one replaced record.
        start: root mean square of the random start weights of a network, default 0 for a linear model.
    """

    classes: int
    records: float
    agents: float
    mu: float
    rounds: int
    momentum: float
    curvature: float
    step: float | None = None
    clip: float | None = None
    sensitivity_in_clips: float = 2.0
    start: float = 0.0


def default_hyperparameters(facts: TrainingFacts) -> tuple[float, float, float]:
    """Compute the default learning rate and clip.

    Args:
        facts: public numbers.

    Returns:
        The learning rate λ, the clip C (infinite without noise), and the accumulated noise D per weight. Values that
        the scenario sets are unchanged.

    Example:
        >>> step, clip, noise = default_hyperparameters(TrainingFacts(2, 640, 5, 0.27, 1000, 0.9, 0.26))
        >>> round(step, 2), round(clip, 3), round(noise, 1)
        (3.0, 0.039, 6.0)
    """
    rule = _NUMBERS if facts.classes == 0 else _TWO if facts.classes == 2 else _MORE
    if facts.start:
        rule = _NETWORK_OF_CLASSES if facts.classes else _NETWORK_OF_NUMBERS
        rule = rule._replace(displacement=rule.displacement * facts.start)
    per_step = facts.rounds / (1.0 - facts.momentum)
    longest = min(rule.longest_time, _OF_CURVATURE / facts.curvature * per_step)
    if math.isinf(facts.mu):
        return (longest / per_step if facts.step is None else facts.step), math.inf, 0.0
    nu = facts.sensitivity_in_clips / (facts.records * facts.mu * math.sqrt(facts.agents))
    # C τ, which D allows.
    largest_step = rule.displacement / nu
    if facts.step is not None:
        time = facts.step * per_step
        clip = min(rule.largest_clip, largest_step / time) if time else rule.largest_clip
        return facts.step, clip, clip * time * nu
    clip = facts.clip or min(rule.largest_clip, max(rule.smallest_clip, largest_step / min(longest, rule.first_time)))
    time = min(longest, largest_step / clip)
    return time / per_step, clip, clip * time * nu


def records_and_clips(unit: Unit, counts: NDArray[np.int64], weights: Array | None) -> tuple[float, float]:
    """Return the records of an agent that set the noise, and the sensitivity of their sum in units of C.

    Args:
        unit: privacy unit.
        counts: train records of each agent, (m,).
        weights: factors of the agents, (m,); None if agents count equally, so that the agent with the fewest records
            has the most noise.

    Example:
        >>> counts = np.array([10, 20, 30])
        >>> [records_and_clips(Unit(), counts, w) for w in (None, np.array([0.5, 1.0, 1.5]))]
        [(10.0, 2.0), (20.0, 2.0)]
    """
    if weights is None:
        fewest = int(counts.min())
        return float(fewest), float(unit.clips(fewest))
    even = float(counts.mean())
    return even, float((weights * unit.clips(counts) / counts).max()) * even


def stable_momentum(topology: Topology, kind: str) -> float:
    """Return β of the default hyper-parameters: 0.9, or 0 if momentum of mixed models is not stable.

    Along an eigenvector of W with the eigenvalue w, without a gradient, dp_dsgd has c⁺ = w((1 + β) c − β c⁻), which is
    stable if −w (1 + 2β) < 1. On a torus with Metropolis weights the smallest w is −0.6, and momentum is not stable.
    Stability is not guaranteed if weights change or messages are late or compressed.

    Args:
        topology: topology of the agents.
        kind: name of the algorithm; algorithms with a server or without edges do not mix.
    """
    if kind != "dp_dsgd":
        return MOMENTUM
    dies_out = (topology.delta_max - 1.0) * (1.0 + 2.0 * MOMENTUM) < 1.0
    return MOMENTUM if dies_out and topology.over_time is None else 0.0


def _has_target(c: Components) -> bool:
    """Return whether the noise is Gaussian and follows from ε and δ or from the noise multiplier."""
    privacy = c.scenario.privacy
    is_set = privacy.noise_multiplier is not None or (privacy.epsilon is not None and privacy.delta > 0.0)
    return is_set and c.mechanism == GAUSSIAN


def _require_defaults(c: Components, key: str, curvature: float) -> None:
    """Refuse a scenario without a default for a missing key. Raises InputError."""
    is_noisy = c.scenario.privacy.guarantee == "certified"
    fix = f"set algorithm.learning_rate{' and privacy.clip' if is_noisy else ''}"
    privacy, needs_target = c.scenario.privacy, is_noisy and not _has_target(c)
    rules = (
        (
            c.keys.get("local_steps"),
            f"{key}: missing. It is planned for clipped records, and local steps of an agent are clipped as one",
            fix,
        ),
        (
            not math.isfinite(curvature),
            f"{key}: missing. It is planned if features have declared ranges",
            'set problem.scale, which is "public_ranges" for breast_cancer, digits and wine; or normalise = "l2"',
        ),
        (
            needs_target and c.mechanism == GAUSSIAN and privacy.epsilon is not None,
            "privacy.delta: Gaussian noise needs a delta above 0 (got 0)",
            'use a delta such as 1e-5, or mechanism = "laplace"',
        ),
        (
            needs_target and privacy.epsilon is None and privacy.y is None,
            "privacy.epsilon: missing, and there is no noise_multiplier or scale",
            "set one of them",
        ),
        (
            needs_target,
            f"{key}: missing. It is planned for Gaussian noise with a target ε or a noise multiplier",
            f'set mechanism = "gaussian", epsilon and delta; or {fix}',
        ),
    )
    for applies, problem, fix_of_row in rules:
        if applies:
            raise InputError(f"{problem}. Fix: {fix_of_row}.")


def with_hyperparameters(
    c: Components,
    problem: Any,
    shards: Shards,
    topology: Topology,
    noise_average: float,
    sampling: Sampling,
    weights: Array | None = None,
) -> tuple[Components, str]:
    """Fill in the learning rate, the clip and the share of centring that the scenario does not set.

    Args:
        c: components of the scenario.
        problem: problem of the agents.
        shards: public facts of the records.
        topology: topology of the agents.
        noise_average: number of agents with independent noise whose average is as noisy as this average.
        sampling: rule for the records that a round reads.
        weights: factors of the agents' gradients, (m,); None (the default) means all ones.

    Returns:
        The components, and the reason why features are not centred although the scenario asks for it, or "".

    Raises:
        InputError: a missing key has no default.
    """
    s = c.scenario
    if c.algorithm.algorithm is AdaSsp and s.privacy.guarantee == "certified" and not s.privacy.clip:
        privacy = s.privacy.model_copy(update={"clip": _CLIP_OF_STATISTICS})
        return replace(c, scenario=s.model_copy(update={"privacy": privacy})), ""
    has_rate = "learning_rate" in c.keys or any(option.key == "learning_rate" for option in c.algorithm.keys)
    if not isinstance(problem, PlannedTraining) or s.privacy.guarantee == "as_published" or not has_rate:
        return c, ""
    noisy, centring = s.privacy.guarantee == "certified", bool(c.keys.get("centring"))
    if "x" in s.privacy.clips and any(option.key == "centring" for option in c.algorithm.keys):
        reason = _no_centre(s, topology, sampling) if centring else "algorithm.centring is off"
        if reason:
            raise InputError(
                f"privacy.clip.x: bounds privately centred features, but {reason}. Fix: "
                f"{'remove x' if centring else 'set algorithm.centring = true, or remove x'}."
            )
    is_declared = {
        "algorithm.learning_rate": "learning_rate" in c.keys,
        "privacy.clip": bool(s.privacy.clip) or not noisy,
    }
    missing = [name for name, is_set in is_declared.items() if not is_set]
    centring = centring and "x" not in s.privacy.clips
    if not missing and not centring:
        return c, ""
    model_facts = problem.step_facts()
    is_hidden = s.privacy.adversary != "all_messages"
    # Hidden models have about the noise of a trusted server. Means of features are seen.
    noises_of_model = noise_average**2 if is_hidden else noise_average
    if missing:
        _require_defaults(c, missing[0], model_facts.curvature)
    has_target = _has_target(c)
    unit = unit_of(s.privacy.unit, s.privacy.neighbours)
    records, clips = records_and_clips(unit, shards.train_counts, weights)
    share, reason = 0.0, ""
    mu = math.inf
    if noisy and has_target and s.privacy.noise_multiplier is not None:
        # T releases, each a Gaussian pair of clips/z.
        mu = math.sqrt(s.algorithm.rounds) * clips / s.privacy.noise_multiplier
    elif noisy and has_target:
        mu = largest_mu(float(s.privacy.epsilon or 0.0), s.privacy.delta)
    if centring:
        reason = _no_centre(s, topology, sampling, model_facts)
        if not reason and unit.records is None:
            reason = "their mean has no planned privacy cost for all records of an agent (privacy.unit)"
        if not reason and noisy and (not has_target or s.privacy.epsilon is None):
            reason = "their mean requires Gaussian noise and a target ε (privacy.epsilon)"
    if centring and not reason:
        share = share_of_centre(model_facts.features, clips / (records * mu * math.sqrt(noise_average)))
        reason = "" if share else "noise would hide their mean at this ε"
    is_centred = bool(c.keys.get("centring")) and not reason
    # A hidden step must be stable at every centre.
    curvature = model_facts.centred_curvature if is_hidden and is_centred else model_facts.curvature
    curvature *= largest_weight(weights)
    # Three digits, which the run folder stores, so that a run is repeatable.
    if missing:
        *step_and_clip, _ = default_hyperparameters(
            TrainingFacts(
                model_facts.classes,
                records,
                noises_of_model,
                mu * math.sqrt(1.0 - share),
                s.algorithm.rounds,
                float(c.keys.get("momentum", 0.0)),
                curvature,
                c.keys["learning_rate"].scale if "learning_rate" in c.keys else None,
                by_channel(s.privacy.clips).get("y"),
                clips,
                model_facts.start,
            )
        )
        step, clip = (float(f"{value:.3g}") for value in step_and_clip)
    changes: dict[str, Any] = {} if "learning_rate" in c.keys else {"learning_rate": Schedule(scale=step)}
    changes |= {"centring": False} if reason else {}
    update: dict[str, Any] = {"clip": s.privacy.clip if s.privacy.clip or not noisy else clip}
    if share:
        # Features in declared ranges have norm at most 1.
        update["clip"] = {"x": 1.0, **s.privacy.model_copy(update=update).clips}
        if noisy:
            update["share"] = {"x": float(f"{share:.3g}"), "y": 1.0 - float(f"{share:.3g}")}
    privacy = s.privacy.model_copy(update=update)
    scenario = s.model_copy(update={"algorithm": s.algorithm.model_copy(update=changes), "privacy": privacy})
    return replace(c, scenario=scenario, keys={**c.keys, **changes}), reason


def share_of_centre(features: int, noise: float) -> float:
    """Compute the share of μ², between 2 and 5 %, for which noise of the features' mean is a tenth of a record's norm.

    At ε = 1, on tables that were not used to choose the learning rate and the clip, centring features that are binary
    or not centred in their ranges gains up to 0.14 in AUC, 0.12 in accuracy and 0.2 in R². If the noise is about as
    large as the mean, the centre is shrunk to almost 0 (`gossip.centring`), and only the share is lost.

    Args:
        features: number d of features; 0 for models without a centre.
        noise: standard deviation per coordinate of the mean over agents if it had the whole budget.

    Returns:
        The share; 0 if the noise would exceed half of a record's norm.

    Example:
        >>> round(share_of_centre(10, 2 / (640 * 0.27 * 5**0.5)), 3), share_of_centre(64, 0.1), share_of_centre(0, 0.1)
        (0.027, 0.0, 0.0)
    """
    noise_variance = features * (noise / _CENTRE_NOISE) ** 2
    smallest, largest = _FOR_CENTRE
    share = min(max(noise_variance, smallest), largest)
    # The squared noise is needed/share · _CENTRE_NOISE².
    tolerable = noise_variance * _CENTRE_NOISE**2 <= share * _MOST_CENTRE_NOISE**2
    return share if features and tolerable else 0.0


def with_centring(
    algorithm: Any,
    privacy: PrivacyTable,
    total_rounds: int,
    problem: Any,
    shards: Shards,
    topology: Topology,
    noise_average: float,
    reach: float,
    clip: Clip,
    weights: Array | None = None,
) -> Any:
    """Return the algorithm within a centring step with enough rounds for agents to agree on the mean of the features.

    Args:
        algorithm: the gossip program.
        privacy: [privacy] table.
        total_rounds: number of rounds T.
        problem: problem of the agents.
        shards: public facts of the records.
        topology: topology of the agents.
        noise_average: number of agents whose independent noise has an equally noisy average.
        reach: ratio of the norm of an agent's noise to the norm of its independent part.
        clip: bounds on every record's contribution.
        weights: factors of the agents' gradients, (m,), or None.
    """
    rounds, noise = 2, 0.0
    if 0.0 < topology.rho < 1.0 and len(topology.edges):
        rounds += math.ceil(math.log(10.0 * reach * math.sqrt(topology.n_agents)) / -math.log(topology.rho))
    if privacy.guarantee == "certified" and privacy.epsilon is not None and privacy.delta:
        share = by_channel(privacy.share)
        part = share["x"] / sum(share.values()) if share else 0.5
        noise = problem.p * _variance_of_mean(privacy, shards, noise_average, clip.at(0).x, part, weights)
    # A server has the mean after one round.
    averaging_rounds = min(1, total_rounds - 1) if algorithm.has_server else max(2, min(rounds, total_rounds // 4))
    if not averaging_rounds:
        return algorithm
    # Models hide messages at bounded features minus their centre.
    radius = problem.largest_norm if privacy.adversary != "all_messages" else math.inf
    return Centring(algorithm, averaging_rounds, noise, radius, start=algorithm.start)


def with_statistics(
    algorithm: AdaSsp,
    s: Scenario,
    problem: Training,
    shards: Shards,
    noise_average: float,
    clip: Clip,
    weights: Array | None = None,
) -> AdaSsp:
    """Return the algorithm with K, σ and the problem's ridge and intercept. For arguments see `with_centring`."""
    rounds, noise, privacy = s.algorithm.rounds, 0.0, s.privacy
    if privacy.guarantee == "certified" and privacy.epsilon is not None and privacy.delta:
        share = 1.0 / (1.0 + LABEL_FACTOR**2)
        noise = math.sqrt(_variance_of_mean(privacy, shards, noise_average, clip.at(0).y, share, weights))
    # In fewer than three rounds, only the mean label is released.
    label_rounds = (rounds - 1) // 2 if rounds >= 3 else rounds
    bias = getattr(problem.model, "bias", 1.0)
    return replace(algorithm, label_rounds=label_rounds, noise=noise, l2=problem.l2, bias=bias)


def _variance_of_mean(
    privacy: PrivacyTable, shards: Shards, noise_average: float, clip: float, share: float, weights: Array | None
) -> float:
    """Compute the noise variance per coordinate of a mean that is released once with a share of μ² and averaged."""
    unit = unit_of(privacy.unit, privacy.neighbours)
    records, clips = records_and_clips(unit, shards.train_counts, weights)
    mu = largest_mu(privacy.epsilon or 0.0, privacy.delta) * math.sqrt(share)
    return (clip * clips / (records * mu)) ** 2 / noise_average


def no_statistics(s: Scenario, problem: Any, mechanism: Mechanism, topology: Topology, sampling: Sampling) -> str:
    """Return the reason why agents cannot release sufficient statistics, or ""."""
    if not isinstance(problem, Training) or not problem.has_statistics:
        return "it solves linear regression with the squared loss"
    if s.privacy.guarantee == "certified" and (mechanism != GAUSSIAN or s.privacy.epsilon is None):
        return "its ridge requires Gaussian noise and a target ε (privacy.epsilon)"
    if s.tail_length > 1:
        return "it publishes solutions, and run.average would average those of early rounds"
    return _no_centre(s, topology, sampling)


def _no_centre(s: Scenario, topology: Topology, sampling: Sampling, model_facts: StepFacts | None = None) -> str:
    """Return the reason why features cannot be centred, or "".

    Args:
        s: scenario.
        topology: topology of the agents.
        sampling: rule for the records that a round reads.
        model_facts: facts of the model; None (the default) means any model.
    """
    if model_facts is not None and not model_facts.features:
        return "the model is not linear"
    if s.privacy.share and "x" not in s.privacy.share:
        return "privacy.share has no x"
    if sampling.kind not in CENTRED_SAMPLINGS:
        return "records come in a public order"
    if topology.over_time is not None or s.topology.compression is not None:
        return "the network changes or messages are compressed"
    if s.privacy.correlation is not None and s.privacy.correlation.over_rounds is not None:
        return "noise is correlated over rounds"
    return ""


def hyperparameters_text(
    problem: Any,
    algorithm: Any,
    noise_average: int,
    clip: Clip,
    rounds: int,
    noise: Mapping[str, NoiseSchedule],
    pairs: PairNoise | None,
) -> str:
    """Describe learning rate, local steps and accumulated noise of one-level training; "" for other problems."""
    algorithm = strip_centring(algorithm)
    step = getattr(algorithm, "learning_rate", None)
    if not isinstance(problem, PlannedTraining) or not isinstance(step, StepSize):
        return ""
    is_dsgd, is_clipped = isinstance(algorithm, DpDsgd), bool(noise) and math.isfinite(clip.y)
    text = f"Learning rate {step.scale:g}{schedule_text(step.to_dict())}"
    has_local_steps = is_dsgd and algorithm.local_steps
    if has_local_steps:
        text += f", {algorithm.local_steps} local steps per round{', whose change is clipped' if is_clipped else ''}"
    text += "" if is_clipped else ", no clipping"
    if not is_dsgd or not is_clipped:
        return f"{text}."
    schedule = next(schedule for channel, schedule in noise.items() if channel != "x")
    # Mean over agents of the squared scales of their independent noise, relative to the schedules.
    own_square = 1.0 if pairs is None else pairs.own_square()
    largest = schedule.select(np.array([np.argmax(schedule.scale)]))
    squares = np.square(largest.deviations(np.arange(1, rounds + 1))).sum()
    change = math.sqrt(squares * own_square / noise_average) / (1.0 - algorithm.momentum)
    return f"{text}, accumulated noise per weight (sd) {change:.2g}."


# Algorithms with gradients at the agent's released point, before mixing.
_BEFORE_MIXING = ("ldp_single_level", "ldp_dsbo")


def largest_weight(weights: Array | None) -> float:
    """Return the largest factor, from weights (m,) or None for ones, of an agent's gradient and so of its curvature."""
    return 1.0 if weights is None else float(weights.max())


def curvature_of(problem: Any, radius: float | None, start: Mapping[str, float]) -> float:
    """Compute L, a bound on the curvature in y for every possible record; infinite if unknown.

    Args:
        problem: problem of one level, or of two levels with x at its start.
        radius: bound on ‖a‖₂ of every possible record; None if there is none.
        start: channel → constant start.
    """
    if isinstance(problem, PlannedTraining):
        facts = problem.step_facts()
        # The usual curvature of a network is not a bound.
        return facts.curvature if facts.linear else math.inf
    if radius is None:
        return math.inf
    x = np.full(problem.p, float(start.get("x", 0.0)))
    try:
        return float(family_of(problem, radius).constants(x, x).b_gyy)
    except (InputError, AttributeError, ValueError):
        return math.inf


def largest_stable_step(kind: str, algorithm: Any, topology: Topology, curvature: float) -> float:
    """Compute the largest learning rate of y that is stable on a graph; 0 if momentum is unstable.

    Let P be the matrix of all weights, including the diagonal, λ_min its smallest eigenvalue, and L a certified bound
    on the curvature of every agent's objective in y. Near a minimum, along an eigenvector of P with the eigenvalue w
    and the curvature h ≤ L:

    - gradients before mixing, c⁺ = w c − λ h c, are stable if λL < 1 + λ_min.
    - gradients after mixing with momentum β, c⁺ = w((1 + β − λh) c − β c⁻), are stable, by the criterion of Jury, if
      λL < 2 (1 + β) for w = 1, and for w = −u < 0 if u (1 + 2β) < 1 and λL < (1 + u)/u.

    For agents without edges, a server, and networks that change, the condition is λL < 2 (1 + β), as for w = 1. L holds
    for all records of the declared ranges. A larger learning rate may be stable on the actual records. A clip bounds
    the speed of divergence but does not prevent it.

    Args:
        kind: name of the algorithm.
        algorithm: the gossip program.
        topology: topology of the agents.
        curvature: bound L on the curvature.

    Example:
        >>> from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
        >>> from decentral_dp.algorithms.gossip.ldp_single_level import LdpSingleLevel
        >>> from decentral_dp.algorithms.protocol import StepSize
        >>> from decentral_dp.topology import build_topology
        >>> ring = build_topology("ring", 4)
        >>> programs = {"ldp_single_level": LdpSingleLevel(StepSize(1.0)), "dp_dsgd": DpDsgd(StepSize(1.0))}
        >>> [round(largest_stable_step(kind, program, ring, 0.5), 3) for kind, program in programs.items()]
        [1.333, 4.0]
    """
    beta = float(getattr(strip_centring(algorithm), "momentum", 0.0))
    least = 1.0 - topology.delta_max
    mixes = bool(topology.edges.size) and not algorithm.has_server and topology.over_time is None
    if not mixes:
        return 2.0 * (1.0 + beta) / curvature
    if kind in _BEFORE_MIXING:
        return (1.0 + least) / curvature
    if -least * (1.0 + 2.0 * beta) >= 1.0:
        return 0.0
    bound = 2.0 * (1.0 + beta)
    return (min(bound, (1.0 - least) / -least) if least < 0.0 else bound) / curvature


def mixing_text(topology: Topology, rounds: int) -> str:
    """Warn if there are too few rounds for the noise of other agents to hide a record; otherwise return "".

    Args:
        topology: topology of the agents.
        rounds: number of rounds T.
    """
    least = math.ceil(5.0 / topology.spectral_gap - 1e-9) if topology.spectral_gap > 0.0 else 0
    if rounds >= least or topology.over_time is not None:
        return ""
    return (
        f"In {rounds} rounds, little noise of other agents hides a record on this graph (spectral gap "
        f"{topology.spectral_gap:.3g}). Fix: algorithm.rounds = {least}, or a topology with a larger spectral gap."
    )


def stability_text(kind: str, algorithm: Any, topology: Topology, curvature: float, rounds: int) -> str:
    """Warn about a learning rate that is unstable on a graph, and name the largest stable one; "" if it is stable.

    Args:
        kind: name of the algorithm.
        algorithm: the gossip program.
        topology: topology of the agents.
        curvature: bound L on the curvature.
        rounds: number of rounds T, over which the largest learning rate is taken.
    """
    algorithm = strip_centring(algorithm)
    names = ("learning_rate", "y", "z") if kind in _BEFORE_MIXING else ("learning_rate", "y")
    sizes = {name: getattr(algorithm, name, None) for name in names}
    steps = {name: float(size.series(rounds).max()) for name, size in sizes.items() if isinstance(size, StepSize)}
    if not steps or not 0.0 < curvature < math.inf:
        return ""
    longest = max(steps, key=lambda name: steps[name])
    step, least = steps[longest], 1.0 - topology.delta_max
    largest = largest_stable_step(kind, algorithm, topology, curvature)
    if step <= largest:
        return ""
    if not largest:
        return (
            f"Momentum {algorithm.momentum:g} is unstable on this graph, whose weights have the eigenvalue "
            f"{least:.3g}. Fix: algorithm.momentum = 0, or another topology."
        )
    # Three digits, rounded down.
    unit = 10.0 ** (math.floor(math.log10(largest)) - 2)
    name = "The learning rate" if longest == "learning_rate" else f"The learning rate of {longest}"
    return (
        f"{name}, {step:.3g}, may be unstable on this graph. The largest stable one is "
        f"{float(f'{math.floor(largest / unit) * unit:.3g}'):g} (L = {curvature:.4g})."
    )
