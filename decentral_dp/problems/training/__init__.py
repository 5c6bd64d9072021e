"""One-level training: a model of one's choice, fitted to the train records of all agents."""
