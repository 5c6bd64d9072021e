"""Membership inference: how well what a run published tells its records from records that it did not read.

`scores` holds the attacks and their AUC, `members` who is compared with whom and what is refused, `repeats` the
repetitions that an interval needs, and `command` the command "attack". What an AUC may be under a guarantee is in
`privacy.auc_bounds`.
"""
