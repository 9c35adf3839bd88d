"""Engines without a model, for fast tests."""
