"""Attacks: on the records of a run, and on components.

Membership inference: how well what a run published tells its records from records that it did not read.
`attack_scores` holds the attacks and their AUC, `members` who is compared with whom and what is refused, `repeats` the
repetitions that an interval needs, `curious_neighbours` what one agent learns of another. `check` tries what a
component must keep, `check_subjects` in which scenario and `extreme_pairs` on which data sets. What an AUC may be under
a guarantee is in `privacy.accounting.auc_bounds`.
"""
