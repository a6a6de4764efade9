"""The commands; the only place that reads the environment or prints."""
