"""Kind `rule`."""
