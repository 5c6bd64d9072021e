"""What a user did wrong, in one sentence."""

from __future__ import annotations


class InputError(ValueError):
    """A scenario, file or argument that cannot be used.

    The message is one sentence: what, what was got, what is wanted, and how to mend it.
    """
