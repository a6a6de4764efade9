"""The server: a sans-IO session and the shells that carry its bytes."""
