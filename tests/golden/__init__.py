"""Compare every shipped scenario, the command line's texts and run folders with golden data.

A refactoring leaves the golden data unchanged. After an intended change, or for a new scenario,
`python -m tests.golden.record [NAME …]` records the data; review the diff. The tests use only the public API: load,
build, run and the command line.
"""
