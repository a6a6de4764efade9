"""File stores behind one interface: where a repository's bytes lie."""
