"""Observers of the wire that show where the time went."""
