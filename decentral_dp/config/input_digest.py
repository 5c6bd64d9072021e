"""A digest of what a scenario reads besides its own text: files, shards and components that it names."""

from __future__ import annotations

from hashlib import blake2b

from decentral_dp.config.algorithm_components import outside_source
from decentral_dp.config.outside import fingerprints
from decentral_dp.config.schema import Scenario
from decentral_dp.privacy.fingerprint import digest_of_file


def inputs_digest(scenario: Scenario, salt: bytes) -> str:
    """Hash the content of the files that a scenario names, and of components from outside the package.

    Without a salt, whoever knows all of a file but one value could try what that is.

    Args:
        scenario: as loaded.
        salt: at most 64 random bytes, which are kept apart from the digest, for the owner of the files only to read.

    Returns:
        16 hexadecimal digits; the same for all scenarios that name nothing, whatever the salt.

    Raises:
        InputError: a file cannot be read.
    """
    inputs = "".join(
        [
            *(digest_of_file(path) for _, path in sorted(scenario.files().items())),
            *(f"{what} {digest}" for what, digest in fingerprints(scenario).items()),
            outside_source(scenario),
        ]
    )
    return blake2b(inputs.encode(), digest_size=8, key=salt if inputs else b"").hexdigest()
