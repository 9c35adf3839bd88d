"""Processes, devices and memory of a run: the only folder that imports Ray."""
