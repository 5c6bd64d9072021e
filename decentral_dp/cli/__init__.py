"""Command line: `main` defines the commands, and the other modules their output."""
