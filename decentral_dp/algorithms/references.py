"""The papers that the algorithms come from, as a run's report cites them."""

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
DSBO_JHIP = Work(
    "X. Chen, M. Huang and S. Ma, Decentralized Bilevel Optimization, arXiv:2206.05670, 2022.",
    """@misc{chen2022decentralized,
  title  = {Decentralized Bilevel Optimization},
  author = {Chen, Xuxing and Huang, Minhui and Ma, Shiqian},
  note   = {arXiv:2206.05670},
  year   = {2022}
}""",
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
BSA = Work(
    "S. Ghadimi and M. Wang, Approximation Methods for Bilevel Programming, arXiv:1802.02246, 2018.",
    """@misc{ghadimi2018approximation,
  title  = {Approximation Methods for Bilevel Programming},
  author = {Ghadimi, Saeed and Wang, Mengdi},
  note   = {arXiv:1802.02246},
  year   = {2018}
}""",
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
KORNOWSKI = Work(
    "G. Kornowski, Differentially Private Bilevel Optimization, arXiv:2409.19800, 2024.",
    """@misc{kornowski2024differentially,
  title  = {Differentially Private Bilevel Optimization},
  author = {Kornowski, Guy},
  note   = {arXiv:2409.19800},
  year   = {2024}
}""",
)
LOWY_LIU = Work(
    "A. Lowy and D. Liu, Differentially Private Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates, "
    "2025.",
    """@misc{lowy2025differentially,
  title  = {Differentially Private Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates},
  author = {Lowy, Andrew and Liu, Daogao},
  year   = {2025}
}""",
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
PRIVATEDIFF = Work(
    "R. Zhang, M. Lei, M. Ding, Z. Xiang, J. Xu and D. Wang, Improved Rates of Differentially Private "
    "Nonconvex-Strongly-Concave Minimax Optimization, 2025.",
    """@misc{zhang2025improved,
  title  = {Improved Rates of Differentially Private Nonconvex-Strongly-Concave Minimax Optimization},
  author = {Zhang, Ruijia and Lei, Mingxi and Ding, Meng and Xiang, Zihang and Xu, Jinhui and Wang, Di},
  year   = {2025}
}""",
)
DP_DRO = Work(
    "D. Xu, M. Ding, Z. Ma, H. Xie, Y. Tao, A. Slaitane and D. Wang, Differentially Private Non-convex "
    "Distributionally Robust Optimization, 2025.",
    """@misc{xu2025differentially,
  title  = {Differentially Private Non-convex Distributionally Robust Optimization},
  author = {Xu, Difei and Ding, Meng and Ma, Zebin and Xie, Huanyi and Tao, Youming and Slaitane, Aicha and Wang, Di},
  year   = {2025}
}""",
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
SCDRO = Work(
    "Q. Qi, J. Lyu, K. Chan, E.-W. Bai and T. Yang, Stochastic Constrained DRO with a Complexity Independent of Sample "
    "Size, arXiv:2210.05740, 2022.",
    """@misc{qi2022stochastic,
  title  = {Stochastic Constrained DRO with a Complexity Independent of Sample Size},
  author = {Qi, Qi and Lyu, Jiameng and Chan, Kung-sik and Bai, Er-Wei and Yang, Tianbao},
  note   = {arXiv:2210.05740},
  year   = {2022}
}""",
)
