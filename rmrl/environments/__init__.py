"""Responses from other people's environments: their programs play, the rollout engines sample."""
