"""The extension of the hg suite: a repository of a test is served over hpss for the length of one hg command.

A command whose remote is a repository in a folder opens a copy of it on a server instead, through the extension hpss.
The copy has the changesets, phases, bookmarks and markers that the folder shows to others. The changes that a push
makes on the server are copied back into the folder before the push reports on them. So the test may look into the
folder before and after, and the folder reports what it received.

Not served: a clone that copies files, commands that look into a working copy, a folder that a command creates,
repositories behind hgweb, and commands with `--remote-hidden`, as a server has nothing hidden to show. Numbers of
revisions and local tags are replaced by ids, because a server knows neither.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from mercurial import bundlerepo, commands, exchange, extensions, logexchange, obsolete, phases
from mercurial import ui as mercurial_ui
from mercurial.cmd_impls import clone as cloning
from mercurial.utils import urlutil

from smartserver.plugins.mercurial.compat import FACTORY, location
from smartserver.plugins.mercurial.markers import stream
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure

Original = Callable[..., Any]

DUMMY = b"user@dummy"
"""The host of the tests' own stand-in for ssh: it looks for repositories in TESTTMP."""

FROM_REMOTE = frozenset((b"confirm", b"bundle", b"noupdate"))
"""Options of `hg pull`, `incoming` and `clone`, whose revisions are those of the remote."""

_copying = False
"""True while the bridge itself opens a repository, which is not bridged."""

_in_place = False
"""True while a command looks at the files of a folder: a clone that may copy them, or `identify`."""


class Bridge:
    """A repository of a test and its copy on the server."""

    def __init__(self, ui: Any, folder: bytes, *, is_ssh: bool) -> None:
        self._ui = ui
        self.folder = folder
        self.is_ssh = is_ssh
        """True if the output of the folder gets a prefix, and its hooks are those of a server."""
        self.shown = b"file:" + folder
        self.url = os.fsencode(f"{os.environ['HPSS_BRIDGE']}/{uuid4().hex}")

    def copy_in(self) -> None:
        """Make the copy on the server."""
        quiet = _quiet()
        with tempfile.TemporaryDirectory() as temporary, _alone():
            shutil.copytree(Path(os.fsdecode(self.folder), ".hg"), Path(temporary, ".hg"), symlinks=True)
            local = FACTORY.repository(quiet, os.fsencode(temporary))
            peer = FACTORY.peer(quiet, {}, self.url, create=True)
            self._configure(peer)
            names = [
                name for name in local._bookmarks if b"@" not in name or name.endswith(b"@")
            ]  # As peers list them.
            exchange.push(local, peer, force=True, newbranch=True, bookmarks=names)

    def _configure(self, peer: Any) -> None:
        """Make the server publish, and exchange markers, as the folder does."""
        folder = FACTORY.repository(_quiet(), self.folder)
        publishes = folder.ui.configbool(b"phases", b"publish")
        evolves = obsolete.isenabled(folder, obsolete.exchangeopt)
        settings: dict[str, bytes | None] = {
            "publishing": b"yes" if publishes else b"no",
            "evolution": b"yes" if evolves else b"no",
        }
        peer.remote.repository.ask((repository_configure, ConfigureRequest(settings)))

    def copy_out(self, pushed: Sequence[bytes]) -> None:
        """Copy the changes that a push made on the server into the folder. `pushed`: the heads that the push sent."""
        with _alone():
            # Behind ssh another process of Mercurial's reads the user's configuration, without the command's options.
            folder = FACTORY.repository(mercurial_ui.ui.load() if self.is_ssh else self._ui, self.folder)
            peer = FACTORY.peer(folder, {}, self.url)
            new = [head for head in peer.heads() if not folder.unfiltered().changelog.hasnode(head)]
            caps = exchange.caps20to10(folder, role=b"client")
            bundle = peer.getbundle(b"push", heads=peer.heads(), cg=bool(new), obsmarkers=True, bundlecaps=caps)
            has_markers = not set(_markers(peer)) <= set(folder.obsstore)
            is_new = new or has_markers
            hidden = self._secret(folder, peer)
            if not (is_new or hidden or self._public(folder, peer, pushed) or self._moved(folder, peer)):
                return
            with self._prefixed(folder.ui), folder.wlock(), folder.lock(), folder.transaction(b"push") as transaction:
                if is_new:
                    words = (b"serve", b"remote:ssh:127.0.0.1") if self.is_ssh else (b"push", self.shown)
                    exchange.unbundle(folder, bundle, [b"force"], *words)
                public = self._public(folder, peer, pushed)
                phases.advanceboundary(folder.unfiltered(), transaction, phases.public, public)
                phases.advanceboundary(folder.unfiltered(), transaction, phases.draft, hidden)
                folder._bookmarks.applychanges(folder, transaction, self._moved(folder, peer))

    def _secret(self, folder: Any, peer: Any) -> list[bytes]:
        """Return changesets that are secret in the folder, which the copy left out, and that a push has sent."""
        unfiltered = folder.unfiltered()
        heads = [node for node in peer.heads() if unfiltered.changelog.hasnode(node)]
        return [unfiltered[revision].node() for revision in unfiltered.revs(b"secret() and ::%ln", heads)]

    def _public(self, folder: Any, peer: Any, pushed: Sequence[bytes]) -> list[bytes]:
        """Return drafts that a push made public: the pushed ones, or, in a repository that does not publish, those that
        are public on the server."""
        unfiltered = folder.unfiltered()
        has = unfiltered.changelog.hasnode
        if self._publishes():
            public = [node for node in pushed if has(node)]
        else:
            roots = [bytes.fromhex(key.decode()) for key, value in peer.listkeys(b"phases").items() if value == b"1"]
            there = [node for node in roots if has(node)]
            heads = [node for node in peer.heads() if has(node)]
            public = [
                unfiltered[revision].node() for revision in unfiltered.revs(b"heads(::%ln - %ln::)", heads, there)
            ]
        return [node for node in public if unfiltered[node].phase() != phases.public]

    def _moved(self, folder: Any, peer: Any) -> list[tuple[bytes, bytes | None]]:
        """Return the bookmarks that differ on the server, with their places there."""
        there = {name: bytes.fromhex(node.decode()) for name, node in peer.listkeys(b"bookmarks").items()}
        changes: list[tuple[bytes, bytes | None]] = []
        changes += [(name, node) for name, node in there.items() if folder._bookmarks.get(name) != node]
        changes += [(name, None) for name in folder._bookmarks if name not in there and b"@" not in name]
        return changes

    def _publishes(self) -> bool:
        folder = FACTORY.repository(_quiet(), self.folder)
        return bool(folder.ui.configbool(b"phases", b"publish"))

    @contextmanager
    def _prefixed(self, ui: Any) -> Iterator[None]:
        """Print with the prefix that the client gives to the remote's output."""
        is_captured = ui.configbool(b"experimental", b"bundle2-output-capture")
        ui.pushbuffer(error=True, subproc=True)
        try:
            yield
        finally:
            for line in ui.popbuffer().splitlines(keepends=True):
                self._ui.write(b"remote: " + line if self.is_ssh or is_captured else line)


