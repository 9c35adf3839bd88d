"""Kind `critique`."""
