"""Constants of problems, from which sensitivities at hidden points follow."""
