"""The places where a trained model's outputs are read: a file for each way."""