def _markers(peer: Any) -> list[Any]:
    """Return the markers that a pull would bring."""
    found = stream(peer.remote.markers)
    return list(obsolete._readmarkers(found)[1]) if peer.remote.markers else []


def uisetup(ui: Any) -> None:
    """Wrap the functions that open a remote repository, and a clone that may do without one."""
    extensions.wrapfunction(FACTORY, "peer", _peer)
    extensions.wrapfunction(extensions, "loadall", _load_extensions)
    extensions.wrapfunction(cloning, "clone", _clone)
    extensions.wrapcommand(commands.table, b"identify", _identify)
    extensions.wrapfunction(exchange, "_localphasemove", _move_phases)
    extensions.wrapfunction(logexchange, "activepath", _active_path)
    extensions.wrapfunction(bundlerepo, "getremotechanges", _get_remote_changes)


def folder_of(path: Any, top: bytes) -> tuple[bytes, bool] | None:
    """Return the folder of a repository that a path names, and whether ssh leads there; None if there is none."""
    url = urlutil.url(location(path))
    if url.scheme in (None, b"file"):
        folder, is_ssh = url.localpath(), False
    elif url.scheme == b"ssh" and url.passwd is None and b"%s@%s" % (url.user or b"", url.host or b"") == DUMMY:
        folder, is_ssh = os.path.join(top, url.path or b""), True
    else:
        return None
    return (os.path.abspath(folder), is_ssh) if os.path.isdir(os.path.join(folder, b".hg")) else None


def _peer(
    original: Original, source: Any, options: Any, path: Any, create: bool = False, *rest: Any, **named: Any
) -> Any:
    is_left = create or _copying or named.get("remotehidden")
    found = None if is_left else folder_of(path, os.environb[b"TESTTMP"])
    if found is None or (not found[1] and (_in_place or options.get(b"updaterev") == b".")):
        return original(source, options, path, create, *rest, **named)
    with open(os.environ["HPSS_BRIDGE_LOG"], "a") as log:
        log.write(f"{os.environ['TESTNAME']}\n")
    folder, is_ssh = found
    bridge = Bridge(FACTORY._remoteui(source, options), folder, is_ssh=is_ssh)
    if is_ssh:
        bridge.shown = location(path)
    bridge.copy_in()  # It loads the extension hpss, which is around this function from then on.
    _wrap_pushes()
    branch = getattr(path, "branch", None)
    url = bridge.url + (b"#" + branch if branch else b"")
    if options.get(b"rev") and not FROM_REMOTE.isdisjoint(options):
        here = ids_here(folder, options[b"rev"])
        options[b"rev"][:] = [here.get(name, name) for name in options[b"rev"]]
    with _alone():
        peer = FACTORY.peer(source, options, path.copy(url) if hasattr(path, "copy") else url, create, *rest, **named)
    peer.url = lambda: bridge.shown
    peer.bridge = bridge
    pushkey = peer.pushkey

    def push_key(**entry: bytes) -> bool:
        """Copy the changes back after a push in the format before bundle2."""
        is_done: bool = pushkey(**entry)
        if is_done:
            bridge.copy_out([])
        return is_done

    peer.pushkey = push_key
    lookup, name_fragment = peer.lookup, peer.name_fragment
    peer.lookup = lambda key: lookup(ids_here(folder, [key]).get(key, key))
    peer.name_fragment = lambda name, source: name_fragment(ids_here(folder, [name]).get(name, name), source)
    return peer


