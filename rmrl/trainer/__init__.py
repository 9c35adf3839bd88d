"""The training loop and what surrounds it: the one layer that knows every stage."""
