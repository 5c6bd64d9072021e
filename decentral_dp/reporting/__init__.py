"""Pages and plots of a run folder. They read the files of a run, and compute no results."""
