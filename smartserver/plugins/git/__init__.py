"""The adapter of git: its remote helper."""
