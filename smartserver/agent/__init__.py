"""The agent of a user: connections that are held between commands, and a process with all modules loaded."""
