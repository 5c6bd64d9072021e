"""How large what records add can be beside the noise of every channel: a bound from public numbers."""

from __future__ import annotations

from decentral_dp.reporting.page.markup import Html, tag
from decentral_dp.simulation.result import RunResult


def signal_section(result: RunResult) -> list[Html]:
    """A table of the largest signal in units of the noise; nothing where no channel has such a bound."""
    privacy = result.privacy
    if not privacy.signal:
        return []
    whose = "over all rounds" if privacy.is_trusted else "over all rounds and agents"
    heads = ("Channel", "in one release", whose)
    rows = [
        tag(
            "tr",
            tag("th", channel, scope="row"),
            *(tag("td", _ratio(value), class_="number") for value in (signal.one_release, signal.all_releases)),
        )
        for channel, signal in privacy.signal.items()
    ]
    table = tag("table", tag("thead", tag("tr", *(tag("th", h, scope="col") for h in heads))), tag("tbody", *rows))
    said = (
        "At most so many times the noise, as a norm, is what all records together add, if all of them agree. Most "
        "records do not agree that well: a run may learn nothing at several times 1, and below 1 noise alone moves it. "
        "The bound follows from sensitivities, counts and scales, and reads no record."
    )
    return [tag("h2", "Signal beside the noise"), tag("div", table, class_="wide"), tag("p", said, class_="small")]


def _ratio(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2g}" if value < 10.0 else f"{value:.0f}"
