"""Encodes, decodes and checks records and segments, without I/O, for both client and server."""
