"""Names that other libraries and papers use, and our keys and kinds for them.

A refusal of an unknown name looks here before it looks for a similar spelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_STEP = "algorithm.y (training) or algorithm.x, .y and .z (bilevel)"
_AGENTS, _ROUNDS, _BATCH = "topology.agents", "algorithm.rounds", "problem.stream.batch"
_CLIP, _NOISE = "privacy.clip", "privacy.y.scale"

# Unknown key → our key.
KEYS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("lr", "learning_rate", "step", "step_size", "eta", "alpha"), _STEP),
        **dict.fromkeys(("max_grad_norm", "clip_norm", "l2_norm_clip", "clipping_norm", "clipping_threshold"), _CLIP),
        **dict.fromkeys(("noise_multiplier", "sigma", "noise_scale", "noise_std"), _NOISE),
        **dict.fromkeys(("target_epsilon", "eps"), "privacy.epsilon"),
        "target_delta": "privacy.delta",
        **dict.fromkeys(("epochs", "num_rounds", "n_rounds", "num_epochs", "max_iter", "iterations", "steps"), _ROUNDS),
        **dict.fromkeys(("n_clients", "num_clients", "clients", "n_agents", "num_agents", "nodes", "n_nodes"), _AGENTS),
        "graph": "topology",
        **dict.fromkeys(("batch_size", "minibatch"), _BATCH),
        **dict.fromkeys(("sample_rate", "sampling_rate"), "problem.stream.rate"),
        "dataset": "problem.data",
        "momentum": "algorithm.heavy_ball",
        "n_jobs": "the option --jobs of decentral-dp study",
    }
)
# Unknown key → why no key does this.
ABSENT: Mapping[str, str] = MappingProxyType(
    {
        "class_weight": "there are no class weights: class shares are private. State problem.positive_share if public",
        "sample_weight": "there are no sample weights: every record of an agent has the same sensitivity",
        "lr_scheduler": "a step size is a number or { scale, decay, points }",
    }
)
# Unknown key under a table that has another name for it.
NESTED: Mapping[tuple[str, str], str] = MappingProxyType({("partition", "column"): "problem.partition.name"})
# Unknown algorithm → our kind.
ALGORITHM_KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("fedavg", "fedsgd", "dp_fedavg"), "federated"),
        **dict.fromkeys(("dpsgd", "dp_sgd", "sgd", "centralized", "centralised"), "central"),
        **dict.fromkeys(("dgd", "ldp_dgd"), "ldp_single_level"),
        **dict.fromkeys(("dsgd", "d_sgd", "decor"), "dp_dsgd"),
        **dict.fromkeys(("local", "local_only"), "alone"),
        **dict.fromkeys(("gt", "tracking", "diging"), "gradient_tracking"),
        **dict.fromkeys(("choco_sgd", "chocosgd"), "choco"),
        **dict.fromkeys(("d2", "ed"), "exact_diffusion"),
    }
)
# Graph of networkx or a textbook, without "_graph" → our kind.
GRAPH_KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("fully_connected", "clique"), "complete"),
        **dict.fromkeys(("gnp_random", "fast_gnp_random", "binomial"), "erdos_renyi"),
        **dict.fromkeys(("lattice", "grid_2d"), "grid"),
        **dict.fromkeys(("empty", "null"), "isolated"),
        **dict.fromkeys(("line", "chain"), "path"),
        "barabasi_albert": "preferential_attachment",
        **dict.fromkeys(("cycle", "circle"), "ring"),
        **dict.fromkeys(("watts_strogatz", "connected_watts_strogatz"), "small_world"),
    }
)
