"""Access files of servers whose users have tokens."""

from __future__ import annotations

ADMIN = """
[[rules]]
who = ["anna"]
path = "**"
may = "admin"
"""
"""A user who may everything; others may nothing."""

OPEN = f"""{ADMIN}
[[rules]]
who = ["*"]
path = "open"
may = "read"
"""
"""And one place where everybody may read."""
