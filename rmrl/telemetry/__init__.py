"""The output of a run for its user: metrics (names, clock, sinks), scored samples (transcripts) and
a figure (curve)."""
