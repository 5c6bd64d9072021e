"""Going on with what was cut off, whatever it is: a run, a study, an audit."""
