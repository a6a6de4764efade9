"""Byte carriers: TCP, TLS, a pipe to a subprocess, and descriptors from another process."""
