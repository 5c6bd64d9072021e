"""Configuration: keys that follow from what components declare, components of the user's own, and the reference."""
