"""Command line: `main` defines the commands, and the other modules write their output."""
