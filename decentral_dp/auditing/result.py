"""What an audit of a guarantee shows and its form on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from decentral_dp.errors import InputError
from decentral_dp.formatting import at_least_text, epsilon_text
from decentral_dp.simulation.result import plain

Method = Literal["exact", "likelihood", "counting", "difference", "one run"]


Status = Literal["ok", "refuted", "broken", "interrupted"]


@dataclass(frozen=True)
class AuditResult:
    """What an audit shows.

    Args:
        claimed: ε of the paper's theorem, for the worst agent; None where none is given.
        certified: ε of the ledger at delta, of the agent whose record is replaced.
        shown: ε is at least this, with this confidence.
        method: "exact" (the law of the likelihood ratio is known), "likelihood" or "counting" (from runs),
            "difference" (nothing hides the record), or "one run" (canaries in a single one).
        vantage: "everybody", "published" or "agent:K".
        runs: of each data set.
        null_shown: the same of two equal data sets; above 0 the audit is broken.
        status: "ok", "refuted" (more is shown than is certified), "broken" or "interrupted".
        sentences: what the numbers say, and do not.
        privacy: the guarantee of the audited run, as in `PrivacyStatement.summary`.
        curve: (α, β) that the trade-off curve of the two data sets is at or below; empty where it was not asked for.

    Example:
        >>> import decentral_dp
        >>> found = decentral_dp.audit("network_view", set={"algorithm.rounds": 2}, runs=20)
        >>> found.method, found.status, 0.95 * found.certified <= found.shown <= found.certified
        ('exact', 'ok', True)
    """

    title: str
    claimed: float | None
    certified: float
    shown: float
    delta: float
    confidence: float
    method: Method
    vantage: str
    runs: int
    null_shown: float
    status: Status
    sentences: tuple[str, ...]
    privacy: str
    curve: tuple[tuple[float, float], ...] = ()

    def __repr__(self) -> str:
        budgets = f"ε {at_least_text(self.shown)} shown, {epsilon_text(self.certified)} certified"
        return f"<AuditResult {self.title!r}: {self.status}, {budgets}, {self.method}>"

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values; infinite numbers are "inf"."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> AuditResult:
        """What `to_dict` gave. Raises InputError where it is none of an audit."""
        try:
            return TypeAdapter(cls).validate_python(dict(content))
        except ValidationError as error:
            lacking = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
            raise InputError(f"audit: this is no result of an audit ({lacking}); give one that was written.") from None
