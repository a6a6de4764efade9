"""Parses the options that git sets with `option` lines of its remote-helper protocol."""

from __future__ import annotations

import re

import msgspec

from smartserver.plugins.git.listing import tip_of
from smartserver.plugins.git.terminal import Terminal
from smartserver.vcs.git.selector import BLOBS, TREES, Filter

LONGEST_NUMBER = 18
"""The most digits of a number in a filter."""

UNSUPPORTED = {"family": "-4 and -6 are not supported: every address of the host may be tried"}
"""Options that git continues without, with a message for the user. All other unsupported options are reported by git
(`--signed`)."""

WITHOUT_EFFECT = frozenset({"followtags", "object-format", "force", "force-if-includes", "update-shallow"})
"""Options that ask for the default, or that git itself acts on. No remote is shallow."""


class Options(msgspec.Struct):
    """The options that git has set, and the unsupported options about which the user was warned."""

    quiet: bool = False
    dry_run: bool = False
    atomic: bool = False
    refetch: bool = False
    cloning: bool = False
    depth: int = 0
    """The requested depth of history; 0 leaves the depth unchanged."""
    relative: bool = False
    """True if the depth is counted from the place where history is cut now."""
    since: str = ""
    """A date in the words of the user; empty if no date was given."""
    excluded: dict[bytes, None] = msgspec.field(default_factory=dict)
    """Refs whose history is left out."""
    filters: list[Filter] = msgspec.field(default_factory=list)
    lazy: bool = False
    """True if git itself, not the user, requests objects that a partial clone lacks."""
    promised: bool = False
    """True if fetched objects may refer to objects that git fetches later, when it needs them."""
    leases: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    """Each leased ref with the tip that its lease expects."""
    push_options: list[str] = msgspec.field(default_factory=list)
    """Push options, for the hooks of the server."""
    told: set[str] = msgspec.field(default_factory=set)
    """Unsupported options about which the user was warned."""

    def set(self, argument: str, terminal: Terminal) -> bytes:
        """Set an option that is given as `NAME VALUE`. Return the answer for git: `ok` or `unsupported`."""
        name, _, value = argument.partition(" ")
        if name == "progress":
            terminal.shows_progress = value == "true"
        elif name == "verbosity":
            self.quiet = value == "0"
        elif name == "dry-run":
            self.dry_run = value == "true"
        elif name == "atomic":
            self.atomic = value == "true"
        elif name == "refetch":
            self.refetch = value != "false"  # Git says `yes`.
        elif name == "cloning":
            self.cloning = value == "true"
        elif name == "depth":
            self.depth = int(unquote(value))
        elif name == "deepen-relative":
            self.relative = value == "true"
        elif name == "deepen-since":
            self.since = unquote(value).decode("utf-8", "surrogateescape")
        elif name == "deepen-not":
            self.excluded[unquote(value)] = None
        elif name == "filter":
            return self._filter(unquote(value).decode("utf-8", "surrogateescape"), terminal)
        elif name == "from-promisor":
            self.promised = True
        elif name == "cas":
            ref, _, expected = unquote(value).rpartition(b":")
            self.leases[ref] = tip_of(expected)
        elif name == "push-option":
            self.push_options.append(unquote(value).decode("utf-8", "backslashreplace"))
        elif name not in WITHOUT_EFFECT:
            if name in UNSUPPORTED and value != "0" and name not in self.told and not self.quiet:
                self.told.add(name)  # Git sets some of them twice.
                terminal.say(f"hpss: {UNSUPPORTED[name]}")
            return b"unsupported"
        return b"ok"

    @property
    def deepens(self) -> bool:
        """True if an option limits the depth of the history."""
        return bool(self.depth or self.since or self.excluded)

    def _filter(self, spec: str, terminal: Terminal) -> bytes:
        found = filters_of(spec)
        if found is None:
            if spec not in self.told and not self.quiet:
                self.told.add(spec)  # Git sets it twice.
                terminal.say(f"hpss: --filter={spec} is not supported: all objects are fetched")
            return b"unsupported"
        self.filters = found
        return b"ok"


_UNITS = {"k": 10, "m": 20, "g": 30}


def filters_of(spec: str) -> list[Filter] | None:
    """Return the filters that an option of git denotes, or None if a filter is not supported."""
    kind, _, value = spec.partition(":")
    if kind == "combine":
        found = [filters_of(unquote_percent(part)) for part in value.split("+")]
        return None if None in found else [filter_ for some in found if some is not None for filter_ in some]
    number, shift = value, 0
    if kind == "blob" and value.startswith("limit="):
        number = value.removeprefix("limit=").lower()
        shift = _UNITS.get(number[-1:], 0)
        number = number[:-1] if shift else number
    elif spec == "blob:none":
        number = "0"
    elif kind != "tree":
        return None
    if not number.isascii() or not number.isdigit() or len(number) > LONGEST_NUMBER:
        return None
    return [(BLOBS if kind == "blob" else TREES, int(number) << shift)]


def unquote_percent(text: str) -> str:
    """Decode a part of a combined filter, in which git writes some characters as in a URL."""
    return re.sub("%([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), text)


def unquote(value: str) -> bytes:
    """Decode a value as git writes it: in double quotes with C escapes if it has unusual characters."""
    if not value.startswith('"'):
        return value.encode("utf-8", "surrogateescape")
    out = bytearray()
    text = value[1:-1].encode("utf-8", "surrogateescape")
    at = 0
    escapes = {b"n": 10, b"t": 9, b"r": 13, b"a": 7, b"b": 8, b"f": 12, b"v": 11, b"\\": 92, b'"': 34}
    while at < len(text):
        if text[at] != 92:
            out.append(text[at])
            at += 1
        elif text[at + 1 : at + 2].isdigit():
            out.append(int(text[at + 1 : at + 4], 8))
            at += 4
        else:
            out.append(escapes.get(text[at + 1 : at + 2], text[at + 1]))
            at += 2
    return bytes(out)
