"""`System`: the interface by which a version-control system describes its records; `system_of` finds one by name.

`store`, `verbs` and both ends know no system: they ask it through this interface. Each system registers itself
(`vcs.<system>.system`). `smartserver.vcs.all` imports all systems. It is loaded when an unregistered system is first
looked for, so that a client of one system loads no other.
"""

from __future__ import annotations

import enum
import functools
import importlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from smartserver.errors import Unsupported
from smartserver.records.check import KEYS, KeyCheck, check_bytes
from smartserver.records.model import GraphNode, Key, Kind, Record, RevisionId, Tip

if TYPE_CHECKING:
    from smartserver.records.browse import Contents
    from smartserver.records.content import MapReader, ReadPlan, ReadScope, RepositoryView, TipReader
    from smartserver.records.faults import FaultChecker

ALL: Final = "smartserver.vcs.all"
"""The module that imports every system."""

References = Sequence[tuple[int, bytes | None, Collection[Key]]]
"""The references of a record in groups: the kind of the records, the meta that they must have (None means any), and
their keys."""

NOTHING: Final[References] = ()

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")

Tips = Collection[RevisionId]

Changes = tuple[References, References]
"""The references that only the newer version of a record has, and those that only the older has. A key may be in
both."""


EntryValues = tuple[bytes | None, bytes | None]
"""The old and the new value of an entry of a map. None means that the entry does not exist."""


class MapType(NamedTuple):
    """The type of a map of a system."""

    kind: str
    """The type of the map's values: `ids` or `opaque`."""
    of_refs: bool = False
    """True if each entry belongs to a ref; False if no entry does."""


class EntryRight(enum.Enum):
    """A right that a change of a map's entry may need. The rights have the same meaning as for refs."""

    WRITE = "write"
    CREATE = "create"
    FORCE = "force"
    ADMIN = "administer"


Beyond = Callable[[Sequence[RevisionId], Sequence[RevisionId]], Iterable[GraphNode]]
"""A function that yields the revisions that the first ids reach and the second ids do not. It may also yield some that
the second ids reach."""


