"""Equal questions are asked once: within a batch always, over steps and runs from an SQLite file
where one is configured."""
