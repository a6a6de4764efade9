"""Patterns of paths and refs: `*` is any part of a name between slashes, and `**` is any number of names.

Some file systems take two spellings for one name. Each pattern has a second form for names in lower case.
"""

from __future__ import annotations

import re
import unicodedata

from smartserver.server.watched import UnusableFile

_WORDS = re.compile(r"\*\*|\*|[^*]+")


class NamePattern:
    """A pattern in both forms."""

    def __init__(self, text: str) -> None:
        self._forms = {folds: _compiled(folded(text) if folds else text) for folds in (False, True)}

    def matches(self, name: str, *, folds: bool) -> bool:
        """Whether a name fits. `folds`: in the second form; the name is `folded` already."""
        return self._forms[folds].fullmatch(name) is not None


def folded(text: str) -> str:
    """The one spelling of all that a file system may take for the same name."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression. `a/**` matches `a` and everything below it."""
    if pattern == "**":
        return re.compile(".*", re.DOTALL)
    below = pattern.endswith("/**")
    whole = pattern.removesuffix("/**") if below else pattern
    shapes = {"**": ".*", "*": "[^/]*"}
    text = "".join(shapes.get(word) or re.escape(word) for word in _WORDS.findall(whole))
    return re.compile(text + ("(/.*)?" if below else ""), re.DOTALL)


def check_pattern(key: str, pattern: str) -> None:
    """Check a pattern; `key`: what it is in the file.

    Raises:
        UnusableFile: it can match nothing.
    """
    parts = pattern.split("/")
    if not pattern.strip("/") == pattern or (pattern and "" in parts):
        raise UnusableFile(f"{key} = {pattern!r}: a slash at its start or end, or two together")
    if {".", ".."} & set(parts) and (key, pattern) != ("refs", "."):  # A branch that is a repository of its own.
        raise UnusableFile(f"{key} = {pattern!r}: '.' and '..' are in no path or ref")
    if any("**" in part and part != "**" for part in parts):
        raise UnusableFile(f"{key} = {pattern!r}: `**` stands for whole names, between slashes")
    if unicodedata.normalize("NFC", pattern) != pattern:
        raise UnusableFile(f"{key} = {pattern!r}: it is not in Unicode form NFC, as the paths of repositories are")
