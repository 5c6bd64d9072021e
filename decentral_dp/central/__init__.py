"""The trusted coordinator: noise once, by it, on what it publishes. An annex, which the core finds by name."""
