"""The commands. Each reads its arguments and the environment, calls the client or the store, and prints the result."""
