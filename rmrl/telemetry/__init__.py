"""What a run tells its user: metrics (names, clock, sinks), scored samples (transcripts) and a
figure (curve)."""
