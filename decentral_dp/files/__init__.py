"""Files that a scenario or a command names: which are read, and how much of them."""
