"""The adapter for git: its remote helper."""
