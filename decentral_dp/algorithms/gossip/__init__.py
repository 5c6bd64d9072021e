"""Algorithms of agents who trust nobody, one file each."""
