"""What of a coordinator's scenario can be refused before a record is read."""

from __future__ import annotations

from typing import cast

from decentral_dp.algorithms.coordinator_minimax.released_class_prior import check_share, released_share
from decentral_dp.algorithms.coordinator_protocol import Coordinated
from decentral_dp.config.algorithm_components import algorithm_of, entry_of, own_keys
from decentral_dp.config.problem_components import is_minimax, minimax_options
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.simulation.gossip_plan import LARGEST_PLAN


def check_coordinated(s: Scenario) -> Coordinated:
    """The program of a trusted coordinator. Whatever can be refused before a record is read is refused here.

    Raises InputError.
    """
    privacy, table, kind = s.privacy, s.algorithm, s.algorithm.kind
    if is_minimax(s):
        minimax_options(s)
        check_share(s.problem.positive_share, privacy.guarantee)
    if s.problem.stream != "all":
        samples = "rate" in entry_of(s).optional
        mend = "for samples give algorithm.rate." if samples else "it knows no samples."
        raise InputError(f"problem.stream: {kind} reads all records in every round. Leave the stream out; {mend}")
    if s.run.average != 1:
        raise InputError(f"run.average: {kind} publishes one value after the other, not averages. Leave it out.")
    for channel in ("x", "y", "z"):
        if privacy.noise(channel) is not None:
            raise InputError(
                f"privacy.{channel}: the noise of {kind} follows from privacy.epsilon and delta. Leave the scale out."
            )
    for key in ("box", "share", "cap", "epsilon_rounds"):
        if getattr(privacy, key):
            raise InputError(f"privacy.{key}: {kind} plans its whole budget beforehand and takes none. Leave it out.")
    program = released_share(cast(Coordinated, algorithm_of(s)), s.problem.positive_share)
    if privacy.epsilon is None and privacy.guarantee != "none":
        raise InputError(
            f"privacy.epsilon: missing. {kind} sets its noise by a target; give for example epsilon = 1.0."
        )
    if table.rounds > LARGEST_PLAN:
        raise too_long(table.rounds)
    if privacy.clip and not program.queries:
        raise InputError(
            f"privacy.clip: {kind} clips nothing, for what one record can do follows from the problem's constants. "
            "Leave it out."
        )
    if not entry_of(s).pure and privacy.delta == 0.0 and privacy.guarantee != "none":
        raise impure(kind)
    bounded = s.privacy.constants is not None or s.problem.normalise != "none" or s.problem.scale != "none"
    if program.needs_constants and not bounded:
        raise unbounded(kind)
    _check_start(s)
    return program


def require_answers(s: Scenario, algorithm: Coordinated) -> None:
    """Refuse a coordinator that works on more than its agents' sums, where the records are with their agents.

    Args:
        s: the scenario.
        algorithm: with its defaults resolved.

    Raises:
        InputError: it holds all records, or what is asked for counts or scores them.
    """
    kind = s.algorithm.kind
    if algorithm.needs_records:
        raise InputError(
            f"problem.manifest: as it is set, {kind} computes on the records of all agents in one place, and these are "
            "with their agents. Leave it out and give problem.data whole, or take an algorithm whose agents answer "
            "with sums, such as dp_bilevel, privatediff or dp_sgda."
        )
    if s.problem.positive_share == "empirical":
        raise InputError(
            'problem.positive_share: "empirical" is counted over the records of all, which are with their agents. Give '
            'a public share, or "released".'
        )
    if s.run.agent_scores:
        raise InputError(
            "run.agent_scores: the agents of a trusted coordinator answer its questions, and send no scores. Leave it "
            "out."
        )


def _check_start(s: Scenario) -> None:
    """Refuse a stated start outside the domain, which would silently be another."""
    domain, x = own_keys(s).get("domain"), s.algorithm.init.get("x")
    if domain is None or x is None or domain.kind != "box" or domain.low is None or domain.high is None:
        return
    if not domain.low <= x <= domain.high:
        raise InputError(
            f"algorithm.init.x: {x:g} lies outside the domain, which is from {domain.low:g} to {domain.high:g}. Start "
            "inside, or leave it out."
        )


def unbounded(kind: str) -> InputError:
    return InputError(
        f"problem.normalise: {kind} needs records of bounded length, and nothing bounds these. "
        'Set normalise = "l2" (or "l1", or "box").'
    )


def impure(kind: str) -> InputError:
    return InputError(
        f"privacy.delta: {kind} adds Gaussian noise, which gives no pure guarantee. Take a delta above 0, for example "
        "1e-6."
    )


def too_long(rounds: int) -> InputError:
    return InputError(f"algorithm.rounds: {rounds} rounds are more releases than can be priced. Use fewer rounds.")
