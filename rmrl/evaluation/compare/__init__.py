"""`rmrl compare`: two reward sections on the same rows."""
