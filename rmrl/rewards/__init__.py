"""Responses -> scores -> rewards: the heart of rmrl. Nothing here knows Ray, the trainer or the
policy."""
