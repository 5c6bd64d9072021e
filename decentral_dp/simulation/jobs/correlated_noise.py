"""Noise of a gossip job that is correlated between agents or over rounds: its factor and its scales."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from decentral_dp.algorithms.protocol import Counts
from decentral_dp.bounded import Array
from decentral_dp.config.schema import Scenario
from decentral_dp.data import Stream
from decentral_dp.errors import InputError
from decentral_dp.participants import Network
from decentral_dp.privacy.clipping import Unit
from decentral_dp.privacy.pair_noise import PairNoise, best_ratio, best_scales
from decentral_dp.privacy.time_factors import TimeFactor, banded_square_root, factor_of
from decentral_dp.topology.over_time import off_diagonal

# Agents, and colluders among them, of which the best ratio of shared noise is found in seconds; of which the scales of
# each link are, by number of colluders.
MOST_FOR_RATIO, _FEW_COLLUDERS, MOST_FOR_SCALES = 256, 3, (256, 40)
# Of shared to own noise where it is not given: models after mixing err less with more of it in a dense graph, but what
# is published are releases, of which it would be most.
_LARGEST_RATIO = 4.0
IN_TIME = "privacy.correlation.in_time"


def time_factor_of(s: Scenario, stream: Stream, unit: Unit, counts: Counts) -> TimeFactor | None:
    """The factor of noise that is correlated in time; None where none is wanted.

    Args:
        s: the scenario.
        stream: which records a round reads.
        unit: what two data sets differ in.
        counts: kind of records → (m,) how many each agent has.

    Raises:
        InputError: a custom factor has another number of rounds.
    """
    correlation, rounds = s.privacy.correlation, s.algorithm.rounds
    if correlation is None or correlation.in_time is None:
        return None
    given = correlation.in_time
    # The rounds of several records together may be any.
    held = sorted({int(n) for some in counts.values() for n in some if n})
    gap = stream.least_gap(np.array(held)) if unit.records == 1 else 1
    if given == "banded_square_root":
        given = gap
    if isinstance(given, int):
        return banded_square_root(rounds, given, apart=gap)
    if {rounds} != {len(given), *map(len, given)}:
        raise InputError(f"{IN_TIME}: got {len(given)} lines, expected {rounds} lines of {rounds} numbers.")
    reads = np.vstack([stream.reads(n, rounds) for n in held]) if gap > 1 else None
    return factor_of(np.array(given), reads)


def pair_noise_of(s: Scenario, network: Network) -> PairNoise | None:
    """Return the noise that agents share; None if none is wanted, or without any.

    Args:
        s: the scenario, checked against the table of refusals.
        network: what everybody knows of it.
    """
    correlation, colluders = s.privacy.correlation, s.privacy.colluders
    if correlation is None or correlation.across is None or s.privacy.guarantee == "none":
        return None
    if correlation.across == "optimised":
        own, pair = best_scales(*_mixing_weights(network), s.algorithm.rounds, colluders)
        # Three digits are enough, and are the same wherever they are computed.
        rounded = np.vectorize(lambda scale: float(f"{scale:.3g}"))
        return PairNoise(rounded(pair.toarray() / own.min()), colluders, network, rounded(own / own.min()))
    everybody, ratio = correlation.across == "zero_sum", correlation.ratio
    if ratio is None:
        mixed, links = _mixing_weights(network)
        if everybody:
            links = sp.csr_matrix(1.0 - np.eye(network.n_agents))
        best = best_ratio(mixed, links, s.algorithm.rounds, min(colluders, _FEW_COLLUDERS))
        ratio = min(best, _LARGEST_RATIO)
    return PairNoise(ratio, colluders, network, all_pairs=everybody)


def _mixing_weights(network: Network) -> tuple[Array, sp.csr_matrix]:
    """Mixing weights of all models, the own one included, and the links."""
    heard = off_diagonal(network.mixing)
    links = sp.csr_matrix(heard.astype(bool), dtype=np.float64)
    return heard.toarray() + np.diag(1.0 - heard.sum(axis=1)), links.maximum(links.T)