@functools.cache
def _wrap_pushes() -> None:
    """Wrap the pushes of the extension hpss."""
    extensions.wrapfunction(exchange, "_pushbundle2", _push_bundle)


def _push_bundle(original: Original, operation: Any) -> Any:
    """Copy back the changes that the server has accepted, before the push reports on bookmarks."""
    bridge = getattr(operation.remote, "bridge", None)
    if bridge is None:
        return original(operation)
    remote = operation.remote.remote.repository
    push, status = remote.push, operation.ui.status

    def pushed(request: Any) -> Any:
        done = push(request)
        if done.error() is None:
            bridge.copy_out(operation.futureheads)
        return done

    def said(*words: bytes, **options: bytes) -> None:
        if not words[0].startswith(b"remote: "):  # The folder says that.
            status(*words, **options)

    remote.push, operation.ui.status = pushed, said
    try:
        done = original(operation)
    finally:
        remote.push, operation.ui.status = push, status
    if not operation.outgoing.missing:
        bridge.copy_out(operation.futureheads)  # What the folder publishes may be a draft in it.
    return done


def ids_here(folder: bytes, names: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the ids of those names of revisions that only the repository itself knows: numbers and local tags."""
    repository = FACTORY.repository(_quiet(), folder)
    tags = repository.tags()
    found = {name: tags[name].hex().encode() for name in names if repository.tagtype(name) == b"local"}
    return found | {name: repository[int(name)].hex() for name in names if name.isdigit() and int(name) in repository}


def _get_remote_changes(original: Original, ui: Any, repository: Any, peer: Any, *arguments: Any, **named: Any) -> Any:
    """Show incoming changesets with their numbers in the folder, as Mercurial does without a server."""
    shown, nodes, clean = original(ui, repository, peer, *arguments, **named)
    bridge = getattr(peer, "bridge", None)
    if bridge is not None and not bridge.is_ssh and nodes:
        shown = FACTORY.repository(ui, bridge.folder)
        nodes.sort(key=shown.changelog.rev)
    return shown, nodes, clean


def _move_phases(original: Original, *arguments: Any, **named: Any) -> None:
    """Move no phases while the bridge pushes from a repository: they may lie in a shared store."""
    if not _copying:
        original(*arguments, **named)


def _active_path(original: Original, repository: Any, peer: Any) -> Any:
    """Return the name under which Mercurial remembers a remote; for a folder, its path."""
    bridge = getattr(peer, "bridge", None)
    if bridge is None:
        return original(repository, peer)
    shown = bridge.shown
    bridge.shown = shown.removeprefix(b"file:")
    try:
        return original(repository, peer)
    finally:
        bridge.shown = shown


def _clone(original: Original, *arguments: Any, pull: bool = False, revs: Any = None, **named: Any) -> Any:
    with _looking_inside(not pull and not revs):
        return original(*arguments, pull=pull, revs=revs, **named)


def _load_extensions(original: Original, *arguments: Any, **named: Any) -> None:
    """Skip the extensions that only a folder enables: they are meant for Mercurial's own server."""
    if not _copying:
        original(*arguments, **named)


def _identify(original: Original, *arguments: Any, **named: Any) -> Any:
    with _looking_inside(True):
        return original(*arguments, **named)


@contextmanager
def _looking_inside(looks: bool) -> Iterator[None]:
    """Set whether repositories in folders are opened unbridged."""
    global _in_place
    before, _in_place = _in_place, looks
    try:
        yield
    finally:
        _in_place = before


@contextmanager
def _alone() -> Iterator[None]:
    """Open repositories unbridged."""
    global _copying
    before, _copying = _copying, True
    try:
        yield
    finally:
        _copying = before


def _quiet() -> Any:
    """Return a `ui` without settings that prints nothing."""
    ui = mercurial_ui.ui.load()
    ui.setconfig(b"ui", b"quiet", b"yes", b"bridge")
    return ui
