"""Names of files that tell what a folder is of, read by whoever goes on with it."""

from __future__ import annotations

# Of a study: what it was asked, until it is complete, and its finished cells.
STUDY, CELLS = "begun.json", "cells"
# Of several audits: what is done, and with which settings.
TABLE = "audits.json"
