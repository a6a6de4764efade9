"""Repositories on a transport: packs, indexes, and the log by which they change."""
