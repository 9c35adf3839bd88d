"""Construction of a `Scorer` from a `reward` section, shared by training, offline scoring and
checks."""
