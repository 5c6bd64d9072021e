"""How an entry cites a paper; papers that several algorithms come from, and what else entries share."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

# Letters of names that BibTeX writes otherwise.
_ACCENTS = {"á": "\\'a", "é": "\\'e", "í": "\\'i", "ó": "\\'o", "ú": "\\'u", "ö": '\\"o', "ü": '\\"u'}


class Work(NamedTuple):
    """A publication.

    key: of BibTeX. authors: as in BibTeX, "Chen, Ziqin and Wang, Yongqiang". venue: as a sentence names it, with its
    year, "ICML 2024, PMLR 235"; of a preprint its number, if known. booktitle: of proceedings, and other fields.
    """

    key: str
    authors: str
    title: str
    year: int
    venue: str = ""
    booktitle: str = ""
    fields: Mapping[str, str] = MappingProxyType({})

    @property
    def text(self) -> str:
        """One line: who, what, where and when."""
        *before, last = [_initials(name) for name in self.authors.split(" and ")]
        et_al = last == "others"
        names = f"{', '.join(before)} et al." if et_al else f"{', '.join(before)} and {last}" if before else last
        where = [self.venue] if self.venue else []
        when = [] if str(self.year) in self.venue else [str(self.year)]
        return f"{', '.join([names, self.title, *where, *when])}."

    @property
    def bibtex(self) -> str:
        """The same for BibTeX."""
        kind = "inproceedings" if self.booktitle else "misc"
        fields = {"title": self.title, "author": "".join(_ACCENTS.get(letter, letter) for letter in self.authors)}
        fields |= {"booktitle": self.booktitle} if self.booktitle else {"note": self.venue} if self.venue else {}
        fields |= {**self.fields, "year": str(self.year)}
        width = max(len(name) for name in fields)
        lines = (f"  {name:{width}} = {{{value}}}" for name, value in fields.items())
        wrapped = (textwrap.fill(line, 110, subsequent_indent=" " * (width + 6)) for line in lines)
        return f"@{kind}{{" + ",\n".join([self.key, *wrapped]) + "\n}"


class Citation(NamedTuple):
    """What an algorithm owes to a work.

    Args:
        part: of the work, as it is listed, "Algorithm 3, corrected".
        work_or_key: the publication, or its key in works.toml.
    """

    part: str
    work_or_key: Work | str

    @property
    def work(self) -> Work:
        """The publication."""
        return self.work_or_key if isinstance(self.work_or_key, Work) else works()[self.work_or_key]


@cache
def works() -> Mapping[str, Work]:
    """Key of BibTeX → the publication, of works.toml.

    Example:
        >>> works()["abadi2016deep"].year
        2016
    """
    tables = tomllib.loads(Path(__file__).with_name("works.toml").read_text(encoding="utf-8"))
    known = {key: {name: table.pop(name) for name in Work._fields if name in table} for key, table in tables.items()}
    return {key: Work(key, **known[key], fields=further) for key, further in tables.items()}


def _initials(name: str) -> str:
    """ "Bai, Er-Wei" → "E.-W. Bai"."""
    last, _, first = name.partition(", ")
    each = ("-".join(f"{part[0]}." for part in name.split("-") if part[0].isupper()) for name in first.split())
    return " ".join([*each, last])


NOISED = Citation("Noise on its messages (Algorithm 3 there)", "chen2024locally")
# Where gradients are taken.
AT_OWN = "the agent's own released point"
AT_MIXTURE = "the agent's mixture of released points"

ONE_STEP = (
    "carries the step of round t − 1, taken on the records seen by then, and the noise of index t: "
    "λ_(t−1) · gradient + noise of deviation σ_t."
)

# Minimax problems in a scenario, for the examples of `show`.
AUC = {
    "problem": '"auc_maximisation"',
    "problem_keys": "# Public: no count of these records.\npositive_share = 0.6",
    "clip": "clip.x = 1.0",
}
