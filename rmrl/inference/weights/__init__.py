"""New weights on their way from a training backend to a rollout engine."""
