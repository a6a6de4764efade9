"""`HpssPeer`: a repository on a server as Mercurial's commands see it. Mostly, the answer to one request serves all
calls of a command."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from mercurial import bundle2, changegroup, error, localrepo, phases, pushkey, util
from mercurial.i18n import _
from mercurial.node import hex as hexadecimal

from smartserver.client.places import parse_place
from smartserver.client.url import BadUrl
from smartserver.plugins.mercurial.compat import BasePeer, BranchMap, location
from smartserver.plugins.mercurial.markers import stream
from smartserver.plugins.mercurial.remote import Remote, RequestLevel, in_utf8
from smartserver.plugins.mercurial.words import refusal
from smartserver.spans import Part, spans_of, spent
from smartserver.vcs.hg.kinds import NULL
from smartserver.vcs.hg.selector import BOOKMARK, BRANCH, FRAGMENT, RevisionNames

_UNDERSTOOD = b"HG20\nchangegroup=03\nlistkeys\nobsmarkers=V1\nphases=heads\npushkey"
"""The capabilities of bundles that a peer announces, so that commands use bundles."""


class HpssPeer(BasePeer):
    """The peer of an hpss:// URL."""

    def __init__(self, ui: Any, path: Any, create: bool = False, *, is_clone: bool = False) -> None:
        """`create`: True to create the repository, at once or, with `is_clone`, by the push that follows."""
        super().__init__(ui, path if hasattr(path, "loc") else None)
        self._url = location(path)
        try:
            place = parse_place(self._url.decode("utf-8", "surrogateescape"))
        except BadUrl as cause:
            raise refusal(str(cause)) from None
        self.remote = Remote(ui, place, self._url)
        self.is_pushed_to = False
        """True if answers are given from cached state, because the command is a push: it requests nothing before it
        sends, and the server decides."""
        self.is_pulled_from = False
        self._said: set[bytes] = set()
        if create:
            self.remote.begin()
        if create and not is_clone:
            from smartserver.plugins.mercurial.push import create_repository

            create_repository(self.remote)

    # ---- the peer itself

    def url(self) -> bytes:
        """Return the URL of the repository."""
        return self._url

    def canpush(self) -> bool:
        """Return True, because only the server can tell whether it accepts a push."""
        return True

    def close(self) -> None:
        """Do nothing, because the connection stays open until the command ends."""

    def capabilities(self) -> set[bytes]:
        """Return the capabilities that commands may use."""
        of_bundles = b"bundle2=" + quote(_UNDERSTOOD).encode()
        return {b"lookup", b"branchmap", b"known", b"getbundle", b"pushkey", b"unbundle", b"batch", of_bundles}

    def commandexecutor(self) -> Any:
        """Return an object that calls the methods of this peer."""
        return localrepo.localcommandexecutor(self)

    def says_first(self, message: bytes) -> bool:
        """Return True on the first call with a message, so that the caller prints it once only. A push runs its
        discovery again after the server's answer."""
        is_first = message not in self._said
        self._said.add(message)
        return is_first

    def warn_unrelated(self, ui: Any) -> None:
        """Warn, once, that the local repository and the one on the server have no revision in common."""
        message = _(b"warning: repository is unrelated\n")
        if self.says_first(message):
            ui.warn(message)

    def names(self, options: Any, source: Any) -> None:
        """Limit the requests to the names in a command's options. `source`: the repository in which the command
        runs."""
        revisions = list(options.get(b"rev") or [])
        bookmarks = list(options.get(b"bookmark") or [])
        branches = [*(options.get(b"branch") or []), *(options.get(b"only_branch") or [])]
        if all(isinstance(name, bytes) for name in (*revisions, *bookmarks, *branches)):
            if hasattr(source, "dirstate"):
                branches = [source.dirstate.branch() if branch == b"." else branch for branch in branches]
                bookmarks = [source._bookmarks.expandname(bookmark) for bookmark in bookmarks]
            wanted = [in_utf8(revision) for revision in revisions]
            wanted += [BOOKMARK + in_utf8(bookmark) for bookmark in bookmarks]
            wanted += [BRANCH + in_utf8(branch) for branch in branches]
            self.remote.wanted = RevisionNames(wanted) if wanted else None

    def name_fragment(self, name: bytes, source: Any) -> None:
        """Request the name after the # of the URL, too. `source`: as in `names`."""
        if name == b"." and hasattr(source, "dirstate"):
            name = source.dirstate.branch()
        before = [] if self.remote.wanted is None else self.remote.wanted.names
        self.remote.wanted = RevisionNames([*before, FRAGMENT + in_utf8(name)])

    def _ask(self, level: RequestLevel = RequestLevel.REFS) -> Remote:
        """Request data up to a level, once, and return the remote. A command that names changesets requests their
        history in any case; a push requests nothing."""
        if not self.is_pushed_to:
            self.remote.ask(RequestLevel.HISTORY if self.remote.wanted is not None else level)
        return self.remote

    # ---- commands of the wire protocol

    def heads(self) -> list[bytes]:
        """Return the heads of the repository; null if it is empty."""
        return self._ask().heads() or [NULL]

    def known(self, nodes: Iterable[bytes]) -> list[bool]:
        """Return a boolean for each of `nodes`: True if the server has the changeset."""
        remote = self._ask(RequestLevel.GRAPH)
        return [remote.has(node) for node in nodes]

    def branchmap(self) -> BranchMap:
        """Return the heads of each branch, the newest last: `hg clone -b` checks it out."""
        remote = self._ask()
        found = BranchMap()
        found.update({name: remote.in_order(heads) for name, heads in remote.branches().items()})
        return found

    def listkeys(self, namespace: bytes) -> dict[bytes, bytes]:
        """Return the bookmarks, the phases, or the names of these tables."""
        if namespace == b"namespaces":
            found = {b"bookmarks": b"", b"phases": b"", b"namespaces": b""}
            return {**found, b"obsolete": b""} if self.remote.evolves else found
        if namespace == b"bookmarks":
            return {name: hexadecimal(node) for name, node in self._ask().bookmarks().items()}
        if namespace == b"phases":
            return self._ask().phases()
        return {}

    def lookup(self, key: bytes) -> bytes:
        """Return the changeset of a name."""
        return self.remote.find(key)

    def clonebundles(self) -> bytes:
        """Return an empty text: a server has no clone bundles."""
        return b""

    clonebundles_manifest = clonebundles

    @spent(Part.LOCAL, "make the bundle")
    def getbundle(
        self,
        source: bytes,
        heads: Collection[bytes] | None = None,
        common: Sequence[bytes] | None = None,
        bundlecaps: object = None,
        **wanted: Any,
    ) -> Any:
        """Return the received changesets as a bundle, which Mercurial's own pull applies. Without `bundlecaps` (`hg
        debuggetbundle`), return a changegroup."""
        remote = self._ask(RequestLevel.HISTORY)
        count, chunks = remote.incoming(heads) if wanted.get("cg", True) else (0, iter(()))
        if bundlecaps is None:
            return changegroup.getunbundler(b"03", util.chunkbuffer(chunks), None)
        bundle = bundle2.bundle20(self.ui, {b"HG20": (), b"changegroup": (b"03",), b"listkeys": ()})
        if count:
            part = bundle.newpart(b"changegroup", data=spans_of(Part.LOCAL, "make the bundle", chunks))
            part.addparam(b"version", b"03")
            part.addparam(b"nbchanges", b"%d" % count, mandatory=False)
        if wanted.get("obsmarkers") and remote.markers:
            bundle.newpart(b"obsmarkers", data=stream(remote.markers))
        if wanted.get("phases"):
            found = remote.phase_heads(remote.heads() if heads is None else heads)
            encoded = phases.binaryencode({phases.public: found.public, phases.draft: found.draft})
            bundle.newpart(b"phase-heads", data=encoded)
        for namespace in wanted.get("listkeys") or ():
            part = bundle.newpart(b"listkeys", data=pushkey.encodekeys(self.listkeys(namespace).items()))
            part.addparam(b"namespace", namespace)
        return bundle2.getunbundler(self.ui, util.chunkbuffer(self._chunks_of(bundle)))

    def _chunks_of(self, bundle: Any) -> Iterator[bytes]:
        try:
            yield from bundle.getchunks()
        except struct.error:  # Mercurial writes an error of the changegroup into a field of 255 bytes.
            if self.remote.received is not None:
                self.remote.received.check()
            raise

    def pushkey(self, namespace: bytes, key: bytes, old: bytes, new: bytes) -> bool:
        """Change a bookmark or a phase. Return True if it was changed."""
        from smartserver.plugins.mercurial.push import change_bookmark, change_phase

        if namespace == b"phases":
            return new == b"0" and change_phase(self.remote, key)
        return namespace == b"bookmarks" and change_bookmark(self.remote, key, old, new)

    # ---- commands that a user may ask for and that a server does not have

    def debugwireargs(self, *_arguments: object, **_named: object) -> bytes:
        """Return an empty text, because a server has no such command."""
        return b""

    def unbundle(self, *_arguments: object, **_named: object) -> Any:
        """Raise an error, because a push in the format before bundle2 (`devel.legacy.exchange`) is not supported."""
        raise error.Abort(_(b"operation not supported over hpss"))


class Scheme:
    """Creates peers for hpss:// URLs when Mercurial asks for them."""

    @staticmethod
    def make_peer(
        ui: Any, path: Any, create: bool, *_arguments: object, createopts: object = None, **_named: object
    ) -> HpssPeer:
        """Return a peer. `createopts`: is passed by `hg clone`, but not by `hg init`."""
        return HpssPeer(ui, path, create, is_clone=createopts is not None)

    instance = make_peer
    """The name of `make_peer` in Mercurial 6.3."""

    @staticmethod
    def islocal(path: bytes) -> bool:
        """Return False, because our URLs never name local folders."""
        del path
        return False
