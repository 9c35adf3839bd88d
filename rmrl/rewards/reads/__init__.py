"""The part of a response that a reward reads."""
