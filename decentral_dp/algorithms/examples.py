"""Minimax problems in a scenario, for the examples of `show`; and sentences that several algorithms share."""

from __future__ import annotations

from decentral_dp.algorithms.references import CHEN_WANG, Citation

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
