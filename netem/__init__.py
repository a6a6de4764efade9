"""A latency test harness: it emulates links and counts round trips. Only its pytest plugin imports another package."""
