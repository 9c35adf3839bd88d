"""Common parts of every engine process, for rollout and rewards: environment, arguments, sleep,
weights.

Nothing here knows of rewards, rollouts or Ray. Import the submodules; this package imports nothing
heavy.
"""
