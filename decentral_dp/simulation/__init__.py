"""Runs: the job of a scenario in each of the three settings, its privacy statement, and its result."""
