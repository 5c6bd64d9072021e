"""Configuration: how the keys of a scenario follow from what the components declare."""
