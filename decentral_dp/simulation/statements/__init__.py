"""Privacy statements of jobs, by setting."""
