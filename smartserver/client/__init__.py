"""The client: one stub, its media, and the knowledge about each remote."""
