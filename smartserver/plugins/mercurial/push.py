"""A push: changesets, heads of branches and bookmarks in one request; the server decides on each.

Mercurial's own checks run first, on what was seen last of the remote. What they refuse is sent all the same: others may
have changed it since. Where the server refuses, its answer says what is there, and the same checks on that say why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec
from mercurial import discovery, error, exchange, node, phases, scmutil
from mercurial.i18n import _

from smartserver.client.body import EmptyBody
from smartserver.client.push import Changes, PushRequest
from smartserver.client.updates import NewRepository, Outcome, PushOutcome, RefUpdate
from smartserver.errors import (
    KnownRevisions,
    NewHeads,
    NoSuchBranch,
    NoSuchRepository,
    RepositoryExists,
    StaleEntry,
    WrongVcs,
)
from smartserver.plugins.mercurial.evolution import (
    ignored_heads,
    remember_sent,
    replacing_heads,
    report_markers,
    unsent,
)
from smartserver.plugins.mercurial.markers import updates
from smartserver.plugins.mercurial.phase import is_publishing
from smartserver.plugins.mercurial.remote import Level, Remote, in_utf8
from smartserver.plugins.mercurial.words import refusal
from smartserver.records.model import Plan, Tip
from smartserver.vcs.hg.kinds import BOOKMARKS, KINDS, PUBLIC
from smartserver.vcs.hg.plan import plan
from smartserver.vcs.hg.repository import HgRepository
from smartserver.vcs.hg.system import HG
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest, Verdict
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.rules import Create, Growth

NEW = NewRepository(HG, KINDS)

Bookmark = tuple[bytes, bytes, bytes]
"""Name, old and new changeset, empty for none: as `pushoperation.outbookmarks` has them."""


class Source:
    """The local repository as a push reads it."""

    def __init__(self, local: HgRepository) -> None:
        self._local = local

    def plan(self, tips: Iterable[bytes], haves: Iterable[bytes]) -> Plan:
        """What the remote lacks of `tips` when it holds `haves`."""
        return plan(self._local, tips, haves)


def make(remote: Remote) -> None:
    """Make a repository, at once.

    Raises:
        RepoError: there is one.
    """
    kinds = [KindField(kind.name, kind.check, kind.base) for kind in KINDS]
    with remote.words(), _new(remote):
        remote.repository.ask((repository_create, CreateRequest(HG, kinds, exclusive=True)))
    remote.level = Level.REFS
    remote.is_new = False


@contextmanager
def _new(remote: Remote) -> Iterator[None]:
    """Say as Mercurial does that a repository to be made is there, of whatever system."""
    try:
        yield
    except (KnownRevisions, RepositoryExists, WrongVcs) as wrong:
        raise error.RepoError(_(b"repository %s already exists") % remote.url) from wrong


def push_bundle(operation: Any) -> None:
    """Stands for `exchange._pushbundle2`: sends all there is, in one request."""
    remote: Remote = operation.remote.remote
    operation.stepsdone |= {b"changesets", b"phases", b"obsmarkers", b"bookmarks"}
    if not operation.outgoing.missing and not _others(operation) and not remote.level:
        # Nothing to send, as far as was seen: only the server knows.
        is_simple = is_publishing(remote.knowledge.settings)
        remote.ask_whether_there(Level.REFS if is_simple else Level.GRAPH)
        _discover(operation)
    was_guessed = not remote.level
    evolved = remote.evolves
    root, heads = remote.root, remote.heads()
    missing = operation.outgoing.missing
    if missing:
        operation.repo.hook(b"preoutgoing", throw=True, source=b"push")
    done = _send(operation)
    if done is None and remote.is_new:
        make(remote)
    if done is not None and was_guessed and isinstance(done.error(), OF_GUESSES):
        _discover(operation)
        done = _send(operation)
    if done is None:
        return
    wrong = done.error()
    if isinstance(wrong, StaleEntry):
        raise error.Abort(_(b"remote repository changed while pushing - please try again"))
    if wrong is not None:
        with remote.words():
            raise wrong
    missing = missing or operation.outgoing.missing  # More, where the repository was recreated.
    if missing:
        operation.repo.hook(b"outgoing", node=node.hex(missing[0]), source=b"push")
        _report_changesets(operation, done, was_guessed=was_guessed)
    report_markers(operation, done, heads)
    _report(operation, done)
    remember_sent(operation, done, root)
    if remote.evolves and not evolved:
        _push_markers(operation)
    if was_guessed:
        _push_rest(operation)


OF_GUESSES = (NewHeads, NoSuchBranch, StaleEntry)
"""What a push is refused for that was planned on what was seen last. The answer says what is there: it is planned
again, and what Mercurial's checks refuse then is refused."""


