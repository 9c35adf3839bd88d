"""Functions as rewards: how they are found, loaded, called and kept apart."""
