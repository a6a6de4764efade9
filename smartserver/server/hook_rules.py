"""The hooks of an access file: commands that are run before a change of a repository, and receivers that are notified
of it afterwards, by the path of the repository.

    [[hooks]]
    path = "project/**"
    before = ["/opt/checks/commit-messages", "--strict"]
    time-limit = 30

    [[hooks]]
    path = "project/**"
    url = "https://ci.example.org/pushed"
    secret = "of both"

All hooks that fit the path are run, in the order of the file, until one refuses. The receiver is a command (`after`) or
a URL.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from smartserver.server.patterns import NamePattern, check_pattern, folded
from smartserver.server.watched import UnusableFile

TIME_LIMIT: Final = 30
"""Seconds that a hook may take if it has no `time-limit`."""

LONGEST: Final = 3600
"""The most seconds of a `time-limit`: the user waits for the hook."""


class HookText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hook as the file contains it, not yet checked."""

    path: str
    before: list[str] = []
    after: list[str] = []
    url: str = ""
    secret: str = ""
    time_limit: int = msgspec.field(name="time-limit", default=TIME_LIMIT)


class Hook:
    """One hook of the file."""

    def __init__(self, text: HookText) -> None:
        self.before = tuple(text.before)
        self.after = tuple(text.after)
        self.url = text.url
        self.secret = text.secret
        self.time_limit = text.time_limit
        self._path = NamePattern(text.path)

    @property
    def name(self) -> str:
        """The name of the hook's program, for refusals."""
        return posixpath.basename(self.before[0])

    @property
    def receiver(self) -> bytes:
        """The id of the receiver of changes; empty if the hook has no receiver."""
        if not (self.after or self.url):
            return b""
        return blake2b(msgspec.msgpack.encode([*self.after, self.url]), digest_size=8).digest()

    def fits(self, path: str) -> bool:
        """Return True if the hook's pattern matches the path of a repository, as it is spelled or `folded`."""
        return self._path.matches(path, folds=False) or self._path.matches(folded(path), folds=True)


def parse_hooks(texts: Sequence[HookText]) -> Iterator[Hook]:
    """Yield the hooks of a file.

    Raises:
        UnusableFile: a hook is not valid.
    """
    for number, text in enumerate(texts, 1):
        try:
            check_pattern("path", text.path)
            for word, command in (("before", text.before), ("after", text.after)):
                if command and not posixpath.isabs(command[0]):
                    expected = "a program with its full path, and its arguments"
                    raise UnusableFile(f"{word} = {command!r}: expected {expected}")
            if not (text.before or text.after or text.url) or (text.after and text.url):
                raise UnusableFile(
                    "expected at least one of `before`, `after` and `url`, and not both `after` and `url`"
                )
            if text.url and not text.url.startswith(("http://", "https://")):
                raise UnusableFile(f"url = {text.url!r}: expected http:// or https://")
            if not 1 <= text.time_limit <= LONGEST:
                raise UnusableFile(f"time-limit = {text.time_limit}: expected 1 to {LONGEST} seconds")
        except UnusableFile as error:
            raise UnusableFile(f"hook {number}: {error}") from None
        yield Hook(text)
