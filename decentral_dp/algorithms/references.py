"""How an entry cites a paper; papers that several algorithms come from, and what else entries share."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
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
        work: the publication.
    """

    part: str
    work: Work


def _initials(name: str) -> str:
    """ "Bai, Er-Wei" → "E.-W. Bai"."""
    last, _, first = name.partition(", ")
    each = ("-".join(f"{part[0]}." for part in given.split("-") if part[0].isupper()) for given in first.split())
    return " ".join([*each, last])


CHEN_WANG = Work(
    "chen2024locally",
    "Chen, Ziqin and Wang, Yongqiang",
    "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with Guaranteed Convergence Accuracy",
    2024,
    "ICML 2024, PMLR 235",
    "Proceedings of the 41st International Conference on Machine Learning",
    {"series": "Proceedings of Machine Learning Research", "volume": "235"},
)
KORNOWSKI = Work(
    "kornowski2024differentially",
    "Kornowski, Guy",
    "Differentially Private Bilevel Optimization",
    2024,
    "arXiv:2409.19800",
)
LOWY_LIU = Work(
    "lowy2025differentially",
    "Lowy, Andrew and Liu, Daogao",
    "Differentially Private Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates",
    2025,
)
PRIVATEDIFF = Work(
    "zhang2025improved",
    "Zhang, Ruijia and Lei, Mingxi and Ding, Meng and Xiang, Zihang and Xu, Jinhui and Wang, Di",
    "Improved Rates of Differentially Private Nonconvex-Strongly-Concave Minimax Optimization",
    2025,
)
DP_DRO = Work(
    "xu2025differentially",
    "Xu, Difei and Ding, Meng and Ma, Zebin and Xie, Huanyi and Tao, Youming and Slaitane, Aicha and Wang, Di",
    "Differentially Private Non-convex Distributionally Robust Optimization",
    2025,
)

NOISED = Citation("Noise on its messages (Algorithm 3 there)", CHEN_WANG)
AS_CERTIFIED = "papers on this algorithm clip and noise as it does here"
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
ASCENT = {"y": "{ scale = 0.5 }", "solver": '"ascent"'}
DRO = {"problem": '"dro"', "problem_keys": 'divergence = "chi2"\nstrength = 1.0\ncap = 5.0', "clip": "clip.x = 1.0"}
KL_DRO = {"problem": '"kl_dro"', "problem_keys": "strength = 1.0\nradius = 0.5\ncap = 5.0", "clip": "clip.x = 1.0"}
