"""Where things run: the only folder that knows Ray."""
