"""Kind `bradley_terry`."""
