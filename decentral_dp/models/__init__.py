"""What has weights: linear terms, networks, modules of a user, and derivatives by torch."""
