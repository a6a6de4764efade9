"""Converts git's objects to records and back, describes their keys and references, and reads local repositories."""
