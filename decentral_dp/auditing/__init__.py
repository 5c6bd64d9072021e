"""Audits: lower bounds on ε, membership inference, network DP, and checks of components.

`audit` bounds ε from below by a distinguishing game. `membership` scores train and held-out records. `network_view`
computes ε against an honest-but-curious neighbour. `check` tests the privacy contract of a component. `terminal`
defines the commands.
"""
