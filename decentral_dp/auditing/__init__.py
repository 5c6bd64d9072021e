"""Audits: lower bounds on ε, membership inference, network DP, and checks of custom components.

`audit` bounds ε from below by a distinguishing game. `membership` compares the scores of train and held-out records.
`network_view` computes ε against an honest-but-curious neighbour. `check` tests the privacy contract of a component.
`terminal` defines the commands.
"""
