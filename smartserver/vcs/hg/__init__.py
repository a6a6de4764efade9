"""Converts Mercurial's changesets, manifests and files to records and back, and reads local repositories."""
