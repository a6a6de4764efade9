"""Patterns of paths and refs: `*` is any part of a name between slashes, and `**` is any number of names.

Some file systems treat two spellings as one name. So each pattern also has a form for names in lower case (`folded`).
"""

from __future__ import annotations

import functools
import re
import unicodedata

from smartserver.records.system import every_system
from smartserver.server.watched import UnusableFile

_WORDS = re.compile(r"\*\*|\*|[^*]+")


class NamePattern:
    """A compiled pattern, in its own spelling and in lower case."""

    def __init__(self, text: str) -> None:
        self._forms = {folds: _compiled(folded(text) if folds else text) for folds in (False, True)}

    def matches(self, name: str, *, folds: bool) -> bool:
        """Return True if the pattern matches a name. `folds`: use the form in lower case; the name is `folded`
        already."""
        return self._forms[folds].fullmatch(name) is not None


class RefPattern:
    """A pattern of refs and of entries of maps. No entry has the name of a ref (`map_update.entry_name`).

    `REF` matches refs and the entries that belong to them; `REF:` matches the refs alone. `REF:MAP/KEY` matches entries
    that belong to such refs; `:MAP/KEY` matches entries that belong to no ref. `**` matches everything.
    """

    def __init__(self, text: str) -> None:
        """Parse a pattern that `check_ref_pattern` accepts."""
        ref, entry = split_entry(text)
        self._ref = NamePattern(ref)
        self._entry = None if entry is None else NamePattern(entry)
        self._is_of_entries = bool(entry)
        self._is_of_all = text == "**"

    def matches(self, name: str, *, folds: bool) -> bool:
        """Return True if the pattern matches a ref or an entry. `name`: the name of a ref, or of an entry as
        `map_update.entry_name` returns it. `folds`: use the form in lower case; the name is `folded` already."""
        ref, is_entry, entry = name.partition("\0")
        if not is_entry:
            return not self._is_of_entries and self._ref.matches(ref, folds=folds)
        if self._entry is None:
            return self._is_of_all or (bool(ref) and self._ref.matches(ref, folds=folds))
        return self._is_of_entries and self._ref.matches(ref, folds=folds) and self._entry.matches(entry, folds=folds)


def split_entry(text: str) -> tuple[str, str | None]:
    """Return the ref and the entry in a pattern or in the name of an entry; the entry is None if the pattern has none.

    A colon separates them if it is the last character, or if `**` or `MAP/` follows. `MAP` is a map's name or has a
    wildcard. Any other colon is a part of the ref's name.
    """
    if text.endswith(":"):
        return text[:-1], ""
    maps = _map_names()
    for at in [at for at, letter in enumerate(text) if letter == ":"]:
        entry = text[at + 1 :]
        name, slash, _ = entry.partition("/")
        if entry == "**" or (slash and (name in maps or "*" in name)):
            return text[:at], entry
    return text, None


@functools.cache
def _map_names() -> frozenset[str]:
    """Return the names of all maps of all systems."""
    return frozenset(name for system in every_system().values() for name in system.maps)


@functools.cache
def _maps_of_no_ref() -> frozenset[str]:
    return frozenset(
        name for system in every_system().values() for name, known in system.maps.items() if not known.of_refs
    )


def folded(text: str) -> str:
    """Return the common spelling of all names that a file system may treat as one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern. `a/**` matches `a` and everything below it."""
    if pattern == "**":
        return re.compile(".*", re.DOTALL)
    below = pattern.endswith("/**")
    whole = pattern.removesuffix("/**") if below else pattern
    shapes = {"**": ".*", "*": "[^/]*"}
    text = "".join(shapes.get(word) or re.escape(word) for word in _WORDS.findall(whole))
    return re.compile(text + ("(/.*)?" if below else ""), re.DOTALL)


def check_pattern(key: str, pattern: str) -> None:
    """Check a pattern of paths or refs. `key`: its key in the file, for the error."""
    parts = pattern.split("/")
    if not pattern.strip("/") == pattern or (pattern and "" in parts):
        raise UnusableFile(f"{key} = {pattern!r}: a slash at its start or end, or two together")
    if {".", ".."} & set(parts) and (key, pattern) != ("refs", "."):  # A branch that is a repository itself.
        raise UnusableFile(f"{key} = {pattern!r}: '.' and '..' are in no path or ref")
    if any("**" in part and part != "**" for part in parts):
        raise UnusableFile(f"{key} = {pattern!r}: `**` must stand alone between slashes, as in a/**")
    if unicodedata.normalize("NFC", pattern) != pattern:
        raise UnusableFile(f"{key} = {pattern!r}: it is not in Unicode form NFC, as the paths of repositories are")


def check_ref_pattern(key: str, pattern: str) -> None:
    """Check a pattern of refs and entries. `key`: its key in the file, for the error."""
    ref, entry = split_entry(pattern)
    folders = ref.split("/")[:-1]
    if entry is None and folders and (folded(folders[0]) in _maps_of_no_ref() or any("*" in each for each in folders)):
        of_refs = f"{pattern + ':'!r} for refs of such names, {pattern + ':**'!r} for the entries that belong to them"
        said = f"write {of_refs}, or {':' + pattern!r} for entries that belong to no ref"
        raise UnusableFile(f"{key} = {pattern!r} may mean refs or entries: {said}")
    check_pattern(key, ref)
    if entry:
        check_pattern(key, entry)
