"""Minimax problems: their objectives and per-record terms."""
