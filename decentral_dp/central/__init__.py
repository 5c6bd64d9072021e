"""Trusted coordinator, which adds noise once to each published value. The core imports this annex by name."""
