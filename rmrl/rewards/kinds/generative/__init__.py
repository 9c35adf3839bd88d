"""Kind `generative`."""
