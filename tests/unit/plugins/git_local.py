"""A local repository in memory, as the helper asks it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from smartserver.records.model import Kind, RevisionId
from smartserver.vcs.git.objects import COMMIT, GitObject


def key(number: int, length: int = 20) -> bytes:
    """An id."""
    return bytes([number]) * length


@dataclass
class FakeLocal:
    """Commits are numbered; what is in `refs` and `objects` exists."""

    tips: dict[bytes, bytes] = field(default_factory=dict)
    config: dict[str, list[bytes]] = field(default_factory=dict)
    branch: bytes | None = b"refs/heads/main"
    objects: dict[bytes, int] = field(default_factory=dict)
    """Id -> git's type number, of those that are not commits or no ref's."""
    targets: dict[bytes, bytes] = field(default_factory=dict)
    """Tag -> the object it peels to."""
    ancestors: set[tuple[bytes, bytes]] = field(default_factory=set)
    object_format: str = "sha1"
    is_shallow: bool = False
    is_partial: bool = False
    id_length: int = 20
    kinds: tuple[Kind, ...] = (Kind("object", "git-sha1", True),)

    @property
    def vcs(self) -> str:
        return f"git {self.object_format}"

    def prepare(self, *, objects: bool) -> None:
        """It is ready."""

    def refs(self) -> dict[bytes, RevisionId]:
        return self.tips

    def head(self) -> bytes | None:
        return self.branch

    def settings(self) -> dict[str, list[bytes]]:
        return self.config

    def find(self, name: bytes) -> GitObject | None:
        if name.endswith(b"^{}"):
            target = self.targets.get(bytes.fromhex(name[:-3].decode("ascii")))
            return None if target is None else self._object(target)
        if name in (b"HEAD", b"@"):
            name = self.branch or b""
        for prefix in (b"", b"refs/", b"refs/tags/", b"refs/heads/"):
            if prefix + name in self.tips:
                return self._object(self.tips[prefix + name])
        name, peeled, _ = name.partition(b"^{commit}")
        try:
            found = bytes.fromhex(name.decode("ascii"))
        except ValueError:
            return None
        fits = not peeled or self._object(found).type == COMMIT
        return self._object(found) if found in self._here() and fits else None

    def _object(self, name: bytes) -> GitObject:
        return GitObject(name, self.objects.get(name, COMMIT), b"")

    def _here(self) -> set[bytes]:
        return {*self.tips.values(), *self.objects}

    def existing(self, names: Iterable[bytes]) -> list[tuple[RevisionId, bytes]]:
        return [(found, b"commit") for found in map(bytes.fromhex, map(bytes.decode, names)) if found in self._here()]

    def present(self, keys: Iterable[RevisionId]) -> set[RevisionId]:
        return self._here().intersection(keys)

    def shallow(self) -> set[RevisionId]:
        return set()

    def complete_haves(self, candidates: Iterable[RevisionId], limit: int) -> list[RevisionId]:
        return sorted(self._here())

    def is_ancestor(self, ancestor: RevisionId, revision: RevisionId) -> bool:
        return (ancestor, revision) in self.ancestors

    def close(self) -> None:
        """It has no process."""
