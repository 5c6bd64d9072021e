"""Exponential mechanisms as algorithms: one draw of x."""
