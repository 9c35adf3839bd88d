"""Build a `Scorer` from a `reward` section, for training, offline scoring and checks alike."""
