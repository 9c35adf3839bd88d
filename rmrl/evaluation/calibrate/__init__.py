"""`rmrl calibrate`: rows with people's labels -> a map from a reward's scores to P(good)."""
