"""Golden data of every shipped scenario, of the command line's texts and of run folders, and their comparison.

A change of the code that is not meant to change numbers, texts or files leaves all of them as they are. Where a change
is meant, or a scenario is new, `python -m tests.golden.record [NAME …]` writes the data anew; the diff is the review.
Only the public surface is used: load, build, run and the command line. One metric that is in no golden data, the true
hypergradient, is measured once per scenario.
"""
