"""Creates a branch from another branch of the same repository on the server. Only a ref and its tags are sent, no
records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from breezy import errors

from smartserver.client.updates import RefUpdate
from smartserver.errors import BranchExists, MissingRevision, StaleEntry, StaleLease
from smartserver.plugins.breezy.change import made, options_become, tags_updates
from smartserver.plugins.breezy.place import tags_of
from smartserver.plugins.breezy.remote import Remote
from smartserver.records.model import HERE, RevisionId, Tip
from smartserver.verbs.map_update import EntryChange, How, MapUpdateRequest
from smartserver.verbs.rules import Create, Rule


def copy(source: Remote, target: Remote, revision: RevisionId | None, revno: int | None, options: bytes = b"") -> bool:
    """Create `target` as a copy of `source`, at `revision` or else at its tip. This takes one request if the source has
    not changed since it was last seen, else two. Return False if a push is needed instead.

    `revno`: the number of `revision`. `options`: those of `target`.

    Raises:
        AlreadyBranchError: the target exists.
    """
    if source.name() == HERE:
        source.confirm()  # A request to the new branch cannot name the source, so no condition can be on its tip.
    state = source.state()
    is_below = not state.at or target.path.startswith(f"{state.at}/")
    if not is_below or not source.is_beside(target):
        return False
    if revision not in (None, state.tip):  # The repository has the revision, whatever the source's tip is now.
        maps = [*_added(state.tags), *options_become(options)]
        return revno is not None and _is_made(target, made(revision, b"%d" % revno), maps)
    assert state.tip is not None, "there is a branch"
    ref, tip = source.name(), Tip(state.tip, state.attributes)
    if _send(target, ref, tip, state.tags, options):
        return True
    # The source's tip or a tag has changed, or the new branch would be in another repository.
    value = target.knowledge.ref(ref)
    if value is None or target.knowledge.at not in (None, state.at):
        return False
    tags = tags_of(target.knowledge, ref)
    source.told_by(target)
    return _send(target, ref, value[0], tags, options)


def _send(target: Remote, ref: bytes, tip: Tip, tags: Mapping[str, RevisionId], options: bytes) -> bool:
    """Create the branch if the source still has that tip and these tags. Return False if it does not."""
    stays, same = [], []
    if ref != HERE:
        stays = [RefUpdate(ref, tip.id, Rule.LEASE, Create.NO, tip.id, tip.attributes)]
        # No tag has an empty value, so this is refused unless the tag is the same already.
        same = [EntryChange(name.encode(), tag, How.EQUAL, b"") for name, tag in tags.items()]
    conditions = tags_updates(same, ref, strict=True)
    updates = [*stays, *made(tip.id, tip.attributes)]
    if not _is_made(target, updates, [*conditions, *_added(tags), *options_become(options)]):
        return False
    # No condition says that there are no other tags; the answer has them.
    new = {name: tag for name, tag in tags_of(target.knowledge, ref).items() if ref != HERE and name not in tags}
    if new:
        with target.words():
            target.change([], _added(new))
    return True


def _is_made(target: Remote, updates: Sequence[RefUpdate], maps: Sequence[MapUpdateRequest]) -> bool:
    """Send the request that creates the branch. Return False if its source is missing or has changed."""
    with target.words():
        try:
            target.change(updates, maps)
        except (MissingRevision, StaleLease, StaleEntry):
            return False
        except BranchExists:
            raise errors.AlreadyBranchError(target.url) from None
    return True


def _added(tags: Mapping[str, RevisionId]) -> list[MapUpdateRequest]:
    return tags_updates([EntryChange(name.encode(), tag, How.ADD) for name, tag in tags.items()])
