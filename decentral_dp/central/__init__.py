"""The trusted coordinator, which adds noise once, to what it publishes. An annex that the core imports by name."""
