"""Pages and plots of a run folder. Nothing here computes: it reads what a run wrote."""
