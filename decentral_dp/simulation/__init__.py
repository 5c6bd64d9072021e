"""Runs: the job that a scenario comes to in each of the three settings, its statement of privacy, and its result."""
