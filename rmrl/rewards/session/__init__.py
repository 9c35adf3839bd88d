"""Responses -> verdicts of all components -> one reward each."""
