"""The command `netem`: `main` is the entry point, `commands` reads the command line, each command is one module."""
