"""Git's objects in memory, as a system sees a stored repository."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from charging import Charged

from smartserver.records.content import Text
from smartserver.records.model import Key, Record, RefValue, RevisionId, Tip
from smartserver.vcs.git.system import git_key


class StoredObjects(Charged):
    """A `RepositoryView` of objects that were added; revisions have the ordinals in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[Key, Record] = {}
        self.revisions: list[RevisionId] = []
        self.refs_: dict[bytes, RevisionId] = {}
        self.settings: dict[str, bytes] = {}

    def add(self, meta: bytes, text: bytes) -> Key:
        key = git_key("git-sha1", meta, text)
        self.objects[key] = Record(0, key, meta, text)
        return key

    def revision_of(self, meta: bytes, text: bytes) -> RevisionId:
        key = self.add(meta, text)
        self.revisions.append(key)
        return key

    def refs(self) -> Mapping[bytes, RefValue]:
        last = {b"refs/other/last": self.revisions[-1]} if self.revisions else {}
        return {name: (Tip(tip),) for name, tip in {**self.refs_, **last}.items()}

    def map(self, name: str) -> Mapping[bytes, bytes]:
        return {}

    def changed(self, name: str, known: tuple[bytes, int, int]) -> Collection[bytes] | None:
        return None

    def setting(self, name: str) -> bytes | None:
        return self.settings.get(name)

    def ordinal(self, revision: RevisionId) -> int | None:
        return self.revisions.index(revision) if revision in self.revisions else None

    def revision(self, ordinal: int) -> RevisionId:
        return self.revisions[ordinal]

    def parents(self, ordinal: int) -> Sequence[int]:
        raise AssertionError("the driver asks for that")

    def first_parent(self, ordinal: int) -> int | None:
        raise AssertionError("the driver asks for that")

    def reached(self, wants: Sequence[int], haves: Sequence[int], absent: Sequence[int]) -> Sequence[int]:
        raise AssertionError("the driver asks for that")

    def record(self, kind: int, key: Key) -> Record | None:
        return self.objects.get(key)

    def text(self, kind: int, key: Key) -> Text | None:
        found = self.record(kind, key)
        return None if found is None else Text(found.meta, len(found.text), (found.text,))

    def length(self, kind: int, key: Key) -> int | None:
        found = self.record(kind, key)
        return None if found is None else len(found.text)
