"""A run's processes, devices and memory: the only folder that imports Ray."""