def _discover(operation: Any) -> None:
    """Find again what is to be sent, now that the remote is known."""
    operation.outbookmarks, operation.bkresult = [], None
    exchange._pushdiscovery(operation)


def _send(operation: Any) -> PushOutcome | None:
    """Check, and send in one request; None where there is nothing to send."""
    remote: Remote = operation.remote.remote
    has_news = _check(operation)
    if has_news:
        operation.repo.prepushoutgoinghooks(operation)
    _check_none_is_secret(operation)
    maps = _others(operation)
    local = HgRepository(operation.repo)
    moved = _updates(operation, local, has_news=has_news)
    if not moved and not maps:
        return None
    moved = moved or _unchanged(local, maps)
    source = Source(local) if moved else EmptyBody()
    planned_for = remote.root

    def replan() -> Changes:
        """What is to be changed of a remote that is another than it was taken for."""
        nonlocal planned_for
        planned_for = remote.root
        remote.level = max(remote.level, Level.REFS)
        _discover(operation)
        has_news = _check(operation)
        _check_none_is_secret(operation)
        return _updates(operation, local, has_news=has_news) or moved, _others(operation)

    was_publishing = is_publishing(remote.knowledge.settings)
    new = msgspec.structs.replace(NEW, exclusive=remote.is_new)
    request = PushRequest(
        moved, source, new, maps, maps_first=True, atomic=True, replan=replan, is_likely=_is_likely(operation)
    )
    with remote.words(), _new(remote) if remote.is_new else nullcontext(), remote.progress(b"sending") as progress:
        before, remote.repository.sent = (
            remote.repository.sent,
            lambda _, done, total: progress.update(done, total=total),
        )
        try:
            done = remote.repository.push(request)
        finally:
            remote.repository.sent = before
    remote.is_new = False
    remote.level = max(remote.level, Level.REFS)
    if done.error() is None:
        remote.pushed.update(local.heads_of(operation.outgoing.missing))
        remote.pushed.update(tip.id for each in moved for tip in each.heads)
        if planned_for and remote.root and planned_for[0] != remote.root[0]:
            _discover(operation)  # What was sent fits into a repository that was recreated, but may not be all.
            if operation.outgoing.missing:
                return _send(operation) or done
    if is_publishing(remote.knowledge.settings):
        return done
    if was_publishing:
        # It was not known that it does not publish: what is public here is told it afterwards, by Mercurial.
        operation.stepsdone.discard(b"phases")
        exchange.pushdiscoverymapping[b"phase"](operation)
    else:
        operation.fallbackoutdatedphases = []
    return done


def _is_likely(operation: Any) -> bool:
    """Whether the oldest of what would be sent is public and the newest is not. Then it was on a server before, this
    one probably."""
    missing = operation.outgoing.missing
    public = [operation.repo[each].phase() == phases.public for each in (missing[0], missing[-1])] if missing else []
    return public == [True, False]


