"""Kind `ensemble`."""
