"""Common parts for every engine process, for rollout and rewards: environment, arguments, sleep,
weights.

Nothing here depends on rewards, rollouts or Ray. Import the submodules, because this package
imports nothing heavy.
"""
