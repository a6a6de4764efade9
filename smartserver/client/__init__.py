"""The client: one stub, media, and what is known of each remote."""
