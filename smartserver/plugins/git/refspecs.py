"""Resolves a push's refspecs by git's rules (`match_push_refs` in its remote.c), on refs that the caller gives.

Git matches refspecs with the refs that a remote lists. A helper that lists cached refs must know which of git's
decisions depend on them: the target of a short name (`target`), and comparisons of all refs of both sides
(`compares_all`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from smartserver.plugins.git.hint import Hint
from smartserver.records.model import RevisionId
from smartserver.vcs.git.names import HEADS, SHORT_FOR, TAGS
from smartserver.vcs.git.repository import boolean

EVERYTHING = frozenset({"--all", "--branches", "--mirror", "--tags"})
"""Options that select the refs to push if no refspec is given."""

COMPARING = frozenset({"--mirror", "--prune"})
"""Options that delete the remote's refs that are missing locally."""

UPSTREAM = frozenset({b"upstream", b"tracking"})
"""Values of `push.default` with which a branch is pushed to its upstream branch."""

IS_HEAD = frozenset({b"HEAD", b"@"})


class LocalObject(Protocol):
    """An object of the pushing repository."""

    @property
    def key(self) -> RevisionId:
        """The id of the object."""


class Local(Protocol):
    """The pushing repository, in the form that refspecs need."""

    def refs(self) -> Mapping[bytes, RevisionId]:
        """Return every ref and its tip."""

    def head(self) -> bytes | None:
        """Return the ref that HEAD names, or None."""

    def settings(self) -> Mapping[str, Sequence[bytes]]:
        """Return the configuration."""

    def find(self, name: bytes) -> LocalObject | None:
        """Return the object that an expression denotes, or None."""


class Refspecs:
    """The refspecs of one push."""

    def __init__(self, hint: Hint, remote: str, local: Local) -> None:
        """`remote`: the name of the remote, or its URL if it has none."""
        self._hint = hint
        self._remote = remote
        self._local = local
        self._settings = local.settings()
        self.configured = self._settings.get(f"remote.{remote}.push", ())
        self.default = self._settings.get("push.default", [b"simple"])[-1]
        self.pairs = self._read()
        """Sources and targets as written on the command line or, if it has none, in the settings."""

    @functools.cached_property
    def refs(self) -> Mapping[bytes, RevisionId]:
        """The local refs."""
        return self._local.refs()

    @property
    def compares_all(self) -> bool:
        """True if git compares all refs of both sides: to delete, to match by name, or to find tags to follow."""
        mirrors = boolean(self._settings.get(f"remote.{self._remote}.mirror", [b"false"])[-1])
        return mirrors or bool(self._hint.options & COMPARING) or self._is_matching or self._follows_tags

    @property
    def _is_matching(self) -> bool:
        if self.pairs or self._hint.options & EVERYTHING:
            return (b"", b"") in self.pairs
        return self.default == b"matching"

    @property
    def _follows_tags(self) -> bool:
        options, setting = self._hint.options, boolean(self._settings.get("push.followtags", [b"false"])[-1])
        follows = "--follow-tags" in options or (setting and "--no-follow-tags" not in options)
        return follows and any(ref.startswith(TAGS) for ref in self.refs)

    @property
    def is_forced(self) -> bool:
        """True if a refspec is forced by its `+`."""
        return any(spec.startswith("+") for spec in self._hint.refspecs) or any(
            spec.startswith(b"+") for spec in self.configured
        )

    @property
    def short(self) -> Sequence[tuple[bytes, bytes]]:
        """The refspecs with a short target, whose meaning depends on the remote's refs."""
        return [
            (source, target)
            for source, target in self.pairs
            if target and not target.startswith(b"refs/") and b"*" not in source
        ]

    def target(self, source: bytes, short: bytes, refs: Collection[bytes]) -> bytes:
        """Return the ref that a short target denotes if the remote has `refs`; empty if git refuses it."""
        found = matches(short, refs)
        if found or not source:
            return found[0] if len(found) == 1 else b""
        return self.default_target(source, short)

    def default_target(self, source: bytes, short: bytes) -> bytes:
        """Return the ref that a short target creates: a branch or a tag, like its source; empty if the source is
        neither."""
        named = [self._local.head() or b""] if source in IS_HEAD else matches(source, self.refs)
        kind = next((kind for kind in (HEADS, TAGS) if len(named) == 1 and named[0].startswith(kind)), b"")
        return kind and kind + short

    def _read(self) -> Sequence[tuple[bytes, bytes]]:
        words = [spec.encode("utf-8", "surrogateescape") for spec in self._hint.refspecs]
        if not words:
            return [] if self._hint.options & EVERYTHING else [sides(spec) for spec in self.configured]
        pairs = []
        while words:
            word = words.pop(0)
            if word == b"tag" and words:  # `git push origin tag v1`
                word = TAGS + words.pop(0)
            if self._hint.options & {"--delete", "-d"}:
                pairs.append((b"", word))
            else:
                pairs.append(sides(word) if b":" in word else self._sides_of_one(word.lstrip(b"+")))
        return pairs

    def _sides_of_one(self, source: bytes) -> tuple[bytes, bytes]:
        """Return source and target of a refspec without a target; the settings may define the target."""
        ref = b"" if source in IS_HEAD else self.full(source)
        if ref in self.refs:
            for written, target in map(sides, self.configured):
                found = mapped(ref, written, target)
                if found is not None:
                    return ref, found
            if self.default in UPSTREAM:
                return source, self.upstream(ref) or source
        return source, b""

    def upstream(self, ref: bytes) -> bytes:
        """Return the upstream of a branch (`branch.NAME.merge`); empty if none or several are configured."""
        branch = ref.removeprefix(HEADS).decode("utf-8", "surrogateescape")
        merge = self._settings.get(f"branch.{branch}.merge", ())
        return merge[0] if len(merge) == 1 else b""

    def full(self, name: bytes) -> bytes:
        """Return the ref that the name of a source denotes. If no target is given, it is also the target."""
        if name in IS_HEAD:
            return self._local.head() or name
        if name.startswith(b"refs/"):
            return name
        return TAGS + name if TAGS + name in self.refs and HEADS + name not in self.refs else HEADS + name


def sides(refspec: bytes) -> tuple[bytes, bytes]:
    """Return source and target of a refspec; both are empty for a matching push (`:`)."""
    source, _, target = refspec.lstrip(b"+").partition(b":")
    return source, target


def meanings(short: bytes) -> Sequence[bytes]:
    """Return the refs that a short name may mean, in git's order."""
    return [*(prefix + short for prefix in SHORT_FOR), b"refs/remotes/" + short + b"/HEAD"]


def matches(short: bytes, refs: Collection[bytes]) -> Sequence[bytes]:
    """Return the refs that a short name may mean; more than one means that the name is ambiguous. Refs other than
    branches and tags count only if no branch or tag matches, or if the name lacks no more than `refs/`."""
    found = [ref for ref in meanings(short) if ref in refs]
    strong = [ref for ref in found if ref.startswith((HEADS, TAGS)) or ref in (short, b"refs/" + short)]
    return strong or found


def mapped(name: bytes, source: bytes, target: bytes) -> bytes | None:
    """Return the name to which a refspec maps `name`; None if the refspec does not match it."""
    if not target or source.startswith(b"^"):
        return None
    before, star, after = source.partition(b"*")
    if not star:
        return target if name == source else None
    if name.startswith(before) and name.endswith(after) and len(name) >= len(before) + len(after):
        return target.replace(b"*", name[len(before) : len(name) - len(after)], 1)
    return None
