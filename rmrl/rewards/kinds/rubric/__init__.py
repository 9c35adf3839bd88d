"""Criteria of rubrics: the forms in which data sets hold them, which of them count in a step, and
how their values become one score."""
