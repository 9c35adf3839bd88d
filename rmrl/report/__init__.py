"""`rmrl report`: a run's samples, or a scored file, as one HTML page that needs no network."""

MOST_SAMPLES = 20_000
"""Responses of each source that the page lists, by default."""
MOST_CHARACTERS = 6_000
"""Length of a text on the page, by default."""
