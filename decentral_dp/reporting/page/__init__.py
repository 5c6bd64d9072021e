"""One self-contained page about a run: what was run, what is guaranteed, what it cost, what came out.

Read from the run folder alone. Every ε is printed rounded up. Everything that is not written in this package is
escaped, by construction: see `markup`.
"""

from decentral_dp.reporting.page.page import write_report

__all__ = ["write_report"]