def _unchanged(local: HgRepository, maps: Sequence[MapUpdateRequest]) -> list[RefUpdate]:
    """Has the server see that what entries are about is there: else the repository was made again."""
    found = []
    for each in maps:
        for entry in each.entries:
            about = bytes.fromhex(entry.key.decode()) if each.map == PUBLIC else entry.value
            if about is not None and local.has(about):
                branch = local.changesets.branchinfo(local.changesets.rev(about))[0]
                found.append(RefUpdate(in_utf8(branch), about, create=Create.NO, heads=(Tip(about),)))
    return found


def _others(operation: Any) -> list[MapUpdateRequest]:
    """What is sent besides changesets and heads: bookmarks, and what becomes public."""
    found = [*updates(unsent(operation)), *_maps(operation.outbookmarks, strict=True)]
    if is_publishing(operation.remote.remote.knowledge.settings):
        return found
    public = dict.fromkeys([each.node() for each in operation.outdatedphases])
    if not operation.outgoing.missing:
        public.update(dict.fromkeys([each.node() for each in operation.fallbackoutdatedphases]))
    return [*found, *publish(list(public))]


def _check_none_is_secret(operation: Any) -> None:
    for name, _old, new in operation.outbookmarks:
        if new and operation.repo[new].phase() == phases.secret:
            raise error.Abort(_(b"cannot push bookmark %s as it points to a secret changeset") % name)


def publish(nodes: Sequence[bytes]) -> list[MapUpdateRequest]:
    """What makes changesets public."""
    entries = [EntryChange(each.hex().encode(), b"1", How.SET) for each in nodes]
    return [MapUpdateRequest(PUBLIC, MapKind.OPAQUE, entries)] if entries else []


def _check(operation: Any) -> bool:
    """Whether there are changesets to be sent, as Mercurial's own checks say.

    What they refuse on what was seen last is sent all the same.
    """
    is_guessed = not operation.remote.remote.level
    operation.ui.pushbuffer(error=True)
    operation.pushbranchmap = None
    try:
        found = bool(exchange._pushcheckoutgoing(operation))
    except error.StateError:
        operation.pushbranchmap = None
        if is_guessed:
            operation.ui.popbuffer()
            return True
        operation.ui.status(operation.ui.popbuffer())
        raise
    except BaseException:
        operation.ui.popbuffer()
        raise
    operation.ui.status(operation.ui.popbuffer())
    return found


def _report_changesets(operation: Any, done: PushOutcome, *, was_guessed: bool) -> None:
    """Say how many changesets came there. One that was not there and changes nothing is hidden there."""
    if done.revisions or not was_guessed or any(each.outcome is not Outcome.UNCHANGED for each in done.refs):
        operation.cgresult = 1
        operation.ui.status(_(b"remote: added %d changesets\n") % done.revisions)
    else:
        scmutil.nochangesfound(operation.ui, operation.repo, operation.outgoing.excluded)


def _updates(operation: Any, local: HgRepository, *, has_news: bool) -> list[RefUpdate]:
    """The heads of each branch that has something new, or where markers make a head obsolete."""
    replaced = replacing_heads(operation, local)
    log = local.changesets
    by_branch: dict[bytes, list[bytes]] = {branch: [] for branch in replaced}
    for revision in operation.outgoing.missing if has_news else ():
        by_branch.setdefault(log.branchinfo(log.rev(revision))[0], []).append(revision)
    free = _bookmarked(operation) if has_news else set()
    there = operation.remote.remote.branches()
    found = []
    for branch, nodes in sorted(by_branch.items()):
        news = local.heads_of(nodes)
        heads = list(dict.fromkeys([*news, *replaced.get(branch, ())]))
        tips = [Tip(head, closed=bool(log.branchinfo(log.rev(head))[1])) for head in heads]
        known = there.get(branch, [])
        new = {head for head in news if head not in known}
        is_free = operation.force or (known and new <= free) or ignored_heads(operation, local, branch)
        growth = Growth.ANY if is_free else Growth.NONE
        create = Create.YES if operation.newbranch or operation.force else Create.NO
        found.append(RefUpdate(in_utf8(branch), heads[0], create=create, heads=tips, growth=growth))
    return found


