"""vLLM: both of its users, and what they share."""