class System:
    """One version-control system; a kind is given as an index into `kinds`.

    A subclass must set only the name and the kinds. A server then stores any valid records. It proves as much as the
    subclass allows: the parents of a revision by `own_kind` and `own_parents`, the presence of all references by
    `may_refer` and `references`. `changes` only saves time. `faults` is for the refusal of faulty records;
    `contents` and `read` are for reads of less than whole revisions.
    """

    name: str
    """The name of the system in a repository."""

    kinds: tuple[Kind, ...] = ()

    keys: Mapping[str, KeyCheck] = {}
    """The system's own checks, by the names that its kinds use.

    A check may use only the part of the key that is a name, such as a file's path. All other data that a key depends
    on, such as the parents of a file's version, must be in the meta.
    """

    own_kind: int | None = None
    """The kind of a revision's own record, which has the revision's id as key; None if the system has no own
    records."""

    label: bytes | None = None
    """The meta of an own record that only describes its parent, such as an annotated tag; None if the system has no
    such records."""

    ghosts = True
    """True if parents may be absent."""

    of_revision: frozenset[int] = frozenset()
    """The kinds whose records have as key the id of the revision that introduces them."""

    maps: Mapping[str, MapType] = {}
    """The maps that repositories of the system may have, by name. No other names are allowed."""

    untold: Mapping[str, bytes] = {}
    """The maps that are not sent with the refs, because they are long and few clients need all entries. The value is a
    selector that reads the first entries of the map or, with a key appended, the entries after that key. The answer is
    a msgpack array: a map of entries in key order, and True if no more are left."""

    refs_are_files = False
    """True if clients store refs in files, so that `a` and `a/b` cannot both be refs."""

    graph = b""
    """The selector of revisions and their parents without records; empty if the system has none. A system without it
    has no `part_entries` either."""

    settings_matter = False
    """True if `settings_entries` may return entries: a copy must then know the settings of its target first."""

    hash_bytes = 0
    """The length in bytes of each key if all keys are hashes; else 0."""

    in_hunks = False
    """True if clients push records as hunks, which are then sent uncompressed in a bulk stream."""

    @functools.cached_property
    def content_keys(self) -> frozenset[int]:
        """The kinds whose key covers the whole text, so that the references of a record can be cached by its key."""
        return frozenset([number for number, kind in enumerate(self.kinds) if not check_bytes(kind)])

    def ref_problem(self, name: bytes) -> str:
        """Return the reason why a ref must not have this name; empty if the name is allowed. The caller has checked
        the length, and that the name has no NUL."""
        return "it has a control character" if _CONTROL.search(name) else ""

    def setting_problem(self, name: str, value: bytes) -> str:
        """Return the reason why a setting must not have this value; empty if the value is allowed."""
        del name, value
        return ""

    def settings_entries(
        self, old: Mapping[str, bytes], new: Mapping[str, bytes], tips: Iterable[RevisionId]
    ) -> Mapping[str, Mapping[bytes, bytes]]:
        """Return the entries, by map, that opaque maps need when settings change, so that the history of `tips` keeps
        its meaning."""
        del old, new, tips
        return {}

    def part_entries(
        self,
        settings: Mapping[str, bytes],
        maps: Mapping[str, Mapping[bytes, bytes]],
        tips: Sequence[RevisionId],
        beyond: Beyond,
    ) -> Mapping[str, Mapping[bytes, bytes]]:
        """Return the entries, by map, that a copy of only the history of `tips` needs from `maps` to keep its
        meaning."""
        del settings, maps, tips, beyond
        return {}

    def entry_problem(self, table: str, key: bytes, value: bytes) -> str:
        """Return the reason why an entry of a map must not have this key or value; empty if both are allowed."""
        del table, key, value
        return ""

    def entry_revision(self, table: str, key: bytes, value: bytes) -> RevisionId:
        """Return the revision that an entry of a map names and that must be stored; empty if the entry names none. The
        entry must have passed `entry_problem`."""
        del table, key, value
        return b""

    def named_revisions(self, table: str, entries: Mapping[bytes, bytes]) -> Iterator[RevisionId]:
        """Yield the revisions that entries of a map keep alive, and that must be copied with the map."""
        if table in self.maps and table not in self.untold:
            is_ids = self.maps[table].kind == "ids"
            for key, value in entries.items():
                if is_ids:
                    yield value
                elif not self.entry_problem(table, key, value) and (named := self.entry_revision(table, key, value)):
                    yield named

    def entry_rights(self, stored: MapReader, table: str, changes: Sequence[EntryValues]) -> Sequence[EntryRight]:
        """Return the right that each change of an entry of a map needs."""
        del stored
        replaced = EntryRight.FORCE if self.maps[table].kind == "ids" else EntryRight.WRITE
        return [EntryRight.WRITE if old is None else replaced for old, _ in changes]

    def superseded(self, stored: MapReader, tips: Sequence[RevisionId]) -> tuple[Tips, Tips]:
        """Return the tips of a ref that entries of maps mark as superseded: first the tips that the ref drops, then the
        tips that the ref keeps although they do not count as heads."""
        del stored, tips
        return (), ()

    def tip_meta(self, ref: bytes) -> bytes | None:
        """Return the meta that the own record of a tip of this ref must have; None if it may have any."""
        del ref
        return None

    def tip_fact(self, meta: bytes, text: bytes) -> bytes:
        """Return the part of a revision's own record on which the attributes of tips depend; empty for most records."""
        del meta, text
        return b""

    def prove_tips(self, stored: TipReader, tips: Sequence[RevisionId]) -> Sequence[Tip]:
        """Return tips with their attributes, proved from stored data: a client's values cannot be trusted."""
        del stored
        return [Tip(tip) for tip in tips]

    def id_text(self, revision: RevisionId) -> str:
        """Return the id of a revision in the form that the system's tools print."""
        return revision.hex()

    def type_name(self, meta: bytes) -> str:
        """Return the words that name a record with this meta in a message."""
        return f"a record with the meta {meta.hex()}"

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        """Return the parents that a revision's own record names.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del key, meta, text
        return ()

    def may_refer(self, kind: int, meta: bytes) -> bool:
        """Tell whether a record of this kind and meta can refer to other records, whatever its text."""
        del kind, meta
        return False

    def is_list(self, kind: int, meta: bytes) -> bool:
        """Tell whether a record is mainly a list of references; the size of such records is limited. Of a large record
        that is not a list, only the first bytes are passed to this class (`store.incoming.BEGIN`)."""
        return self.may_refer(kind, meta)

    def is_file(self, kind: int, meta: bytes) -> bool:
        """Tell whether a record is the text of a file in a tree."""
        del kind, meta
        return False

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        """Return the references of a record, in the order in which it has them; a key may occur twice.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del kind, key, meta, text
        return NOTHING

    def changes(self, record: Record, base: Record) -> Changes | None:
        """Return the references that only `record` has, and those that only `base` has. Return None if the caller must
        compare the `references` of both.

        `base`: a record of the same kind that was proved before, so its references can be read.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del record, base
        return None

    @functools.cached_property
    def faults(self) -> FaultChecker:
        """The object that checks records for faults. The default finds none."""
        from smartserver.records.faults import FaultChecker  # Imported here, as a client never judges records.

        return FaultChecker()

    def read(self, stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
        """Plan the answer to `Repository.read`. The selector has a format of the system's own.

        Raises:
            LimitExceeded: the selector asks for too much.
            MissingRevision: a revision in the selector is not stored.
            NoSuchPart: another object in the selector does not exist.
            Unsupported: this release does not know the selector, or the system has none.
        """
        del stored, selector, question
        raise Unsupported(f"reading parts of a repository of {self.name}", "whole revisions of it")

    def contents(self, stored: RepositoryView, question: ReadScope) -> Contents:
        """Return the trees and headers of a repository, for the selectors that every system understands
        (`records.browse`).

        Raises:
            Unsupported: the system has no trees.
        """
        del stored, question
        raise Unsupported(f"reading files of a repository of {self.name}", "whole revisions of it")


SYSTEMS: Final[dict[str, System]] = {}
"""The systems that were registered so far, by name."""


def register(*systems: System) -> None:
    """Register systems and their checks.

    Raises:
        ValueError: the name of a system or check is taken.
    """
    for system in systems:
        if system.name in SYSTEMS:
            raise ValueError(f"the system {system.name!r} is registered already: give this one another name")
        for check in system.keys:
            if check in KEYS:
                raise ValueError(f"the check {check!r} is registered already: {system.name!r} must name its own")
        SYSTEMS[system.name] = system
        KEYS.update(system.keys)


def system_of(vcs: str) -> System:
    """Return the system with a name.

    Raises:
        Unsupported: this release has no such system.
    """
    found = SYSTEMS.get(vcs) or every_system().get(vcs)
    if found is None:
        raise Unsupported(f"the version-control system {vcs!r}", ", ".join(sorted(SYSTEMS)))
    return found


def every_system() -> Mapping[str, System]:
    """Load all systems and return them by name."""
    importlib.import_module(ALL)
    return SYSTEMS
