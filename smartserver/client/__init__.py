"""The client: its requests (`call`), the media that carry them, and its knowledge about each remote."""
