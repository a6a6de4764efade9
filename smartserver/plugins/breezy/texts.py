"""`Texts`: what Breezy asks of any store of a repository, answered from the whole texts a store gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from smartserver.vcs.brz_compat import StoreKey, VersionedFiles


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

    def get_annotator(self) -> Any:
        """What says where lines are from."""
        from breezy.annotate import Annotator

        return Annotator(self)

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
