"""A repository of Breezy's over a `Content`: one of format 2a whose stores are these records in memory, so that all
Breezy does with trees, texts and revisions it does here as anywhere.

What is missing is asked for when Breezy asks for it: trees by themselves, the graph, and at last everything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Self

from breezy import trace
from breezy.revision import NULL_REVISION, is_reserved_id
from breezy.transport.memory import MemoryTransport

from smartserver.errors import MissingRevision
from smartserver.plugins.breezy.content import Content
from smartserver.records.model import Record
from smartserver.vcs.base import WrongContent
from smartserver.vcs.bzr.compat import (
    AbsentContentFactory,
    ChunkedContentFactory,
    ExistingContent,
    FulltextContentFactory,
    StoreKey,
    VersionedFiles,
    format_2a,
    topo_sort,
)
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.meta import inventory_parents, text_meta, text_parents
from smartserver.vcs.bzr.repository import STORES


class Texts(VersionedFiles):  # type: ignore[misc]  # Breezy is not typed.
    """A store of which every text can be read, and that rests on no other; others may rest on it."""

    _immediate_fallback_vfs: tuple[VersionedFiles, ...] = ()

    @property
    def _index(self) -> Self:
        return self  # A store that rests on this one asks its index for the ancestry.

    def find_ancestry(self, keys: Iterable[StoreKey]) -> tuple[dict[StoreKey, tuple[StoreKey, ...]], set[StoreKey]]:
        """The parents of `keys` and of all their ancestors, and those of them that are not there."""
        found: dict[StoreKey, tuple[StoreKey, ...]] = {}
        missing: set[StoreKey] = set()
        left = set(keys)
        while left:
            here = self.get_parent_map(left)
            missing |= left - here.keys()
            found.update(here)
            left = {parent for parents in here.values() for parent in parents or ()} - found.keys() - missing
        return found, missing

    def iter_lines_added_or_present_in_keys(
        self, keys: Iterable[StoreKey], pb: object = None
    ) -> Iterator[tuple[bytes, StoreKey]]:
        """Every line of `keys`."""
        for each in self.get_record_stream(keys, "unordered", True):
            if each.storage_kind != "absent":
                for line in each.get_bytes_as("lines"):
                    yield line, each.key

    def annotate(self, key: StoreKey) -> Any:
        """Where the lines of a text are from."""
        return self.get_annotator().annotate_flat(key)

    def without_fallbacks(self) -> Self:
        """It has none."""
        return self

    def get_missing_compression_parent_keys(self) -> frozenset[StoreKey]:
        """Every text is whole."""
        return frozenset()


def give_stores(repository: Any, stores: Mapping[str, Texts]) -> Any:
    """Replace the stores of a repository of Breezy's, by name; what is found by a search key is found by the same."""
    from breezy.bzr.vf_repository import VersionedFileCommitBuilder

    # That of packs asks which of a file's versions descend from others of the index of texts, where nothing is.
    repository._commit_builder_class = VersionedFileCommitBuilder
    for name, store in stores.items():
        store._search_key_func = getattr(getattr(repository, name), "_search_key_func", None)
        setattr(repository, name, store)
    return repository


Words = Callable[[], Any]
"""What is put around whatever asks the server."""


