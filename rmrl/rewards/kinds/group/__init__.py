"""Kind `group`."""
