"""Lists refs for a push, so that the server decides, and not the client's cache.

Git acts on the refs that are listed. If cached refs are no base for git's decisions (`must_ask`), the server's refs are
listed. Otherwise each cached ref is listed with an unknown value, and the server decides. A leased ref
(`--force-with-lease`) is listed with the value that its lease expects. Then git agrees and sends the lease on, and the
server compares it with the real value. If a lease expects no ref, the value is unknown, too. With `--force` no lease
counts, so none is listed.

A short target (`main:x`, `:x`) is decided on cached refs, too. The facts that the decision depends on are sent with the
push, as `conditions`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from smartserver.client.updates import RefUpdate
from smartserver.plugins.git.hint import Hint
from smartserver.plugins.git.refspecs import UPSTREAM, Local, Refspecs, mapped, matches, meanings, sides
from smartserver.records.model import RefValue, RevisionId
from smartserver.vcs.git.names import HEADS, TAGS
from smartserver.verbs.fields import MAX_NAME
from smartserver.verbs.rules import Rule

NO_TIP = b""
"""The tip that a lease expects of a ref that must not exist."""


def must_ask(refspecs: Refspecs, known: Collection[bytes]) -> bool:
    """Tell whether the refs must be requested, because git, given these cached refs, could send a wrong ref or refuse a
    ref that the server allows."""
    return refspecs.compares_all or not all(refspecs.target(*pair, known) for pair in refspecs.short)


def tip_of(written: bytes) -> RevisionId:
    """Return the tip for an id in hexadecimal digits. Git's zeros mean that the ref must not exist."""
    tip = bytes.fromhex(written.decode("ascii"))
    return tip if any(tip) else NO_TIP


class Leases:
    """The leases of one push."""

    def __init__(self, hint: Hint, remote: str, local: Local, refspecs: Refspecs, known: Collection[bytes]) -> None:
        """`remote`: the name of the remote, or its URL if it has no name. `known`: the last known refs of the
        remote."""
        self._hint = hint
        self._local = local
        self._known = known
        self._refspecs = refspecs
        self._refs = refspecs.refs
        self._fetch = [sides(spec) for spec in local.settings().get(f"remote.{remote}.fetch", ())]
        self._pairs = list(self._pushed())
        names = {*known, *(target for _, target in self._pairs), *self._tracked()}
        self.expected: dict[bytes, RevisionId] = {}
        """Each leased ref with the tip that its lease expects."""
        for lease in hint.leases:
            self._add(lease, names)
        tips = [(self._value(source), target) for source, target in self._pairs]
        self.settled = {target: tip for tip, target in tips if tip and self.expected.get(target) == tip}
        """Refs that git regards as up to date, because their leases expect the tips that are to be pushed. Each with
        that tip."""
        self._unsettled = [target for tip, target in tips if self.expected.get(target) != tip]

    @property
    def must_ask(self) -> bool:
        """True if the refs must be requested, because git, given the expected tips, could find nothing to send, leave
        out as up to date a ref whose `+` overrides its lease, or take a short target for another ref."""
        return not self._unsettled or (bool(self.settled) and self._refspecs.is_forced) or self._moves_targets

    @property
    def _moves_targets(self) -> bool:
        """True if a leased ref that is not cached, once listed, changes the meaning of a short target."""
        listed = {*self._known, *(ref for ref, tip in self.expected.items() if tip)}
        target = self._refspecs.target
        return any(target(*pair, listed) != target(*pair, self._known) for pair in self._refspecs.short)

    def _add(self, lease: str, names: Collection[bytes]) -> None:
        name, colon, value = lease.encode("utf-8", "surrogateescape").partition(b":")
        matching: Collection[bytes] = names
        if name:
            matching = [ref for ref in names if matches(name, (ref,))] or [self._refspecs.full(name)]
        expected = self._value(value) if colon else None
        for ref in matching:
            if ref not in self.expected:
                self.expected[ref] = self._tracking(ref) if expected is None else expected

    def _value(self, expression: bytes) -> RevisionId:
        if not expression:
            return NO_TIP
        if len(expression) in (40, 64):  # The object may be only on the server.
            with contextlib.suppress(ValueError):
                return tip_of(expression)
        found = self._local.find(expression)
        return found.key if found else NO_TIP

    def _tracking(self, ref: bytes) -> RevisionId:
        for source, target in self._fetch:
            found = mapped(ref, source, target)
            if found is not None:
                return self._refs.get(found, NO_TIP)
        return NO_TIP

    def _tracked(self) -> Iterable[bytes]:
        for name in self._refs:
            for source, target in self._fetch:
                found = mapped(name, target, source)
                if found is not None:
                    yield found

    def _pushed(self) -> Iterable[tuple[bytes, bytes]]:
        """Yield the sources that will certainly be pushed, and their refs. A deletion has an empty source. Yield
        nothing if that is uncertain."""
        options, refspecs = self._hint.options, self._refspecs
        if any(spec.startswith(b"^") for spec, _ in [*refspecs.pairs, *map(sides, refspecs.configured)]):
            return
        if options & {"--all", "--branches"}:
            yield from ((ref, ref) for ref in self._refs if ref.startswith(HEADS))
            return
        if "--tags" in options:
            yield from ((ref, ref) for ref in self._refs if ref.startswith(TAGS))
        elif not refspecs.pairs:
            head = self._local.head()
            target = refspecs.upstream(head) if head and refspecs.default in UPSTREAM else head
            if head and target:
                yield head, target
        short = set(refspecs.short)
        for source, target in refspecs.pairs:
            if (source, target) in short:
                yield source, refspecs.target(source, target, self._known)
            elif b"*" in source:
                yield from ((ref, to) for ref in self._refs if (to := mapped(ref, source, target or source)))
            elif source or target:
                yield source, refspecs.full(target or source)


class Guess(msgspec.Struct, frozen=True):
    """A short target of a push, and the ref that git chose for it."""

    source: bytes
    short: bytes
    ref: bytes


def guesses(refspecs: Refspecs, listed: Collection[bytes], pushed: Collection[bytes]) -> Sequence[Guess]:
    """Return the refs that git chose for short targets, given the listed refs. `pushed`: the refs that git then pushed
    to."""
    found = [Guess(source, short, refspecs.target(source, short, listed)) for source, short in refspecs.short]
    return [guess for guess in found if guess.ref in pushed]


def conditions(
    refspecs: Refspecs, found: Sequence[Guess], known: Mapping[bytes, RefValue], leased: Collection[bytes]
) -> Sequence[RefUpdate]:
    """Return updates that change nothing, and fail if a guess may be wrong. Other refs that the short target could mean
    must be missing. The guessed ref must be as cached, unless the push would create the same one, or it is in `leased`:
    the refs that the push itself expects to exist."""
    asked: dict[bytes, RefUpdate] = {}
    for guess in found:
        for ref in meanings(guess.short):
            if ref != guess.ref and len(ref) <= MAX_NAME:
                asked[ref] = RefUpdate(ref, None, expected=NO_TIP)
        made = refspecs.default_target(guess.source, guess.short) if guess.source else b""
        if guess.ref != made and guess.ref in known and guess.ref not in leased:
            tip = known[guess.ref][0]
            asked[guess.ref] = RefUpdate(guess.ref, tip.id, Rule.LEASE, expected=tip.id, attributes=tip.attributes)
    return list(asked.values())
