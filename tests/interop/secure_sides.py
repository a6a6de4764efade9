"""A server over TLS whose users have tokens."""

from __future__ import annotations

import time
from pathlib import Path

from access_rules import ADMIN
from certificates import Authority
from git_sides import Served

from smartserver.server.tokens import TokenChanges


class Secure:
    """A server over TLS, and the credentials of its users."""

    def __init__(self, folder: Path, rules: str = ADMIN) -> None:
        folder.mkdir()
        self.authority = Authority(folder / "authority")
        certificate, key = self.authority.sign("127.0.0.1")
        self.access = folder / "access.toml"
        self.access.write_text(rules)
        words = ["--access", str(self.access), "--tls", str(certificate), "--tls-key", str(key), "--require-tls"]
        self.server = Served(folder, *words)
        self.above = f"hpss+tls://127.0.0.1:{self.server.direct[1]}"

    def url(self, path: str) -> str:
        """Return the URL of a repository, with the authority to trust."""
        return f"{self.above}/{path}?ca={self.authority.file}"

    def token(self) -> str:
        """Return a new token of the user anna."""
        return TokenChanges(self.access).create("anna", int(time.time()), None, None, read_only=False)[0]