class Store(Texts):
    """Records of one kind, to Breezy one of a repository's stores."""

    def __init__(
        self, kind: int, name: str, content: Content, words: Words, whole: Callable[[], Any], *, asks: bool = True
    ) -> None:
        """`whole`: a repository that has everything; asking for it costs a round trip and the whole history.

        `asks`: whether what is missing is asked for.
        """
        self._asks = asks
        self._access = _Access()
        self._kind = kind
        self._name = name
        self._content = content
        self._words = words
        self._whole = whole

    def __repr__(self) -> str:
        return f"the {self._name} that the server sent"  # Breezy says it of what it misses.

    def _find(self, keys: Collection[StoreKey]) -> dict[StoreKey, tuple[tuple[StoreKey, ...] | None, bytes]]:
        """Parents and text of those of `keys` that are there."""
        keys = [key for key in keys if None not in key]  # A file that is not in a tree has no id to `brz log`.
        missing = self._missing(keys)
        if self._kind == TEXT:
            missing = [key for key in missing if key[0] not in self._content.complete]
        if missing and self._asks and self._kind != SIGNATURE:
            self._fetch(missing)
        return {key: found for key in keys if (found := self._here(key)) is not None}

    def _missing(self, keys: Collection[StoreKey]) -> list[StoreKey]:
        return [key for key in keys if (self._kind, b"\0".join(key)) not in self._content.records]

    def _here(self, key: StoreKey) -> tuple[tuple[StoreKey, ...] | None, bytes] | None:
        record = self._content.records.get((self._kind, b"\0".join(key)))
        if record is None:
            return None
        if self._kind == TEXT:
            return text_parents(key[0], record.meta), record.text
        if self._kind == REVISION:
            return tuple([(each,) for each in self._content.parents[key[0]]]), record.text
        if self._kind == INVENTORY:
            return inventory_parents(record.meta, self._content.parents[key[0]]), record.text
        return None, record.text

    def _fetch(self, missing: Collection[StoreKey]) -> None:
        if self._kind == CHK:
            self._content.rebuild()
            missing = self._missing(missing)
            if not missing:
                return
        if self._kind in (REVISION, INVENTORY):
            # What is not committed yet has a name of Breezy's own, which is no revision's.
            missing = [key for key in missing if not (is_reserved_id(key[0]) or self._content.is_absent(key[0]))]
            if not missing:
                return
        trace.mutter("hpss: %d %s are read besides, %r", len(missing), self._name, next(iter(missing)))
        # All texts of a file would take a request each.
        if (self._kind != TEXT or not self._content.reads_versions) and self._content.lets_ask():
            with self._words():
                try:
                    self._fetch_alone(missing)
                except MissingRevision:
                    return  # A ghost, which Breezy has words for.
            missing = self._missing(missing)
            if not missing or self._kind in (INVENTORY, REVISION):
                return
        whole = self._whole()
        with self._words(), whole.lock_read():
            store = getattr(whole, self._name)
            if self._kind == TEXT:  # `brz log FILE` asks in which of all revisions the file has a text.
                missing = store.get_parent_map(missing)
            if self._kind in (REVISION, INVENTORY):
                for revision, parents in whole.get_parent_map([revision for (revision,) in missing]).items():
                    named = tuple([each for each in parents if each != NULL_REVISION])  # As the server sends them.
                    self._content.parents.setdefault(revision, named)
            for each in store.get_record_stream(missing, "unordered", True):
                if each.storage_kind == "absent":
                    continue
                key = b"\0".join(each.key)
                try:
                    meta = text_meta(each.key[0], each.parents) if self._kind == TEXT else b""
                except ValueError as wrong:
                    raise WrongContent(key, str(wrong)) from wrong
                text = each.get_bytes_as("fulltext")
                self._content.records[self._kind, key] = Record(self._kind, key, meta, text)

    def _fetch_alone(self, missing: Collection[StoreKey]) -> None:
        if self._kind == INVENTORY:
            self._content.fetch_trees([revision for (revision,) in missing])
        elif self._kind == REVISION:
            self._content.fetch_revisions([revision for (revision,) in missing])
        elif self._kind == CHK:
            self._content.fetch_pages()
        else:
            self._content.fetch_texts([b"\0".join(key) for key in missing])

    # -- what Breezy asks of a store

    def keys(self) -> set[StoreKey]:
        """Those that came; of revisions all there are."""
        if self._kind == REVISION:
            with self._words():
                return {(revision,) for revision in self._content.everything()}
        split = 1 if self._kind == TEXT else 0
        return {tuple(key.split(b"\0", split)) for kind, key in self._content.records if kind == self._kind}

    def get_parent_map(self, keys: Iterable[StoreKey]) -> dict[StoreKey, tuple[StoreKey, ...] | None]:
        """The parents of those of `keys` that are there."""
        wanted = set(keys)
        if self._kind in (REVISION, INVENTORY):
            with self._words():
                parents = self._content.parents_of([revision for (revision,) in wanted])
            return {(revision,): tuple([(each,) for each in named]) for revision, named in parents.items()}
        return {key: parents for key, (parents, _) in self._find(wanted).items()}

    def get_record_stream(self, keys: Iterable[StoreKey], ordering: str, include_delta_closure: bool) -> Iterator[Any]:
        """The texts of `keys`."""
        wanted = list(dict.fromkeys(keys))
        found = self._find(wanted)
        if ordering == "topological":
            parents_of = {key: parents or () for key, (parents, _) in found.items()}
            wanted = [*topo_sort(parents_of), *[key for key in wanted if key not in found]]
        for key in wanted:
            if key in found:
                parents, text = found[key]
                yield FulltextContentFactory(key, parents, None, text)
            else:
                yield AbsentContentFactory(key)

    def get_sha1s(self, keys: Iterable[StoreKey]) -> dict[StoreKey, bytes]:
        """The SHA-1 of each of those of `keys` that are there."""
        from breezy.osutils import sha_string

        return {key: sha_string(text) for key, (_, text) in self._find(list(keys)).items()}

    def add_content(
        self, factory: Any, *arguments: object, nostore_sha: bytes | None = None, **options: object
    ) -> tuple[bytes, int, None]:
        """Take in a text that is made here; its SHA-1 and length.

        Raises:
            ExistingContent: it is the one that need not be kept.
        """
        from breezy.osutils import sha_string

        text: bytes = factory.get_bytes_as("fulltext")
        sha1: bytes = sha_string(text)
        if sha1 == nostore_sha:
            raise ExistingContent
        key = (b"sha1:" + sha1,) if self._kind == CHK else factory.key
        self._content.add(self._kind, key, factory.parents or (), text)
        return sha1, len(text), None

    def add_lines(
        self,
        key: StoreKey,
        parents: Iterable[StoreKey] | None,
        lines: list[bytes],
        *arguments: object,
        nostore_sha: bytes | None = None,
        **options: object,
    ) -> tuple[bytes, int, None]:
        """As `add_content`."""
        return self.add_content(ChunkedContentFactory(key, parents, None, lines), nostore_sha=nostore_sha)


class _Access:
    """What Breezy tells that what it wrote is to be seen."""

    def flush(self) -> None:
        """It is."""


def made_at(transport: Any) -> Any:
    """A new repository of format 2a."""
    return format_2a().initialize_on_transport(transport).create_repository()


def in_memory(*below: Any) -> Any:
    """A new repository in memory that has what others have."""
    made = made_at(MemoryTransport())
    for each in below:
        made.add_fallback_repository(each)
    return made


def repository_over(content: Content, words: Words, whole: Callable[[], Any], *, asks: bool = True) -> Any:
    """A new repository of Breezy's that has what is in `content`; `asks`: and asks for what is not."""
    whole = functools.cache(whole)
    stores = {name: Store(kind, name, content, words, whole, asks=asks) for kind, name in STORES.items()}
    return give_stores(in_memory(), stores)
