"""Gossip algorithms: agents without a trusted party."""
