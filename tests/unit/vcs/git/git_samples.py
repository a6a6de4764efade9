"""Git's objects in memory, as a system sees a stored repository."""

from __future__ import annotations

from collections.abc import Mapping

from charging import Charged

from smartserver.records.model import Key, Record, RefValue, RevisionId, Tip
from smartserver.vcs.git.system import git_key


class StoredObjects(Charged):
    """A `RepositoryView` of objects that were added."""

    def __init__(self) -> None:
        super().__init__()
        self.refs_: dict[bytes, RevisionId] = {}
        self.settings: dict[str, bytes] = {}

    def add(self, meta: bytes, text: bytes) -> Key:
        key = git_key("git-sha1", meta, text)
        self.records[0, key] = Record(0, key, meta, text)
        return key

    def revision_of(self, meta: bytes, text: bytes) -> RevisionId:
        key = self.add(meta, text)
        self.order.append(key)
        return key

    def refs(self) -> Mapping[bytes, RefValue]:
        last = {b"refs/other/last": self.order[-1]} if self.order else {}
        return {name: (Tip(tip),) for name, tip in {**self.refs_, **last}.items()}

    def setting(self, name: str) -> bytes | None:
        return self.settings.get(name)
