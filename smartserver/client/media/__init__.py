"""Byte carriers: TCP and a pipe to a subprocess."""
