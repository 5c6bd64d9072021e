"""Errors planted one at a time in a copy of the package, each of which a named test has to find.

`python -m tests.planted` plants all of them, or those whose names are given.
"""
