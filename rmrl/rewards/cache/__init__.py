"""A cache for verdicts: equal requests are sent once, within a batch always, over steps and runs
from an SQLite file where one is configured."""
