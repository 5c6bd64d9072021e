"""Minimax problems: what each minimises and maximises, over which terms of records."""
