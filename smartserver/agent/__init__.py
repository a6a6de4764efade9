"""The agent of a user: connections that are held between commands, and a process that is loaded."""
