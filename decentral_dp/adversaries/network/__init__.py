"""What a curious neighbour learns."""
