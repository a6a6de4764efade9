"""Programs of the shell that tests write: hooks, and stand-ins for ssh and others."""

from __future__ import annotations

from pathlib import Path


def script(path: Path, text: str, interpreter: str = "/bin/sh") -> str:
    """Write a program, in a folder that is created if it is missing, and return its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{interpreter}\n{text}\n")
    path.chmod(0o755)
    return str(path)
