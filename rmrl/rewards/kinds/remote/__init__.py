"""Kind `remote`."""
