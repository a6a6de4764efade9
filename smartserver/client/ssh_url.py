"""`hpss+ssh://[user@]host[:port]/path`: a repository of an account on another machine, reached by logging in there.

The path is one on that machine: `/srv/code/project`, or `/~/code/project` below the account's home.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from smartserver.client.url import BadUrl, parse, percent_decode

SCHEME = "hpss+ssh"

HOME = "~/"

FOR_SHELL = re.compile(r"[^\w@+,./:-]")
"""A character for which a command needs a shell."""


def of_shell(command: str) -> list[str]:
    """Return the words of a command that may have arguments of its own. More words can be appended."""
    return ["sh", "-c", f'{command} "$@"', command] if FOR_SHELL.search(command) else [command]


class Login(NamedTuple):
    """The user, host, port and path of a URL. `port` 0 and an empty `user` mean that the URL has none."""

    user: str
    host: str
    port: int
    path: str

    @property
    def where(self) -> str:
        """User, host and port in their canonical spelling."""
        host = f"[{self.host}]" if ":" in self.host else self.host.lower()
        user = f"{self.user}@" if self.user else ""
        return f"{user}{host}:{self.port}" if self.port else user + host


class SshLocation(NamedTuple):
    """The place of a repository. ssh chooses the port if `port` is 0, and the user if `user` is empty. `root` is the
    served folder there. `path` continues from `root`, decoded, without a slash at either end."""

    user: str
    host: str
    port: int
    root: str
    path: str

    @property
    def query(self) -> str:
        """The query of the URL, which is always empty: options of ssh belong in ssh's own configuration."""
        return ""

    @property
    def key(self) -> str:
        """The canonical URL, under which the knowledge of the remote is stored."""
        return f"{SCHEME}://{self.where}/{'~' if self.root == '.' else self.root[1:]}/{self.path}"

    @property
    def where(self) -> str:
        """The name of the server in messages."""
        return Login(self.user, self.host, self.port, "").where

    @property
    def above(self) -> str:
        """The user's name for the served folder (`errors.known_as`)."""
        return f"{self.where}:{HOME if self.root == '.' else f'{self.root}/'}"

    def command(self, ssh: Sequence[str]) -> list[str]:
        """Return the command that logs in and starts the server."""
        words = [*ssh, "-T", "-o", "ForwardX11=no"]
        if self.port:
            words += ["-p", str(self.port)]
        if self.user:
            words += ["-l", self.user]
        root = os.fsdecode(self.root.encode())  # UTF-8 there, whatever the locale is here.
        return [*words, "--", self.host, f"smartserver serve {shlex.quote(root)} --stdio"]


def parse_login(url: str, scheme: str) -> Login:
    """Parse a URL of a scheme that allows a user and a port."""
    found, colon, rest = url.partition("://")
    if not colon or found.lower() != scheme:
        raise BadUrl(url, f"it does not begin with {scheme}://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if ":" in user:
        raise BadUrl(url, "leave out the password: ssh asks for it")
    try:
        user = percent_decode(user)
    except ValueError:
        raise BadUrl(url, f"{user!r} is not the name of a user") from None
    # A directory has USER@example.org and DOMAIN\USER. In a shell a last \ would change the next character.
    if (
        (at and not user)
        or user.startswith("-")
        or user.endswith("\\")
        or not all(character.isalnum() or character in "._-+@\\" for character in user)
    ):
        raise BadUrl(url, f"{user!r} is not the name of a user")
    try:
        there = parse(f"hpss://{host}{slash}{path}")
    except BadUrl as error:
        raise BadUrl(url, error.why) from None
    # ssh passes the host to a shell in a `ProxyCommand`, and a URL may come from a repository.
    if there.host.startswith("-") or not all(character.isalnum() or character in "._-:%" for character in there.host):
        raise BadUrl(url, f"{there.host!r} is not the name of a host")
    port = there.port if host.rpartition(":")[2].isdigit() and not host.endswith("]") else 0
    return Login(user, there.host, port, there.path)


def below_a_folder(url: str, path: str) -> tuple[str, str]:
    """Split a path into the served folder of a machine (`.` is the account's home) and the path below it."""
    if path == "~" or path.startswith(HOME):
        return ".", path[len(HOME) :]
    top, _, below = path.partition("/")
    if not below:
        raise BadUrl(url, "its path must have two parts or more (/srv/project), or be below your home (/~/project)")
    return f"/{top}", below


def parse_ssh(url: str) -> SshLocation:
    """Parse an hpss+ssh:// URL."""
    user, host, port, path = parse_login(url, SCHEME)
    root, below = below_a_folder(url, path)
    return SshLocation(user, host, port, root, below)
