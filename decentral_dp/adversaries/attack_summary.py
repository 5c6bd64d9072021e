"""What an attack on runs found: its sentences, and the file with all numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decentral_dp.adversaries.audit_storage import write_json
from decentral_dp.adversaries.repeats import Inference, Verdict
from decentral_dp.formatting import delta_text, epsilon_text

# A chance above which a mean over a ceiling may still be chance, if AUCs of runs follow no normal law.
_DOUBT = 0.05


def sentences(found: Inference) -> list[str]:
    """What the numbers say, and do not."""
    out = [_verdict(found)]
    scored = found.each[0]
    if scored.members + scored.others < found.eligible:
        out.append(
            f"Of {found.eligible} records {scored.members + scored.others} are scored, drawn by a public key: an "
            "AUC is an estimate of that of all."
        )
    if found.claimed is not None:
        out.append(_on_the_claim(found))
    if found.epsilon == float("inf"):
        out.append("No finite ε is certified here, so no AUC contradicts the certificate.")
    if len(found.each) == 1:
        out.append(
            "There is no interval of one run: its AUC moves with its noise and with who is held out, which all its "
            "pairs share. Give --runs 10 for fresh noise and another split in each."
        )
    out.append(
        "The ceiling is for members and others that could have changed places, and for one record replaced. It holds "
        "for every attack; those here ask a model about single records, and a low AUC certifies nothing."
    )
    out.append("AUCs read the private records: they are the simulator's view, and no budget covers them.")
    return out


def _verdict(found: Inference) -> str:
    budget = f"ε = {epsilon_text(found.epsilon)} at δ = {delta_text(found.delta)}"
    above = {name: v for name, v in found.verdicts.items() if v.above}
    if above:
        return (
            f"Above the ceiling: {_by(above)} the lower end of the interval exceeds what {budget} allows. A bug, or a "
            f"broken guarantee{_doubt(found.verdicts)}."
        )
    if len(found.each) == 1:
        return "No verdict: one run cannot tell."
    if found.ceiling >= 1.0:
        return f"No verdict: {budget} allows every AUC."
    if all(
        v.interval is not None and v.interval.high >= 1.0 and v.interval.low <= 0.5 for v in found.verdicts.values()
    ):
        return "No verdict: the intervals are too wide to tell. Take more --runs."
    return f"Within: no attack's interval lies above what {budget} allows."


def _on_the_claim(found: Inference) -> str:
    said, at, _ = found.claimed if found.claimed is not None else (0.0, 0.0, 0.0)
    claim = f"the claim, ε = {epsilon_text(said)}" + (f" at δ = {delta_text(at)}" if at else "")
    above = {name: v for name, v in found.against_claim.items() if v.above}
    if above:
        return (
            f"Refuted is {claim}: {_by(above)} the lower end lies above what it implies{_doubt(found.against_claim)}."
        )
    return f"Not refuted is {claim}: no attack's interval lies above what it implies."


def _by(verdicts: Mapping[str, Verdict]) -> str:
    return f"by {' and by '.join(verdicts)}"


def _doubt(verdicts: Mapping[str, Verdict]) -> str:
    """Where the interval leans on AUCs being about normal; the chance is that of any of the attacks."""
    chance = min(1.0, len(verdicts) * min(v.chance for v in verdicts.values()))
    if chance <= _DOUBT:
        return ""
    return (
        f", if AUCs of runs are about normal; whatever their law, so few runs show as much with a chance of up to "
        f"{chance:.2g} where the guarantee holds, so give more --runs to be sure"
    )


def summary(found: Inference, folders: Sequence[Path]) -> dict[str, Any]:
    """The same as JSON values."""
    claim = None
    if found.claimed is not None:
        claim = dict(zip(("epsilon", "delta", "ceiling"), found.claimed, strict=True))
    return {
        "title": found.scenario.title,
        "folders": [str(folder) for folder in folders],
        "guarantee": found.scenario.privacy.guarantee,
        "game": "within one run, members and others exchangeable, one record replaced",
        "epsilon": found.epsilon,
        "delta": found.delta,
        "ceiling": found.ceiling,
        "claimed": claim,
        "runs": len(found.each),
        "runs_given": found.given,
        "members": found.each[0].members,
        "others": found.each[0].others,
        "confidence": 0.95,
        "attacks": {
            name: {
                "auc": verdict.auc,
                "low": None if verdict.interval is None else verdict.interval.low,
                "high": None if verdict.interval is None else verdict.interval.high,
                "above_ceiling": verdict.above,
                "chance_at_most": verdict.chance,
                "above_claim": found.against_claim[name].above if found.claimed is not None else None,
                "each": [one.auc[name] for one in found.each],
            }
            for name, verdict in found.verdicts.items()
        },
        "verdict": "above" if found.broken else "none" if len(found.each) == 1 else "within",
        "sentences": sentences(found),
    }


def write(found: Inference, folders: Sequence[Path], out: Path) -> None:
    write_json(out, summary(found, folders))
