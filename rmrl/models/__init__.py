"""Language models: loading, token log-probabilities, export. No training loop, no processes."""
