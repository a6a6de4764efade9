"""Observers of a client's connections, and views that show how a command spent its time."""
