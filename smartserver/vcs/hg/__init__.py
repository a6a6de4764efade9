"""Mercurial: its changesets, manifests and files as records and back, its repositories on this machine."""
