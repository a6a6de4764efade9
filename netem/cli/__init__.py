"""The command `netem`: `main` is what is run, `commands` reads the command line, each command is one module."""
