"""The command `netem`: `main` reads the command line, each command is one module."""
