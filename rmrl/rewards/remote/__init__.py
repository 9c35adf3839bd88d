"""Rewards that somebody else's server computes: wires, one pooled HTTP client, deadlines, retries, rate limits."""
