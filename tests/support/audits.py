"""An audit in one call, as tests make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decentral_dp.auditing.audit import AuditResult, plan_audit, play_game


def audit(
    scenario: Any,
    runs: int = 200,
    adversary: str = "all_messages",
    confidence: float = 0.95,
    seed: int = 0,
    overrides: Any = (),
    out: str | Path | None = None,
) -> AuditResult:
    plan = plan_audit(scenario, runs, adversary, confidence, seed, overrides)
    return play_game(plan, None if out is None else Path(out))
