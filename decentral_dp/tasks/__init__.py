"""Keyed tasks: independent work in parallel, its outcomes kept beside what was asked; to go on is to ask again."""
