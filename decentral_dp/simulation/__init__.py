"""Simulation: from a scenario to a finished run."""
