"""Other people's traces as rows: a file per format, and the table that finds the format by a row's
fields."""
