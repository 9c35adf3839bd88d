"""Functions as rewards: lookup, loading, calling forms and isolation in worker processes."""
