"""The ledger, clipping, keyed randomness; mechanisms and accounting in rooms of their own."""
