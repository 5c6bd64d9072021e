"""Membership inference against published values."""
