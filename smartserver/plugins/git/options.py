"""What git sets with `option`, in the words of its remote-helper protocol."""

from __future__ import annotations

import msgspec

from smartserver.plugins.git.listing import tip_of
from smartserver.plugins.git.terminal import CannotGoOn, Terminal

UNSHALLOW = "2147483647"
"""The depth git asks for to make a shallow repository whole (INFINITE_DEPTH)."""

UNSUPPORTED = {
    "depth": "--depth is not supported: the whole history is fetched",
    "deepen-since": "--shallow-since is not supported: the whole history is fetched",
    "deepen-not": "--shallow-exclude is not supported: the whole history is fetched",
    "filter": "--filter is not supported: all objects are fetched, again whenever there is something new: run "
    "`git config --unset remote.NAME.promisor` and `git config --unset remote.NAME.partialclonefilter` to end that",
    "family": "-4 and -6 are not supported: every address of the host may be tried",
}
"""Options git goes on without; where it does not (`--push-option`, `--signed`) it says so itself."""

WITHOUT_EFFECT = frozenset({"followtags", "object-format", "force", "force-if-includes"})
"""Options that are what happens anyway, or that git acts on itself."""


class Options(msgspec.Struct):
    """What git has set: what a push is to be, and what its user was told is not supported."""

    quiet: bool = False
    dry_run: bool = False
    atomic: bool = False
    refetch: bool = False
    cloning: bool = False
    leases: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    """Ref -> the tip its lease expects."""
    told: set[str] = msgspec.field(default_factory=set)
    """Options the user was told are not supported."""

    def set(self, argument: str, terminal: Terminal) -> bytes:
        """Take `NAME VALUE`; the answer.

        Raises:
            CannotGoOn: git would go on without something it cannot do without.
        """
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
        elif name == "cas":
            ref, _, expected = unquote(value).rpartition(b":")
            self.leases[ref] = tip_of(expected)
        elif name not in WITHOUT_EFFECT:
            # Git turns off depth for the tags it follows after a fetch: that needs no word.
            if name == "depth" and value == UNSHALLOW:
                raise CannotGoOn("--unshallow is not supported: clone anew, or unshallow from where this was cloned")
            if name in UNSUPPORTED and value != "0" and name not in self.told and not self.quiet:
                self.told.add(name)  # Git sets some of them twice.
                terminal.say(f"hpss: {UNSUPPORTED[name]}")
            return b"unsupported"
        return b"ok"


def unquote(value: str) -> bytes:
    """A value as git writes it: in double quotes with C escapes when it has odd characters."""
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