def _bookmarked(operation: Any) -> set[bytes]:
    """Heads that a bookmark is on, about which Mercurial does not warn."""
    found: set[bytes] = discovery._nowarnheads(operation)
    return found


def _maps(bookmarks: Sequence[Bookmark], *, strict: bool = False) -> list[MapUpdateRequest]:
    entries = [EntryChange(in_utf8(name), new or None, How.EQUAL, old or None) for name, old, new in bookmarks]
    return [MapUpdateRequest(BOOKMARKS, MapKind.OPAQUE, entries, strict=strict)] if entries else []


def _report(operation: Any, done: PushOutcome) -> None:
    """Say what became of the bookmarks."""
    outcomes = [entry for each in done.maps if each.update.map == BOOKMARKS for entry in each.entries]
    for (name, old, new), outcome in zip(operation.outbookmarks, outcomes, strict=False):
        action = b"update" if old and new else b"export" if new else b"delete"
        if outcome.verdict is Verdict.CONFLICT:
            operation.ui.warn(exchange.bookmsgmap[action][1] % name)
            operation.bkresult = 1
        elif outcome.verdict is Verdict.DONE:
            operation.ui.status(exchange.bookmsgmap[action][0] % name)
        elif action == b"delete":  # Another user removed it; one that is where it belongs is not mentioned.
            operation.ui.warn(_(b"bookmark %s does not exist on the local or remote repository!\n") % name)
            operation.bkresult = 2


def _push_markers(operation: Any) -> None:
    """Send markers to a server that is only now known to take them."""
    remote: Remote = operation.remote.remote
    root = remote.root
    exchange.pushdiscoverymapping[b"obsmarker"](operation)
    maps = updates(unsent(operation))
    if maps:
        local = HgRepository(operation.repo)
        moved = _updates(operation, local, has_news=False)
        with remote.words():
            done = remote.repository.push(PushRequest(moved, Source(local), maps=maps, maps_first=True))
            wrong = done.error()
            if wrong is not None:
                raise wrong
        report_markers(operation, done, ())
        remember_sent(operation, done, root)


def _push_rest(operation: Any) -> None:
    """Move the bookmarks of which only the answer said that they are there."""
    remote: Remote = operation.remote.remote
    sent = {name for name, _old, _new in operation.outbookmarks}
    before, operation.outbookmarks = operation.outbookmarks, []
    given, operation.bookmarks = operation.bookmarks, ()
    exchange.pushdiscoverymapping[b"bookmarks"](operation)
    operation.bookmarks = given
    operation.outbookmarks = [each for each in operation.outbookmarks if each[0] not in sent]
    if operation.outbookmarks:
        _check_none_is_secret(operation)
        with remote.words():
            done = remote.repository.push(PushRequest([], maps=_maps(operation.outbookmarks)))
            wrong = done.error()
            if wrong is not None:
                raise wrong
        _report(operation, done)
    operation.outbookmarks = before + operation.outbookmarks


def change_bookmark(remote: Remote, name: bytes, old: bytes, new: bytes) -> bool:
    """Move, make or remove one bookmark; whether it was where it is expected."""
    change = (name, node.bin(old) if old else b"", node.bin(new) if new else b"")
    with remote.words():
        try:
            done = remote.repository.push(PushRequest([], maps=_maps([change])))
        except NoSuchRepository:
            return False
    wrong = done.error()
    if wrong is not None:
        raise refusal(str(wrong))
    return all(entry.verdict is not Verdict.CONFLICT for each in done.maps for entry in each.entries)


def change_phase(remote: Remote, name: bytes) -> bool:
    """Make one changeset public."""
    if not is_publishing(remote.knowledge.settings):
        with remote.words():
            wrong = remote.repository.push(PushRequest([], maps=publish([node.bin(name)]))).error()
            if wrong is not None:
                raise wrong
    return True
