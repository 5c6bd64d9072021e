"""Planned jobs of scenarios: components, plan, noise, and the three settings."""
