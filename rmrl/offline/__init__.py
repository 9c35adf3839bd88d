"""Scoring without training: rows that carry responses in, the same rows with their scores out,
through the very same reward layer."""
