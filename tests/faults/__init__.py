"""Faults that are put in on purpose, and what a run makes of them: `python -m tests.faults`."""
