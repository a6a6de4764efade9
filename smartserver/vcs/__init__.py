"""Converts the objects of version-control systems to revisions and records, and back."""
