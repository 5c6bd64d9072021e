"""Algorithms as their papers print them: for comparison, never a certificate.

One final class per printed form, with its own `step` and noise. Certified modules import nothing from here; their
entries name the printed partner, which a scenario with guarantee = "as_printed" runs.
"""
