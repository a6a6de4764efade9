"""File stores behind one interface, in which repositories keep their files."""
