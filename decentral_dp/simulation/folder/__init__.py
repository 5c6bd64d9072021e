"""Run folders: layout, journal of an unfinished run, states, and released values."""
