"""Minimax algorithms of a trusted coordinator, one file each."""
