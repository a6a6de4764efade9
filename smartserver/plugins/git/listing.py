"""What a push lists, so that the server decides and not what is remembered of it.

Git acts on what is listed: it deletes only that, and it compares each lease (`--force-with-lease`) with the listed
value. So what git would do nothing about is asked for first, and a leased ref is listed with the value its lease
expects: git agrees and sends the lease on, and the server compares it with what the ref really is. The unknown value
stands for no ref there. With `--force` no lease counts, so none is listed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from smartserver.plugins.git.hint import Hint
from smartserver.records.model import RevisionId
from smartserver.vcs.git.names import HEADS, SHORT_FOR, TAGS
from smartserver.vcs.git.repository import boolean

NO_TIP = b""
"""What a lease expects of a ref that must not exist."""

EVERYTHING = frozenset({"--all", "--branches", "--mirror", "--tags"})
"""Options that say what is pushed where no refspec does."""

UPSTREAM = frozenset({b"upstream", b"tracking"})
"""Values of `push.default` with which a branch is pushed to what it is merged with."""


class LocalObject(Protocol):
    """An object: its id."""

    @property
    def key(self) -> RevisionId:
        """Its id."""


class Local(Protocol):
    """What is asked of the repository that pushes."""

    def refs(self) -> Mapping[bytes, RevisionId]:
        """Every ref and its tip."""

    def head(self) -> bytes | None:
        """The ref HEAD names."""

    def settings(self) -> Mapping[str, Sequence[bytes]]:
        """The configuration."""

    def find(self, name: bytes) -> LocalObject | None:
        """The object an expression stands for."""


def removes_others(hint: Hint, remote: str, local: Local) -> bool:
    """Whether git is to remove each listed ref that is not here."""
    mirror = local.settings().get(f"remote.{remote}.mirror", [b"false"])[-1]
    return hint.needs_names or boolean(mirror)


def must_ask(hint: Hint, remote: str, local: Local, known: Collection[bytes], *, met: bool) -> bool:
    """Whether git, listed the refs as last seen (`met`: they ever were), would not send what the user means."""
    specs = [spec.encode("utf-8", "surrogateescape") for spec in hint.refspecs]
    settings = local.settings()
    if not specs and not hint.options & EVERYTHING:
        specs = list(settings.get(f"remote.{remote}.push", ()))
        if not specs and settings.get("push.default", [b""])[-1] == b"matching":
            specs = [b":"]
    if removes_others(hint, remote, local) or any(spec in (b":", b"+:") for spec in specs):
        return not met
    deletes = hint.options & {"--delete", "-d"}
    refs: Collection[bytes] | None = None
    for spec in specs:
        source, target = (b"", spec) if deletes else _sides(spec)
        if not target or _any_means(target, known):
            continue
        if not source:
            return True  # Git deletes only what is listed.
        if target.startswith(b"refs/"):
            continue
        # Git gives a short target the kind of its source; one that is no ref gives it none.
        refs = refs if refs is not None else local.refs()
        if source != b"HEAD" and not _any_means(source, refs):
            return True
    return False


def tip_of(written: bytes) -> RevisionId:
    """The tip that an id in hexadecimal digits is; git writes zeros for a ref that must not exist.

    Raises:
        ValueError: it is no id.
    """
    tip = bytes.fromhex(written.decode("ascii"))
    return tip if any(tip) else NO_TIP


class Leases:
    """The leases of one push."""

    def __init__(self, hint: Hint, remote: str, local: Local, known: Iterable[bytes]) -> None:
        """`remote`: its name, or its URL when it has none; `known`: the remote's refs, as last seen."""
        self._hint = hint
        self._local = local
        self._known = set(known)
        self._refs = local.refs()
        self._settings = local.settings()
        self._fetch = [_sides(spec) for spec in self._settings.get(f"remote.{remote}.fetch", ())]
        self._configured = self._settings.get(f"remote.{remote}.push", ())
        self._default = self._settings.get("push.default", [b"simple"])[-1]
        self._specs = self._read_specs()
        self._pairs = list(self._pushed())
        names = {*self._known, *(target for _, target in self._pairs)}
        if not removes_others(hint, remote, local):  # Listing more than there is would have git delete it.
            names.update(self._tracked())
        self.expected: dict[bytes, RevisionId] = {}
        """Each leased ref, and the tip its lease expects."""
        for lease in hint.leases:
            self._add(lease, names)

    @property
    def settled(self) -> bool:
        """Whether git, seeing these values, may find nothing to send: it would say so without asking the server."""
        pairs = [*self._pairs, *self._matching()]
        return all(target in self.expected and self._value(source) == self.expected[target] for source, target in pairs)

    def _add(self, lease: str, names: Collection[bytes]) -> None:
        name, colon, value = lease.encode("utf-8", "surrogateescape").partition(b":")
        matching: Collection[bytes] = names
        if name:
            matching = [ref for ref in names if _any_means(name, (ref,))] or [self._full(name)]
        expected = self._value(value) if colon else None
        for ref in matching:
            if ref not in self.expected:
                self.expected[ref] = self._tracking(ref) if expected is None else expected

    def _value(self, expression: bytes) -> RevisionId:
        if not expression:
            return NO_TIP
        if len(expression) in (40, 64):  # Only the server may have it.
            with contextlib.suppress(ValueError):
                return tip_of(expression)
        found = self._local.find(expression)
        return found.key if found else NO_TIP

    def _tracking(self, ref: bytes) -> RevisionId:
        """Where the ref was when it was last fetched."""
        for source, target in self._fetch:
            mapped = _mapped(ref, source, target)
            if mapped is not None:
                return self._refs.get(mapped, NO_TIP)
        return NO_TIP

    def _tracked(self) -> Iterable[bytes]:
        """The refs of the remote that were ever fetched."""
        for name in self._refs:
            for source, target in self._fetch:
                mapped = _mapped(name, target, source)
                if mapped is not None:
                    yield mapped

    def _read_specs(self) -> Sequence[tuple[bytes, bytes]]:
        """Sources and targets as they are written on the command line, else in the settings."""
        words = [spec.encode("utf-8", "surrogateescape") for spec in self._hint.refspecs]
        if not words:
            return [] if "--tags" in self._hint.options else [_sides(spec) for spec in self._configured]
        if self._hint.options & {"--delete", "-d"}:
            return [(b"", word) for word in words]
        specs = []
        while words:
            word = words.pop(0)
            if word == b"tag" and words:  # `git push origin tag v1`
                word = TAGS + words.pop(0)
            specs.append(_sides(word) if b":" in word else self._sides_of_one(word.lstrip(b"+")))
        return specs

    def _sides_of_one(self, source: bytes) -> tuple[bytes, bytes]:
        """What a refspec without a target means: the settings may name one."""
        ref = b"" if source in (b"HEAD", b"@") else self._full(source)
        if ref in self._refs:
            for written, target in map(_sides, self._configured):
                mapped = _mapped(ref, written, target)
                if mapped is not None:
                    return ref, mapped
            if self._default in UPSTREAM:
                return source, self._upstream(ref) or source
        return source, b""

    def _upstream(self, ref: bytes) -> bytes:
        """What a branch is to be merged with; empty where that is nothing, or more than one."""
        branch = ref.removeprefix(HEADS).decode("utf-8", "surrogateescape")
        merge = self._settings.get(f"branch.{branch}.merge", ())
        return merge[0] if len(merge) == 1 else b""

    def _pushed(self) -> Iterable[tuple[bytes, bytes]]:
        """What is pushed for certain, and to which ref; a delete has no source. Where it cannot be told, nothing."""
        options = self._hint.options
        if any(spec.startswith(b"^") for spec, _ in [*self._specs, *map(_sides, self._configured)]):
            return
        if options & {"--all", "--branches"} or ("--mirror" in options and not self._specs):
            yield from ((ref, ref) for ref in self._refs if ref.startswith(HEADS))
            return
        if "--tags" in options:
            yield from ((ref, ref) for ref in self._refs if ref.startswith(TAGS))
        elif not self._specs and self._default != b"matching":
            head = self._local.head()
            target = self._upstream(head) if head and self._default in UPSTREAM else head
            if head and target:
                yield head, target
        for source, target in self._specs:
            if b"*" in source:
                yield from ((ref, to) for ref in self._refs if (to := _mapped(ref, source, target or source)))
            elif source or target:
                yield source, self._full(target or source)

    def _matching(self) -> Iterable[tuple[bytes, bytes]]:
        """The branches of both sides, where those are pushed: of what is listed, for git sees no other."""
        written = (b"", b"") in self._specs
        if not written and (self._specs or self._default != b"matching" or self._hint.options & EVERYTHING):
            return
        for ref in self._known:
            if ref.startswith(HEADS) and ref in self._refs:
                yield ref, ref

    def _full(self, name: bytes) -> bytes:
        if name in (b"HEAD", b"@"):
            return self._local.head() or name
        if name.startswith(b"refs/"):
            return name
        return TAGS + name if TAGS + name in self._refs and HEADS + name not in self._refs else HEADS + name


def _sides(refspec: bytes) -> tuple[bytes, bytes]:
    source, _, target = refspec.lstrip(b"+").partition(b":")
    return source, target


def _any_means(short: bytes, refs: Collection[bytes]) -> bool:
    return any(prefix + short in refs for prefix in SHORT_FOR)


def _mapped(name: bytes, source: bytes, target: bytes) -> bytes | None:
    """The name a refspec gives to `name`, None where it is not about it."""
    if not target or source.startswith(b"^"):
        return None
    before, star, after = source.partition(b"*")
    if not star:
        return target if name == source else None
    if name.startswith(before) and name.endswith(after) and len(name) >= len(before) + len(after):
        return target.replace(b"*", name[len(before) : len(name) - len(after)], 1)
    return None
