"""From a scenario to a job: components, plan, noise, and the three settings."""
