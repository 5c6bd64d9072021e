"""The command line: `main` has the commands, one module each has what a command prints and writes."""
