"""The papers that the algorithms come from, as a run's report cites them.

Minimax problems in a scenario, for the examples of `show`; and sentences that several algorithms share.
"""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """A publication: one line of text, and the same for BibTeX."""

    text: str
    bibtex: str


class Citation(NamedTuple):
    """What an algorithm owes to a work, and the work."""

    part: str
    work: Work


def _preprint(key: str, authors: str, names: str, title: str, year: int, arxiv: str = "") -> Work:
    """A work without a venue. authors: as in a sentence. names: the same for BibTeX."""
    number = f"arXiv:{arxiv}"
    fields = {"title": title, "author": names, **({"note": number} if arxiv else {}), "year": year}
    lines = [f"  {name:6} = {{{value}}}" for name, value in fields.items()]
    text = ", ".join([authors, title, *([number] if arxiv else []), f"{year}."])
    return Work(text, "@misc{" + ",\n".join([key, *lines]) + "\n}")


CHEN_WANG = Work(
    "Z. Chen and Y. Wang, Locally Differentially Private Decentralized Stochastic Bilevel Optimization with Guaranteed "
    "Convergence Accuracy, ICML 2024, PMLR 235.",
    """@inproceedings{chen2024locally,
  title     = {Locally Differentially Private Decentralized Stochastic Bilevel Optimization
               with Guaranteed Convergence Accuracy},
  author    = {Chen, Ziqin and Wang, Yongqiang},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series    = {Proceedings of Machine Learning Research},
  volume    = {235},
  year      = {2024}
}""",
)
MA_DSBO = Work(
    "X. Chen, M. Huang, S. Ma and K. Balasubramanian, Decentralized Stochastic Bilevel Optimization with Improved "
    "per-Iteration Complexity, ICML 2023.",
    """@inproceedings{chen2023decentralized,
  title     = {Decentralized Stochastic Bilevel Optimization with Improved per-Iteration Complexity},
  author    = {Chen, Xuxing and Huang, Minhui and Ma, Shiqian and Balasubramanian, Krishnakumar},
  booktitle = {Proceedings of the 40th International Conference on Machine Learning},
  year      = {2023}
}""",
)
DSBO_JHIP = _preprint(
    "chen2022decentralized",
    "X. Chen, M. Huang and S. Ma",
    "Chen, Xuxing and Huang, Minhui and Ma, Shiqian",
    "Decentralized Bilevel Optimization",
    2022,
    "2206.05670",
)
GBDSBO = Work(
    "S. Yang, X. Zhang and M. Wang, Decentralized Gossip-Based Stochastic Bilevel Optimization over Communication "
    "Networks, NeurIPS 2022.",
    """@inproceedings{yang2022decentralized,
  title     = {Decentralized Gossip-Based Stochastic Bilevel Optimization over Communication Networks},
  author    = {Yang, Shuoguang and Zhang, Xuezhou and Wang, Mengdi},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {35},
  year      = {2022}
}""",
)
VRDBO = Work(
    "H. Gao, B. Gu and M. T. Thai, On the Convergence of Distributed Stochastic Bilevel Optimization Algorithms over a "
    "Network, AISTATS 2023.",
    """@inproceedings{gao2023convergence,
  title     = {On the Convergence of Distributed Stochastic Bilevel Optimization Algorithms over a Network},
  author    = {Gao, Hongchang and Gu, Bin and Thai, My T.},
  booktitle = {Proceedings of the 26th International Conference on Artificial Intelligence and Statistics},
  year      = {2023}
}""",
)
SPDB = Work(
    "S. Lu et al., Decentralized Bilevel Optimization for Personalized Client Learning, ICASSP 2022.",
    """@inproceedings{lu2022decentralized,
  title     = {Decentralized Bilevel Optimization for Personalized Client Learning},
  author    = {Lu, Songtao and others},
  booktitle = {IEEE International Conference on Acoustics, Speech and Signal Processing (ICASSP)},
  year      = {2022}
}""",
)
BSA = _preprint(
    "ghadimi2018approximation",
    "S. Ghadimi and M. Wang",
    "Ghadimi, Saeed and Wang, Mengdi",
    "Approximation Methods for Bilevel Programming",
    2018,
    "1802.02246",
)
DSGD = Work(
    "X. Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for Decentralized "
    "Parallel Stochastic Gradient Descent, NeurIPS 2017.",
    """@inproceedings{lian2017can,
  title     = {Can Decentralized Algorithms Outperform Centralized Algorithms?
               A Case Study for Decentralized Parallel Stochastic Gradient Descent},
  author    = {Lian, Xiangru and others},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {30},
  year      = {2017}
}""",
)
KORNOWSKI = _preprint(
    "kornowski2024differentially",
    "G. Kornowski",
    "Kornowski, Guy",
    "Differentially Private Bilevel Optimization",
    2024,
    "2409.19800",
)
LOWY_LIU = _preprint(
    "lowy2025differentially",
    "A. Lowy and D. Liu",
    "Lowy, Andrew and Liu, Daogao",
    "Differentially Private Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates",
    2025,
)
DPTD = Work(
    "C. Zhao, Y. Ze, J. Dong, B. Wang and S. Li, Differentially Private Temporal Difference Learning with Stochastic "
    "Nonconvex-Strongly-Concave Optimization, WSDM 2023.",
    """@inproceedings{zhao2023differentially,
  title     = {Differentially Private Temporal Difference Learning with Stochastic
               Nonconvex-Strongly-Concave Optimization},
  author    = {Zhao, Canzhe and Ze, Yanjie and Dong, Jing and Wang, Baoxiang and Li, Shuai},
  booktitle = {Proceedings of the Sixteenth ACM International Conference on Web Search and Data Mining},
  year      = {2023}
}""",
)
PRIVATEDIFF = _preprint(
    "zhang2025improved",
    "R. Zhang, M. Lei, M. Ding, Z. Xiang, J. Xu and D. Wang",
    "Zhang, Ruijia and Lei, Mingxi and Ding, Meng and Xiang, Zihang and Xu, Jinhui and Wang, Di",
    "Improved Rates of Differentially Private Nonconvex-Strongly-Concave Minimax Optimization",
    2025,
)
DP_DRO = _preprint(
    "xu2025differentially",
    "D. Xu, M. Ding, Z. Ma, H. Xie, Y. Tao, A. Slaitane and D. Wang",
    "Xu, Difei and Ding, Meng and Ma, Zebin and Xie, Huanyi and Tao, Youming and Slaitane, Aicha and Wang, Di",
    "Differentially Private Non-convex Distributionally Robust Optimization",
    2025,
)
ARORA = Work(
    "R. Arora, R. Bassily, T. González, C. Guzmán, M. Menart and E. Ullah, Faster Rates of Convergence to Stationary "
    "Points in Differentially Private Optimization, ICML 2023.",
    """@inproceedings{arora2023faster,
  title     = {Faster Rates of Convergence to Stationary Points in Differentially Private Optimization},
  author    = {Arora, Raman and Bassily, Raef and Gonz\\'alez, Tom\\'as and Guzm\\'an, Crist\\'obal A. and
               Menart, Michael and Ullah, Enayat},
  booktitle = {Proceedings of the 40th International Conference on Machine Learning},
  year      = {2023}
}""",
)
DP_SGD = Work(
    "R. Bassily, A. Smith and A. Thakurta, Private Empirical Risk Minimization: Efficient Algorithms and Tight Error "
    "Bounds, FOCS 2014.",
    """@inproceedings{bassily2014private,
  title     = {Private Empirical Risk Minimization: Efficient Algorithms and Tight Error Bounds},
  author    = {Bassily, Raef and Smith, Adam and Thakurta, Abhradeep},
  booktitle = {IEEE 55th Annual Symposium on Foundations of Computer Science (FOCS)},
  year      = {2014}
}""",
)
SCDRO = _preprint(
    "qi2022stochastic",
    "Q. Qi, J. Lyu, K. Chan, E.-W. Bai and T. Yang",
    "Qi, Qi and Lyu, Jiameng and Chan, Kung-sik and Bai, Er-Wei and Yang, Tianbao",
    "Stochastic Constrained DRO with a Complexity Independent of Sample Size",
    2022,
    "2210.05740",
)


AUC = {
    "problem": '"auc_maximisation"',
    "problem_keys": "# Public: no count of these records.\npositive_share = 0.6",
    "clip": "clip.x = 1.0",
}
ASCENT = {"y": "{ scale = 0.5 }", "solver": '"ascent"'}
DRO = {
    "problem": '"dro"',
    "problem_keys": 'divergence = "chi2"\nstrength = 1.0\ncap = 5.0',
    "clip": "clip.x = 1.0",
}
KL_DRO = {"problem": '"kl_dro"', "problem_keys": "strength = 1.0\nradius = 0.5\ncap = 5.0", "clip": "clip.x = 1.0"}
TEMPORAL_DIFFERENCES = {
    "problem": '"mspbe"',
    "data": '"cartpole"',
    "problem_keys": 'discount = 0.9\nmodel = { kind = "mlp", hidden = [50] }\nsynthetic = { records = 20, steps = 50 }',
    "clip": "clip.x = 3.0\nclip.y = 3.0",
}
ONE_STEP = (
    "carries the step of round t − 1, taken on the records seen by then, and the noise of index t: "
    "λ_(t−1) · gradient + noise of deviation σ_t."
)
NOISED = Citation("Noise on its messages (Algorithm 3 there)", CHEN_WANG)
