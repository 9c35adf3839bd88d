"""From a `reward` section to a working `Scorer`: the one set-up that training, offline scoring and
checks share."""
