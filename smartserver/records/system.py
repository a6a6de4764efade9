"""`System`: what one version-control system says of its records; `system_of` finds it by its name.

`store`, `verbs` and both ends know no system: what they must know of one, they ask here. Each system registers itself
(`vcs.<system>.system`). `smartserver.vcs.all` imports them; it is loaded by its name when a system is first looked for
that nobody has registered, so that a client of one system loads no other.
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
"""The references of a record, in groups: the kind, the meta those records must have (None: any), and the keys."""

NOTHING: Final[References] = ()

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")

Tips = Collection[RevisionId]

Changes = tuple[References, References]
"""The references that only the newer and only the older of two versions of a record has; a key may be in both."""


EntryValues = tuple[bytes | None, bytes | None]
"""The value of an entry of a map, and the one that it is to have; None: there is none."""


class MapType(NamedTuple):
    """The type of one of a system's maps."""

    kind: str
    """The type of its values: `ids` or `opaque`."""
    of_refs: bool = False
    """True if each entry belongs to a ref; else none does."""


class EntryRight(enum.Enum):
    """The right that a change of an entry needs, with the meaning that it has for refs."""

    WRITE = "write"
    CREATE = "create"
    FORCE = "force"
    ADMIN = "administer"


Beyond = Callable[[Sequence[RevisionId], Sequence[RevisionId]], Iterable[GraphNode]]
"""Gives what the first revisions reach and the second ones do not; it may be given more than that."""


