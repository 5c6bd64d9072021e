"""Ledger, clipping and keyed randomness, with mechanisms and accounting in subpackages."""
