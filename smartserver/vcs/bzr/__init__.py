"""Breezy's format 2a: its records and back, their references, its trees, its repositories on this machine."""
