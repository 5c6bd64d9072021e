"""Attacks: on the records of a run, and on components.

`attack` tells the records of a run from records that it did not read, by what the run published; `attack/scores` holds
the attacks. `audit` tells two neighbouring data sets apart, beside the certified ε. `network` prices what one agent
learns of another. `check` tries what a component must keep: `check/targets` has the scenarios around it.
What an AUC may be under a guarantee is in `privacy.accounting.auc_bounds`.
"""
