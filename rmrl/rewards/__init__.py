"""Responses -> scores -> rewards: the heart of rmrl. Nothing here knows of Ray, the trainer or the
policy."""
