"""The only doors to records: agents that gossip, clients that answer a coordinator, and its contexts."""
