"""What every engine process needs, whichever side of rmrl it serves: environment, arguments, sleep,
weights.

Nothing here knows of rewards, rollouts or Ray. Import the submodules; this package imports nothing
heavy.
"""
