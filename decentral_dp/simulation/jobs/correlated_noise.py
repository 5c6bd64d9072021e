"""Noise of a gossip job that is correlated, across agents or in time: which jobs take it, its factor, its scales."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.protocol import Algorithm, Counts
from decentral_dp.bounded import Array
from decentral_dp.config.components import Components
from decentral_dp.config.schema import Scenario, TimeFactorTable
from decentral_dp.data import Stream
from decentral_dp.data.synthetic import machine_memory
from decentral_dp.errors import InputError, quoted_path
from decentral_dp.exchange import senders_of
from decentral_dp.files.regular import regular
from decentral_dp.participants.agents import Network
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.mechanisms.time_factors import TimeFactor, banded_square_root, factor_of
from decentral_dp.privacy.pair_noise import PairNoise, best_ratio, best_scales
from decentral_dp.privacy.unit import Unit
from decentral_dp.topology.over_time import off_diagonal

# Agents, and colluders among them, of which the best ratio of shared noise is found in seconds; of which the scales of
# each link are, by number of colluders.
_MOST_FOR_RATIO, _FEW_COLLUDERS, _MOST_FOR_SCALES = 256, 3, (256, 40)
# Of shared to own noise where it is not given: models after mixing err less with more of it in a dense graph, but what
# is published are releases, of which it would be most.
_LARGEST_RATIO = 4.0
IN_TIME = "privacy.correlation.in_time"


def refusal_of_correlation(why: str, mend: str, key: str = "privacy.correlation") -> InputError:
    """The refusal of noise that is correlated, where proof 40 does not hold."""
    return InputError(f"{key}: {why} Leave it out, or {mend}.")


def follows_from_releases(c: Components, algorithm: Algorithm) -> bool:
    """Whether a release is, given those before it, a sum of clipped means at public points.

    Of an author's own that is what is recorded: what it keeps un-noised is in the sums, what no sum bounds is infinite,
    and what was not planned is not released.
    """
    return (bool(c.algorithm.custom) or algorithm.memoryless) and algorithm.protocol == "released"


def check_correlation(c: Components, algorithm: Algorithm, network: Network, stream: Stream) -> bool:
    """Say whether noise is correlated, across agents or in time.

    Raises:
        InputError: what proof 40 supposes does not hold, or batches take turns in noise that it does not price.
    """
    s, kind, given = c.scenario, c.scenario.algorithm.kind, c.scenario.privacy.correlation
    if s.privacy.guarantee == "none":
        return False
    if stream.kind == "turns" and (given is None or given.in_time is None):
        raise InputError(
            "problem.stream: turns are priced in noise that is correlated in time, or fresh by a band of 1. Give for "
            'example privacy.correlation = { in_time = { bands = 1 } }, or take "all".'
        )
    if given is None:
        return False
    if s.privacy.guarantee == "as_printed":
        raise refusal_of_correlation("papers that are run as printed state noise of their own.", 'take "certified"')
    if c.mechanism != GAUSSIAN:
        why = (
            "the sum of a pair's noise and one's own is priced" if given.across else "what noise goes on from is known"
        )
        raise refusal_of_correlation(f"{why} where both are normal.", 'take "gaussian"')
    if not follows_from_releases(c, algorithm):
        raise refusal_of_correlation(
            "the price supposes that whatever a query goes on from was released, and that is not so or not known of "
            f"{kind} with {algorithm.protocol} states.",
            f"take released states of one of {kinds_with('memoryless')}, or your own",
        )
    # Who is away shares nothing, and everybody knows it before.
    if given.across is not None and senders_of(algorithm, network._replace(over_time=None)) is not None:
        why = f"in some rounds of {kind} an agent is silent, whose neighbours' noise stays."
        raise refusal_of_correlation(why, "take dp_dsgd")
    if algorithm.subtracts_variance:
        why = f"{kind} subtracts the variance of noise that is fresh and an agent's own from squares of its steps."
        raise refusal_of_correlation(why, "take steps that are not adaptive")
    if given.in_time is not None:
        _check_time(c, algorithm, network, stream)
    return True


def _check_time(c: Components, algorithm: Algorithm, network: Network, stream: Stream) -> None:
    kind = c.scenario.algorithm.kind
    if stream.kind not in ("all", "turns"):
        raise refusal_of_correlation(
            f"problem.stream is {stream.kind}, and the price supposes that everybody knows which rounds read a record, "
            "and that each moves as much: noise that goes on shows a secret sample in later rounds.",
            'take problem.stream.kind = "turns"',
            IN_TIME,
        )
    if c.algorithm.custom or algorithm.releases_per_round != 1:
        why = f"it is priced where a round makes one release, and {kind} makes more or says not."
        raise refusal_of_correlation(why, "take dp_dsgd", IN_TIME)
    if stream.kind == "turns" and not algorithm.one_mean:
        why = f"releases of {kind} read more than one batch, so that a record is not read in turn."
        raise refusal_of_correlation(why, f"take one of {kinds_with('one_mean')}", IN_TIME)
    if senders_of(algorithm, network) is not None:
        why = "what an agent does not send it still goes on from, unseen."
        raise refusal_of_correlation(why, "let everybody send in every round", IN_TIME)


def time_factor_of(s: Scenario, stream: Stream, unit: Unit, counts: Counts, numbers: int) -> TimeFactor | None:
    """The factor of noise that is correlated in time; None where none is wanted.

    Args:
        s: the scenario.
        stream: which records a round reads.
        unit: what two data sets differ in.
        counts: kind of records → (m,) how many each agent has.
        numbers: that all agents release in a round.

    Raises:
        InputError: the file is none of a factor, or there is no room for what noise goes on from.
    """
    correlation, rounds = s.privacy.correlation, s.algorithm.rounds
    if correlation is None or correlation.in_time is None:
        return None
    given = correlation.in_time
    # The rounds of several records together may be any.
    held = sorted({int(n) for some in counts.values() for n in some if n})
    gap = stream.least_gap(np.array(held)) if unit.records == 1 else 1
    if isinstance(given, str):
        given = TimeFactorTable(bands=gap)
    if isinstance(given, TimeFactorTable) and given.bands is not None:
        _require_room(numbers, given.bands)
        return banded_square_root(rounds, given.bands, apart=gap)
    _require_room(numbers, rounds)
    reads = np.vstack([stream.reads(n, rounds) for n in held]) if gap > 1 else None
    return factor_of(_own_inverse(s, given), reads)


def _require_room(numbers: int, rounds: int) -> None:
    """Refuse what noise goes on from where it is too large for this machine. Raises InputError."""
    if 8.0 * numbers * rounds > machine_memory() / 4.0:
        raise InputError(
            f"{IN_TIME}: draws of {rounds} rounds are kept, more than this machine has room for. Take fewer bands."
        )


def _own_inverse(s: Scenario, factor: TimeFactorTable | list[list[float]]) -> Array:
    """The custom C⁻¹ of a scenario, (T, T), as rows or in a file. Raises InputError for another shape."""
    rounds, rows, place = s.algorithm.rounds, factor, IN_TIME
    if isinstance(rows, TimeFactorTable):
        path, place = s.resolve(str(rows.file)), f"{IN_TIME}.file"
        try:
            rows = np.loadtxt(regular(path, place), delimiter=",", ndmin=2).tolist()
        except (OSError, ValueError) as error:
            raise InputError(
                f"{place}: {quoted_path(path)} is no table of numbers ({error}). Give a .csv file."
            ) from error
    if {rounds} != {len(rows), *map(len, rows)}:
        raise InputError(f"{place}: got {len(rows)} lines, wanted one of {rounds} numbers for each of {rounds} rounds.")
    return np.array(rows)


def pair_noise_of(s: Scenario, network: Network) -> PairNoise | None:
    """The noise that agents share; None where none is wanted, or without any.

    Raises:
        InputError: what proof 40 supposes does not hold.
    """
    given = s.privacy.correlation
    if given is None or given.across is None or s.privacy.guarantee == "none":
        return None
    if given.in_time is not None and network.over_time is not None:
        raise refusal_of_correlation(
            "links that change make what is shared of another size in each round, and noise that is correlated in time "
            "is priced at one.",
            "take a network that stays",
        )
    if s.problem.manifest is not None:
        why = "agents with records of their own add secrets to their noise that no neighbour has."
        raise refusal_of_correlation(why, "give all records to one scenario")
    unlinked = np.setdiff1d(np.arange(network.n_agents), network.links())
    if unlinked.size and (given.across != "zero_sum" or network.n_agents == 1):
        raise refusal_of_correlation(
            f"agent {unlinked[0]} has no neighbour to share noise with, and its price would be that of its own alone, "
            "which sets the scale of all.",
            "link it",
        )
    for channel in ("x", "y", "z"):
        table = s.privacy.noise(channel)
        if table is not None and (
            table.decay_per_agent or isinstance(table.scale, list) or isinstance(table.decay, list)
        ):
            raise InputError(
                f"privacy.{channel}: neighbours share noise of one scale, and here each agent has its own. Give one "
                "scale and one decay for all."
            )
    colluders, everybody = s.privacy.colluders, given.across == "zero_sum"
    if given.across == "optimised":
        own, pair = _best_scales(s, network)
        return PairNoise(pair, colluders, network, own)
    return PairNoise(given.ratio or _best_ratio(s, network, everybody), colluders, network, all_pairs=everybody)


def _best_ratio(s: Scenario, network: Network, everybody: bool) -> float:
    """The ratio that errs least in gossip. Raises InputError where the network changes, or is large."""
    if network.over_time is not None or network.n_agents > _MOST_FOR_RATIO:
        why = (
            "of a network that stays alone" if network.over_time is not None else f"of {_MOST_FOR_RATIO} agents at most"
        )
        raise InputError(f"privacy.correlation.ratio: missing. It is found {why}; give for example ratio = 2.0.")
    mixed, links = _mixing_weights(network)
    if everybody:
        links = sp.csr_matrix(1.0 - np.eye(network.n_agents))
    return min(best_ratio(mixed, links, s.algorithm.rounds, min(s.privacy.colluders, _FEW_COLLUDERS)), _LARGEST_RATIO)


def _best_scales(s: Scenario, network: Network) -> tuple[Array, Array]:
    """Scales of each agent, the least of them 1, and (m, m) of each link. Raises InputError where none are found."""
    changes, colluders, m = network.over_time, s.privacy.colluders, network.n_agents
    refused = 'privacy.correlation.across: "optimised" {}. Take "pairwise".'.format
    if s.privacy.correlation is not None and s.privacy.correlation.ratio is not None:
        raise InputError('privacy.correlation.ratio: "optimised" finds a scale for each link. Leave ratio out.')
    if changes is not None and changes.kind != "fixed":
        raise InputError(refused("finds scales for links that stay, though messages may be lost and agents away"))
    if colluders >= len(_MOST_FOR_SCALES):
        raise InputError(refused(f"finds scales against no colluder or one, and not against {colluders}"))
    if m > _MOST_FOR_SCALES[colluders]:
        raise InputError(
            refused(f"finds scales of at most {_MOST_FOR_SCALES[colluders]} agents against {colluders} colluders")
        )
    own, pair = best_scales(*_mixing_weights(network), s.algorithm.rounds, colluders)
    # Three digits are enough, and are the same wherever they are computed.
    rounded = np.vectorize(lambda scale: float(f"{scale:.3g}"))
    return rounded(own / own.min()), rounded(pair.toarray() / own.min())


def _mixing_weights(network: Network) -> tuple[Array, sp.csr_matrix]:
    """Mixing weights of all models, the own one included, and the links."""
    heard = off_diagonal(network.mixing)
    links = sp.csr_matrix(heard.astype(bool), dtype=np.float64)
    return heard.toarray() + np.diag(1.0 - heard.sum(axis=1)), links.maximum(links.T)


def kinds_with(fact: str) -> str:
    """The algorithms of this package that state a fact which others leave as it is, as a refusal names them."""
    default = getattr(Algorithm, fact)
    return ", ".join(
        f'"{kind}"' for kind, e in ALGORITHMS.items() if getattr(e.algorithm, fact, default) is not default
    )
