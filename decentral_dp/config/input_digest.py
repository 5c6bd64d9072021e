"""A digest of what a scenario reads besides its own text: files, shards and components that it names."""

from __future__ import annotations

from hashlib import blake2b

from decentral_dp.config.algorithm_components import outside_source
from decentral_dp.config.outside_components import fingerprints
from decentral_dp.config.schema import Scenario
from decentral_dp.privacy.fingerprint import digest_of_file


def inputs_digest(scenario: Scenario) -> str:
    """Hash the content of the files that a scenario names, and of components from outside the package.

    Args:
        scenario: as loaded.

    Returns:
        16 hexadecimal digits; the same for all scenarios that name nothing.

    Raises:
        InputError: a file cannot be read.
    """
    inputs = blake2b(digest_size=8)
    for _, path in sorted(scenario.files().items()):
        inputs.update(digest_of_file(path).encode())
    for what, digest in fingerprints(scenario).items():
        inputs.update(f"{what} {digest}".encode())
    inputs.update(outside_source(scenario).encode())
    return inputs.hexdigest()
