"""A Mercurial repository on this machine: what it is, and which of its changesets are there.

What lies below a changeset that is here is here too: that is Mercurial's own rule.
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
"""Distance of the farthest ancestor offered below a head."""

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
"""Requirements of repositories that cannot be sent, and their names for users."""


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
        """The store of changesets. Mercurial reads it again when it takes a lock that another process has held."""
        return changesets(self.mercurial)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Changesets, manifests, files."""
        return HgSystem.kinds

    def manifests(self) -> Revlog:
        """The store of manifests."""
        return manifests(self.mercurial)

    def file(self, path: bytes) -> Revlog:
        """The store of a file's versions."""
        return file_versions(self.mercurial, path)

    def check_format(self) -> None:
        """Check that it can be sent.

        Raises:
            WrongFormat: it cannot.
        """
        for requirement, what in REFUSED.items():
            if requirement in self.mercurial.requirements:
                raise WrongFormat(what)

    def has(self, revision: RevisionId) -> bool:
        """True if a changeset is here."""
        return revision != NULL and len(revision) == len(NULL) and bool(self.changesets.hasnode(revision))

    def parents(self, revision: RevisionId) -> tuple[RevisionId, ...]:
        """The parents of a changeset that is here."""
        return tuple([parent for parent in self.changesets.parents(revision) if parent != NULL])

    def missing(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> list[Node]:
        """The ancestors of `tips` that are not ancestors of `haves`, parents first.

        Those of `haves` that are not here are ignored.
        """
        common = [have for have in haves if self.has(have)]
        found: list[Node] = self.changesets.findmissing(common, list(tips))
        return found

    def complete_haves(self, candidates: Iterable[RevisionId], limit: int) -> list[RevisionId]:
        """Changesets that are here, most telling first, at most `limit`.

        `candidates`: tips of the remote as last seen. After those of them that are here come the heads; where no
        candidate is here, some ancestors of the heads, in case they are ahead of the remote.
        """
        known = [revision for revision in candidates if self.has(revision)]
        heads = [head for head in self.mercurial.heads() if head != NULL]
        haves = dict.fromkeys([*known, *heads])
        if not known and len(haves) < limit:
            haves.update(dict.fromkeys(self._ancestors(heads[:_ANCESTOR_HEADS])))
        return list(haves)[:limit]

    def _ancestors(self, heads: Sequence[Node]) -> list[Node]:
        """First-parent ancestors of `heads` at 1, 2, 4, 8 ..., the nearest of all heads first."""
        found: list[tuple[int, Node]] = []
        for head in heads:
            found += _steps(self.changesets.parents, head)
        return [node for _, node in sorted(found, key=lambda row: row[0])]

    def heads_of(self, nodes: Sequence[Node]) -> list[Node]:
        """The heads among some local changesets."""
        log = self.changesets
        return [log.node(rev) for rev in log.headrevs([log.rev(node) for node in nodes])] if nodes else []

    def is_below(self, node: Node, heads: Sequence[Node]) -> bool:
        """True if a changeset is one of `heads` or an ancestor of one."""
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
