"""Reads a Mercurial repository on this machine: its format, and which changesets it has.

If a changeset exists here, so do its ancestors; Mercurial guarantees this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from smartserver.records.model import Kind, RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.hg.compat import Repository, Revlog, changesets, file_versions, manifests
from smartserver.vcs.hg.kinds import NULL, Node
from smartserver.vcs.hg.system import HgSystem

_FAR: Final = 4096
"""The distance of the farthest ancestor that is offered below a head."""

_ANCESTOR_HEADS: Final = 8

REFUSED: Final = {
    b"treemanifest": "a manifest for each folder (treemanifest)",
    b"narrowhg-experimental": "a part of its files (narrow)",
    b"exp-copies-sidedata-changeset": "copies beside its changesets (copies-sdc)",
    b"exp-changelog-v2": "changelogv2",
    b"exp-revlogv2.2": "revlogv2",
    b"delta-info-revlog": "parents of files in another order (delta-info-revlog)",
    b"lfs": "files elsewhere (lfs)",
    b"largefiles": "files elsewhere (largefiles)",
    b"remotefilelog": "a part of its files' history (remotefilelog)",
}
"""Requirements with which a repository cannot be sent, each with a description for the user."""


class WrongFormat(VcsError):
    """The repository has a format that cannot be sent."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"the repository has {self.what}, which cannot be sent over hpss"


class HgRepository:
    """A repository that Mercurial has opened."""

    vcs = HgSystem.name

    def __init__(self, repository: Repository) -> None:
        self.mercurial = repository

    @property
    def changesets(self) -> Any:
        """The changelog. Mercurial replaces the object after it acquires a lock that another process has held."""
        return changesets(self.mercurial)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of changesets, manifests and files."""
        return HgSystem.kinds

    def manifests(self) -> Revlog:
        """Return the revlog of manifests."""
        return manifests(self.mercurial)

    def file(self, path: bytes) -> Revlog:
        """Return the revlog of a file's versions."""
        return file_versions(self.mercurial, path)

    def check_format(self) -> None:
        """Check that the repository can be sent.

        Raises:
            WrongFormat: the repository cannot be sent.
        """
        for requirement, what in REFUSED.items():
            if requirement in self.mercurial.requirements:
                raise WrongFormat(what)

    def has(self, revision: RevisionId) -> bool:
        """Tell whether the repository has a changeset."""
        return revision != NULL and len(revision) == len(NULL) and bool(self.changesets.hasnode(revision))

    def parents(self, revision: RevisionId) -> tuple[RevisionId, ...]:
        """Return the parents of a changeset, which the repository must have."""
        return tuple([parent for parent in self.changesets.parents(revision) if parent != NULL])

    def missing(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> list[Node]:
        """Return the ancestors of `tips` that are not ancestors of `haves`, parents first.

        Haves that the repository lacks are ignored.
        """
        common = [have for have in haves if self.has(have)]
        found: list[Node] = self.changesets.findmissing(common, list(tips))
        return found

    def complete_haves(self, candidates: Iterable[RevisionId], limit: int) -> list[RevisionId]:
        """Return at most `limit` changesets that the repository has, the most useful first.

        `candidates`: the last known tips of the remote. Candidates that the repository has come first, then its heads.
        If it has no candidate, some ancestors of the heads follow, in case the heads are ahead of the remote.
        """
        known = [revision for revision in candidates if self.has(revision)]
        heads = [head for head in self.mercurial.heads() if head != NULL]
        haves = dict.fromkeys([*known, *heads])
        if not known and len(haves) < limit:
            haves.update(dict.fromkeys(self._ancestors(heads[:_ANCESTOR_HEADS])))
        return list(haves)[:limit]

    def _ancestors(self, heads: Sequence[Node]) -> list[Node]:
        """Return the first-parent ancestors at the distances 1, 2, 4, 8 ... from each of `heads`, the nearest first."""
        found: list[tuple[int, Node]] = []
        for head in heads:
            found += _steps(self.changesets.parents, head)
        return [node for _, node in sorted(found, key=lambda row: row[0])]

    def heads_of(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the heads among some local changesets."""
        log = self.changesets
        return [log.node(rev) for rev in log.headrevs([log.rev(node) for node in nodes])] if nodes else []

    def is_below(self, node: Node, heads: Sequence[Node]) -> bool:
        """Tell whether a changeset is in `heads` or an ancestor of a changeset in it."""
        log = self.changesets
        return log.rev(node) in log.ancestors([log.rev(head) for head in heads], inclusive=True)


def _steps(parents: Callable[[Node], Sequence[Node]], head: Node) -> Iterator[tuple[int, Node]]:
    node = head
    for distance in range(1, _FAR + 1):
        node = parents(node)[0]
        if node == NULL:
            return
        if distance & (distance - 1) == 0:
            yield distance, node
