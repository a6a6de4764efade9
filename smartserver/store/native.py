"""The interfaces of the store's native parts, which read or prove valid, common data and leave all other data to
Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from smartserver.meters import (
    BYTES_READ,
    DECOMPRESSED,
    DECOMPRESSED_IN,
    DECOMPRESSED_OUT,
    HASHED,
    HASHED_BYTES,
    READS,
    here,
)
from smartserver.records.check import check_bytes
from smartserver.records.model import Kind
from smartserver.records.native import native


class Prover(Protocol):
    """Proves the segments of one stream. It stops at an unusual or invalid segment, which Python must prove and pass to
    `note`. The same proof in Python is in `store.incoming.UploadValidator`, which uses this class."""

    @property
    def segments(self) -> int:
        """The number of segments that were added."""

    @property
    def records(self) -> int:
        """The number of records of these segments."""

    def read_from(self, source: int | Callable[[int, int], bytes]) -> None:
        """Set the source from which earlier segments are read again: the descriptor of the pack's file, or a function
        of offset and size."""

    def prove(self, blocks: Sequence[bytes], at: int, decoded: int, steps: int) -> tuple[int, int, int, bool]:
        """Prove consecutive segments, the first at offset `at` of the pack. `decoded`, `steps`: the most bytes to
        decode and the most steps to take. Return the number of segments proved, the bytes decoded, the steps taken, and
        True if Python must prove the next segment."""

    def own_meta(self, revision: bytes) -> bytes | None:
        """Return the meta of a revision's own record; None if the revision was not added."""

    def note(self, block: bytes, at: int, rows: Sequence[tuple[int, int, int]] = (), bases: Sequence[int] = ()) -> None:
        """Add a segment that Python has proved, at offset `at`. `rows`: depth, chain and lineage of each record.
        `bases`: the number of each record's base in the stream; negative if the base is not there. Both are computed
        from the segment if they are left out."""

    def revisions(self, first: int) -> Sequence[tuple[bytes, Sequence[int]]]:
        """Return the revisions from number `first` on, each with the numbers of its parents. The number of a stored
        parent is -1 minus its ordinal."""

    def columns(self, first: int) -> Any:
        """Return the records from number `first` on, in the form that `UploadIndex.extend` accepts."""

    def index(self, pack_length: int, pack_hash: bytes, first: int = 0, lineages: Sequence[int] | None = None) -> bytes:
        """Return the body of the index of a pack that has the segments from number `first` on. `lineages`: the lineages
        of the pack's records; by default those that were computed."""

    def forget(self) -> None:
        """Free the memory for proofs. No more segments can be proved."""

    def tally(self) -> Sequence[int]:
        """Return counts of the work since the last call: frames decoded, their bytes, the bytes of their texts; texts
        hashed, their bytes; reads, their bytes."""


_WORK: Final = (DECOMPRESSED, DECOMPRESSED_IN, DECOMPRESSED_OUT, HASHED, HASHED_BYTES, READS, BYTES_READ)
"""The meters of the counts that `Prover.tally` returns."""


def make_prover(vcs: str, cache: int, judges: bool, stored: object) -> Prover | None:
    """Return a native prover of the segments of a version-control system; None if none exists. `cache`: the most bytes
    of texts that the prover keeps. `judges`: True if records are also checked for faults. `stored`: a
    `known_records.StoredBases`; None for an empty repository."""
    made = native("Prover")
    found: Prover | None = made(vcs, cache, judges, stored) if made is not None and vcs in made.systems else None
    return found


def count_work(prover: Prover) -> None:
    """Add the counts of a prover to the meters of this process."""
    tally = here.tally
    for meter, more in zip(_WORK, prover.tally(), strict=True):
        tally[meter] += more


class RecordReader(Protocol):
    """Reads undamaged records of a snapshot's packs natively. `store.stored_records.StoredRecords` does the same in
    Python."""

    def add(self, number: int, index: int, content: int | None = None) -> bool:
        """Add pack `number`, or only its index, by descriptors of open files: `index` and `content`. Return False if
        they cannot be used."""

    def read(self, pack: int, row: int) -> tuple[int, bytes, bytes, bytes, bytes, int, bool] | int | None:
        """Read the record of a row of a pack. Return its kind, key, meta, text and check, the bytes decoded, and True
        if its key proved it. A number `n` as result means that pack `n` must be added first or, if `n` is negative, the
        index of pack `-1 - n`. None means that Python must read the record."""


def record_reader(kinds: Sequence[Kind], packs: int) -> RecordReader | None:
    """Return a native reader of the records in a number of packs; None if the native parts are missing."""
    made = native("RecordReader")
    proofs = [(kind.check, check_bytes(kind)) for kind in kinds]
    found: RecordReader | None = None if made is None else made(proofs, packs)
    return found
