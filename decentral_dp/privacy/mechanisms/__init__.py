"""Mechanisms by name: final classes, each with its price, its sampler and what is known of its law.

A mechanism of a user's own comes in by `register_outside`.
"""

from __future__ import annotations

from collections.abc import Mapping

from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms.gaussian import Gaussian
from decentral_dp.privacy.mechanisms.laplace import Laplace
from decentral_dp.privacy.mechanisms.noiseless import EXPONENTIAL, NO_MECHANISM, NO_NOISE, PURE, UNCERTIFIED
from decentral_dp.privacy.mechanisms.protocol import DominatingPair, Mechanism, NoiseMechanism, NormalVariates, noise_of

LAPLACE, GAUSSIAN = Laplace(), Gaussian()

# Name, as in ledgers on disk → mechanism.
MECHANISMS: Mapping[str, Mechanism] = {
    m.name: m for m in (LAPLACE, GAUSSIAN, PURE, EXPONENTIAL, NO_NOISE, UNCERTIFIED, NO_MECHANISM)
}


def mechanism_of(named: Mechanism | str) -> Mechanism:
    """The mechanism of that name; a mechanism is its own.

    Raises:
        InputError: where no mechanism has this name.
    """
    if not isinstance(named, str):
        return named
    if named not in MECHANISMS:
        raise InputError(
            f"ledger: a channel was released by {named!r}, which no accountant knows; "
            f"it prices {', '.join(m.name for m in MECHANISMS.values() if m.charged)} and free releases."
        )
    return MECHANISMS[named]
