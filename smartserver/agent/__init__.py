"""What of a user's outlives a command: connections that are held, and a process that is loaded."""
