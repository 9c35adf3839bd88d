"""Configuration: dataclasses hold every default, Hydra composes, one conversion at the door, one
check that finds all problems."""
