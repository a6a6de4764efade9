"""Repositories on a transport: packs, indexes, the root and its swap."""