class System:
    """One version-control system; kinds are indexes into its `kinds`.

    Everything but the name and the kinds may be left as it is here: such a system says nothing of its records. A server
    then stores whatever a client says. It proves as much as a system tells it: the parents of a revision by `own_kind`
    and `own_parents`, that nothing is missing by `may_refer` and `references`. `changes` only saves time. `faults` and
    `read` are further services: what a push is refused for, and reads of less than whole revisions.
    """

    name: str
    """The name of the system in a repository, by which clients ask for it."""

    kinds: tuple[Kind, ...] = ()

    keys: Mapping[str, KeyCheck] = {}
    """Checks of its own that a kind may name.

    Of the key one may take a part that is a name, as a file's path, and no more. What else a key depends on, as the
    parents of a file's version, belongs into the meta.
    """

    own_kind: int | None = None
    """The kind whose record is a revision's own, the one with the revision's id as key; None where there is none."""

    label: bytes | None = None
    """The meta of an own record that only says something of its parent, as an annotated tag does of a commit."""

    ghosts = True
    """True if parents may be absent."""

    of_revision: frozenset[int] = frozenset()
    """Kinds whose records have the id of the revision that introduces them as key."""

    maps: Mapping[str, MapType] = {}
    """Its maps, by name. A repository of it has no others."""

    untold: Mapping[str, bytes] = {}
    """Maps that are not told with the refs, because they are long and few clients need all of one. With the selector
    that, followed by a key, gives the entries after it, or the first of them: a msgpack array of a map, in the order of
    the keys, and whether it has all that are left."""

    refs_are_files = False
    """True if clients keep refs in files, so that `a` and `a/b` cannot both be refs."""

    graph = b""
    """The selector of revisions and their parents without records; empty where there is none, nor `part_entries`."""

    settings_matter = False
    """True if `settings_entries` gives any: a copy has to know the settings of its target before."""

    hash_bytes = 0
    """Bytes of each key, where all keys are hashes. 0 elsewhere."""

    in_hunks = False
    """True if clients push records as hunks: then a bulk stream has them uncompressed."""

    @functools.cached_property
    def content_keys(self) -> frozenset[int]:
        """Kinds with a key that is proof of the text: what a record refers to can be remembered by it."""
        return frozenset([number for number, kind in enumerate(self.kinds) if not check_bytes(kind)])

    def ref_problem(self, name: bytes) -> str:
        """Why a ref cannot have this name; empty where it can. NUL and the length were checked before."""
        return "it has a control character" if _CONTROL.search(name) else ""

    def setting_problem(self, name: str, value: bytes) -> str:
        """Why a setting cannot have this value; empty where it can."""
        del name, value
        return ""

    def settings_entries(
        self, old: Mapping[str, bytes], new: Mapping[str, bytes], tips: Iterable[RevisionId]
    ) -> Mapping[str, Mapping[bytes, bytes]]:
        """Entries that opaque maps need when settings change, so that history of `tips` keeps its meaning; by map."""
        del old, new, tips
        return {}

    def part_entries(
        self,
        settings: Mapping[str, bytes],
        maps: Mapping[str, Mapping[bytes, bytes]],
        tips: Sequence[RevisionId],
        beyond: Beyond,
    ) -> Mapping[str, Mapping[bytes, bytes]]:
        """Entries of `maps` that the history of `tips` alone needs to keep its meaning; by map."""
        del settings, maps, tips, beyond
        return {}

    def entry_problem(self, table: str, key: bytes, value: bytes) -> str:
        """Why an entry of a map cannot have this key or value; empty where it can."""
        del table, key, value
        return ""

    def entry_revision(self, table: str, key: bytes, value: bytes) -> RevisionId:
        """The revision that an entry of a map is about and that must be stored; empty where there is none. The entry
        has no `entry_problem`."""
        del table, key, value
        return b""

    def named_revisions(self, table: str, entries: Mapping[bytes, bytes]) -> Iterator[RevisionId]:
        """The revisions that entries of a map keep alive, and that a copy of it takes with them."""
        if table in self.maps and table not in self.untold:
            is_ids = self.maps[table].kind == "ids"
            for key, value in entries.items():
                if is_ids:
                    yield value
                elif not self.entry_problem(table, key, value) and (named := self.entry_revision(table, key, value)):
                    yield named

    def entry_rights(self, stored: MapReader, table: str, changes: Sequence[EntryValues]) -> Sequence[EntryRight]:
        """The right that each change of an entry of a map needs."""
        del stored
        replaced = EntryRight.FORCE if self.maps[table].kind == "ids" else EntryRight.WRITE
        return [EntryRight.WRITE if old is None else replaced for old, _ in changes]

    def superseded(self, stored: MapReader, tips: Sequence[RevisionId]) -> tuple[Tips, Tips]:
        """The tips of a ref that others replace, as entries of maps say: those that the ref no longer has, and those
        that it keeps although they do not count as heads."""
        del stored, tips
        return (), ()

    def tip_meta(self, ref: bytes) -> bytes | None:
        """The meta that the own record of this ref's tip must have; None: any."""
        del ref
        return None

    def tip_fact(self, meta: bytes, text: bytes) -> bytes:
        """The part of a revision's own record that the attributes of a tip there depend on; empty for most."""
        del meta, text
        return b""

    def prove_tips(self, stored: TipReader, tips: Sequence[RevisionId]) -> Sequence[Tip]:
        """These tips with the attributes that they have: what a client claims of them is no proof."""
        del stored
        return [Tip(tip) for tip in tips]

    def id_text(self, revision: RevisionId) -> str:
        """The id of a revision as its tools write it."""
        return revision.hex()

    def type_name(self, meta: bytes) -> str:
        """The name of a record with this meta in a message."""
        return f"a record with the meta {meta.hex()}"

    def own_parents(self, key: Key, meta: bytes, text: bytes) -> tuple[RevisionId, ...]:
        """The parents a revision's own record names.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del key, meta, text
        return ()

    def may_refer(self, kind: int, meta: bytes) -> bool:
        """True if a record of this kind and meta can refer to others, whatever its text."""
        del kind, meta
        return False

    def is_list(self, kind: int, meta: bytes) -> bool:
        """True if the record is mainly a list of references. The size of such records is limited. Of a large record of
        another type only the first bytes are looked at (`store.incoming.BEGIN`)."""
        return self.may_refer(kind, meta)

    def is_file(self, kind: int, meta: bytes) -> bool:
        """True if the record is the text of a file in a tree."""
        del kind, meta
        return False

    def references(self, kind: int, key: Key, meta: bytes, text: bytes) -> References:
        """The records that this one needs, in its order; a key may come twice.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del kind, key, meta, text
        return NOTHING

    def changes(self, record: Record, base: Record) -> Changes | None:
        """The references that only a record and only its base, of the same kind, has; None: `references` of both say.

        `base`: a record whose references were read before, for it was proved.

        Raises:
            ValueError: the record cannot be parsed.
        """
        del record, base
        return None

    @functools.cached_property
    def faults(self) -> FaultChecker:
        """Looks for the faults of its records; none here."""
        from smartserver.records.faults import FaultChecker  # Not before: a client judges nothing.

        return FaultChecker()

    def read(self, stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
        """The answer to `Repository.read`. The selector is this system's own: nothing else reads it.

        Raises:
            LimitExceeded: it asks for too much.
            MissingRevision: a revision it names is not stored.
            NoSuchPart: something else that it names is not there.
            Unsupported: it is none of this release's, or the system has none.
        """
        del stored, selector, question
        raise Unsupported(f"reading parts of a repository of {self.name}", "whole revisions of it")

    def contents(self, stored: RepositoryView, question: ReadScope) -> Contents:
        """The trees and headers of a repository, for the selectors that every system understands (`records.browse`).

        Raises:
            Unsupported: the system has none.
        """
        del stored, question
        raise Unsupported(f"reading files of a repository of {self.name}", "whole revisions of it")


SYSTEMS: Final[dict[str, System]] = {}
"""Every system registered so far, by name."""


def register(*systems: System) -> None:
    """Make systems known.

    Raises:
        ValueError: a name, or a check that a system brings, is taken.
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
    """The system of that name.

    Raises:
        Unsupported: this release has none.
    """
    found = SYSTEMS.get(vcs) or every_system().get(vcs)
    if found is None:
        raise Unsupported(f"the version-control system {vcs!r}", ", ".join(sorted(SYSTEMS)))
    return found


def every_system() -> Mapping[str, System]:
    """All systems, by name."""
    importlib.import_module(ALL)
    return SYSTEMS
