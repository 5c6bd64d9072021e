"""Checks of a component by its author."""
