"""`HpssTags`: the tags of a branch on a server. A change is one request, decided on what is remembered if it may be."""

from __future__ import annotations

from breezy import errors
from breezy.branch import Branch
from breezy.tag import Tags

from smartserver.plugins.breezy import changes
from smartserver.plugins.breezy.commands import running
from smartserver.plugins.breezy.given import REVISIONS, given
from smartserver.plugins.breezy.remote import Remote
from smartserver.records.model import RevisionId


class HpssTags(Tags):  # type: ignore[misc]  # Breezy is not typed.
    """The tags of a branch on a server; each change is a request."""

    def __init__(self, branch: Branch, remote: Remote) -> None:
        super().__init__(branch)
        self._remote = remote

    def get_tag_dict(self) -> dict[str, RevisionId]:
        """Tag to revision, in the order of the names: `brz tags --sort=time` keeps it among tags of one time."""
        return dict(sorted(self._remote.state().tags.items()))

    def lookup_tag(self, tag_name: str) -> RevisionId:
        """The revision of one tag.

        `brz tag` compares it with the tip it was told before: where that was remembered, and is another, each of the
        two stands for the other.
        """
        remote = self._remote
        tip = remote.state().tip
        there = remote.state().tags.get(tag_name)
        if there is not None and (there == tip or not given("force")):
            remote.confirm()
        try:
            found = self.get_tag_dict()[tag_name]
        except KeyError:
            raise errors.NoSuchTag(tag_name) from None
        if any(given(name) for name in REVISIONS):
            self.branch.repository.named(found)
        was, now = remote.assumed, remote.state().tip
        if was is None or was.tip is None or now is None or not running().tags_tip:
            return found
        return {was.tip: now, now: was.tip}.get(found, found)

    def set_tag(self, tag_name: str, revision: RevisionId) -> None:
        """Set a tag, be it there or not; a tag of what was remembered as the tip becomes one of what is the tip."""
        if why := changes.objection(tag_name):
            raise errors.BzrError(why)
        remote = self._remote
        if remote.is_assumed:
            try:
                changes.set_remembered_tags(remote, {tag_name: revision})
            except changes.NotAsRemembered:
                there = remote.state().tags.get(tag_name)
                if there not in (None, self._now(revision)) and not given("force"):
                    raise errors.TagAlreadyExists(tag_name) from None
            else:
                return
        changes.set_tags(remote, {tag_name: self._now(revision)})

    def _now(self, revision: RevisionId) -> RevisionId:
        remote = self._remote
        assumed = remote.assumed
        return remote.state().tip or revision if assumed is not None and revision == assumed.tip else revision

    def delete_tag(self, tag_name: str) -> None:
        """Remove a tag."""
        remote = self._remote
        if remote.is_assumed and tag_name in remote.state().tags:
            try:
                if changes.set_remembered_tags(remote, {tag_name: None}):
                    raise errors.NoSuchTag(tag_name)
            except changes.NotAsRemembered:
                pass
            else:
                return
        remote.confirm()
        self.lookup_tag(tag_name)
        changes.set_tags(remote, {tag_name: None})

    def rename_revisions(self, rename_map: dict[RevisionId, RevisionId]) -> None:
        """Let tags of renamed revisions follow them."""
        tags = self.get_tag_dict()
        renamed = {name: rename_map[tag] for name, tag in tags.items() if tag in rename_map}
        changes.set_tags(self._remote, renamed)

    def _set_tag_dict(self, result: dict[str, RevisionId]) -> None:
        """Make the tags be these."""
        present = self.get_tag_dict()
        entries: dict[str, RevisionId | None] = {
            name: revision
            for name, revision in result.items()
            if present.get(name) != revision and not changes.objection(name)  # The push has said so.
        }
        entries.update(dict.fromkeys(present.keys() - result.keys()))
        if entries:
            changes.set_tags(self._remote, entries)
