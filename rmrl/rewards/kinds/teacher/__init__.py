"""Kind `teacher`."""
