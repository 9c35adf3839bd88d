"""Kind `similarity`."""
