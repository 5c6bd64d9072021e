"""The study `printed_epsilon`: table, picture and page of what printed ε is worth."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.text import Text

from decentral_dp.reporting.page import environment
from decentral_dp.reporting.report import TextTable
from decentral_dp.reporting.style import GREY, SERIES_COLOURS, log_axis, new_figure, package_style, picture_of
from decentral_dp.reporting.terminal import console, terminal
from decentral_dp.simulation.folder.layout import check_writable
from papers.findings import short
from papers.printed_epsilon import CORN, DELTA, LIBSVM, MFDL, MNIST, MUFFLIATO, PN, TOP, Line, lines

TITLE = "What printed ε is worth"
LEAD = (
    "Each ε that a paper on decentralised learning prints, beside the smallest ε that is certified of the same "
    "releases, and the largest that a test with known error rates shows. A point above the diagonal is less private "
    f"than printed, one below it more. All at δ = {short(DELTA)}."
)
# Title of a panel → the papers in it.
_PANELS = {MNIST: (MNIST,), LIBSVM: (LIBSVM,), CORN: (CORN,), PN: (PN,), "pairs of agents": (MFDL, MUFFLIATO, TOP)}
_ON_TERMINAL = ("setting", "claimed", "certified", "shown ε", "claim")
FILES = ("printed_epsilon.parquet", "printed_epsilon.png", "report.html")


def in_words(frame: pd.DataFrame) -> TextTable:
    """Make the table of all lines, in words.

    Args:
        frame: a row for each claim, as of `printed_epsilon`.
    """
    heads = [("paper", ""), ("setting", ""), ("unit", ""), ("against", "")]
    heads += [("claimed", "ε"), ("certified", "ε at most"), ("shown", "ε at least"), ("claim", "")]
    numbers = [False] * 4 + [True] * 3 + [False]
    rows: list[list[str]] = []
    keys: list[list[float | None]] = []
    for line in map(Line._make, frame.itertuples(index=False)):
        verdict = "too low" if line.shown > line.claimed else "holds" if line.certified <= line.claimed else "open"
        figures = [line.claimed, line.certified, line.shown]
        rows.append([*line[:4], *map(short, figures), verdict])
        keys.append([None] * 4 + figures + [None])
    return TextTable(heads, numbers, rows, keys, f"Of what is replaced by others, at δ = {short(DELTA)}.")


def draw(frame: pd.DataFrame, to: Path) -> None:
    """Draw claimed ε across, certified and shown upwards: a bar from what is shown to what is certified.

    Args:
        frame: a row for each claim.
        to: path of the picture.
    """
    with package_style():
        picture = new_figure(9.6, 8.4)
        grid = picture.subplots(3, 2, sharex=True, sharey=True)
        for ax, (name, papers) in zip(grid.flat, _PANELS.items(), strict=False):
            inside = frame[frame["paper"].isin(papers)]
            settings = list(dict.fromkeys(zip(inside["paper"], inside["setting"], strict=True)))
            for k, (paper, setting) in enumerate(settings):
                rows = inside[(inside["paper"] == paper) & (inside["setting"] == setting)]
                colour = SERIES_COLOURS[k % len(SERIES_COLOURS)]
                # Beside each other, not over each other.
                at = rows["claimed"] * 1.07 ** (k - 0.5 * (len(settings) - 1))
                ax.vlines(at, rows["shown"], rows["certified"], color=colour, linewidth=2.5, alpha=0.5)
                label = setting if len(papers) == 1 else f"{paper}: {setting}"
                ax.plot(at, rows["certified"], "_", color=colour, markersize=8, mew=2, label=label)
                ax.plot(at, rows["shown"], "^", color=colour, markersize=4)
            ax.plot([1e-3, 1e3], [1e-3, 1e3], ":", color=GREY, linewidth=1)
            ax.set_title(name)
            log_axis(ax, "x", [1e-3, 1e2])
            log_axis(ax, "y", [1e-1, 1e6])
            ax.set_xlim(4e-4, 2e2)
            ax.set_ylim(5e-2, 1e6)
            ax.legend(fontsize=6.5, loc="upper left")
        spare = grid.flat[len(_PANELS)]
        spare.axis("off")
        words = "_  certified: no more than this\n▲  shown: no less than this\n⋯  as claimed"
        spare.text(0.05, 0.6, words, fontsize=10, linespacing=1.8)
        picture.supxlabel("ε as printed")
        picture.supylabel("ε that is certified, and shown")
        to.write_bytes(picture_of(picture))


def page(frame: pd.DataFrame, png: bytes) -> str:
    """Make the page; it loads nothing.

    Args:
        frame: a row for each claim.
        png: the picture's bytes.

    Returns:
        HTML.
    """
    template = Path(__file__).with_name("printed.html.j2").read_text(encoding="utf-8")
    return environment().from_string(template).render(title=TITLE, lead=LEAD, png=png, table=in_words(frame))


def write(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write `FILES` into a folder.

    Args:
        frame: a row for each claim.
        folder: where to.

    Returns:
        Their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in FILES]
    frame.to_parquet(paths[0], index=False)
    draw(frame, paths[1])
    paths[2].write_text(page(frame, paths[1].read_bytes()), encoding="utf-8")
    return paths


def conduct(folder: Path) -> None:
    """Price every line, write the study into a folder, and print what it comes to.

    Raises:
        InputError: a folder that holds something else.
    """
    if not (folder / FILES[0]).exists():
        check_writable(folder)
    frame = pd.DataFrame(list(lines()), columns=list(Line._fields))
    out = console()
    out.print(Text(TITLE, style="bold"))
    for (paper, unit, observer), inside in frame.groupby(["paper", "protects", "observer"], sort=False):
        out.print()
        out.print(Text(f"{paper}: of one {unit}, against {observer}"))
        words = in_words(inside)
        kept = [column for k, column in enumerate(zip(*words.rows, strict=True)) if k not in (0, 2, 3)]
        out.print(terminal([(head, *column) for head, column in zip(_ON_TERMINAL, kept, strict=True)]))
    out.print()
    for path in write(frame, folder):
        out.print(Text(str(path)), soft_wrap=True)
