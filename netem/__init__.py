"""A latency harness: emulated links that count round trips; it imports nothing but the standard library."""
