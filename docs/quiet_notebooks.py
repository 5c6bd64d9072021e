"""No bars in the notebooks of the site: a reader's browser would fetch their widgets from elsewhere.

Used only by `mkdocs build`, by the name in `mkdocs.yml`; not part of the site.
"""

from __future__ import annotations

import os
from typing import Any


def on_startup(**_: Any) -> None:
    """Say so to the kernels that run the notebooks, as rich has it."""
    os.environ["TTY_INTERACTIVE"] = "0"
