"""Audits: what runs, messages and components tell of single records.

`audit` plays the distinguishing game between two neighbouring data sets: `neighbours` finds them, `transcripts` replays
runs, `losses` and `bounds` bound ε. `membership` tells train records from held-out ones. `network_view` prices what an
honest-but-curious neighbour learns. `check` tries a component. `terminal` has their commands.
"""
