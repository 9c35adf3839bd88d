"""Kind `process`."""
