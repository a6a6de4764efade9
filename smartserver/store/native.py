"""The native parts of the store: each reads and proves valid, common data, and leaves the rest to Python."""

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
    """Proves the segments of one stream, up to an unusual or invalid one, which Python must check. Then `note` records
    the segment that Python has proved. Its twin is `store.incoming.UploadValidator`, which uses it."""

    @property
    def segments(self) -> int:
        """The number of segments that were added."""

    @property
    def records(self) -> int:
        """The number of records of these segments."""

    def read_from(self, source: int | Callable[[int, int], bytes]) -> None:
        """Set where segments are read again: the descriptor of a file, or a function of offset and size."""

    def prove(self, blocks: Sequence[bytes], at: int, decoded: int, steps: int) -> tuple[int, int, int, bool]:
        """Prove consecutive segments, the first at offset `at`. `decoded`, `steps`: the most bytes to decode and steps
        to take. Return how many segments were proved, the bytes decoded, the steps, and True if Python must prove the
        next segment."""

    def own_meta(self, revision: bytes) -> bytes | None:
        """Return the meta of the own record of a revision; None if it was not received."""

    def note(self, block: bytes, at: int, rows: Sequence[tuple[int, int, int]] = (), bases: Sequence[int] = ()) -> None:
        """Record a segment that Python has proved. `rows`: depth, chain and lineage of each record. `bases`: for each
        record, the number of its base in the stream, or a negative number. Both are computed from the segment if they
        are left out."""

    def revisions(self, first: int) -> Sequence[tuple[bytes, Sequence[int]]]:
        """Return the revisions from a number on, with their parents by number. A stored parent has the number -1 - its
        ordinal."""

    def columns(self, first: int) -> Any:
        """Return the records from a number on, in the form that `UploadIndex.extend` accepts."""

    def index(self, pack_length: int, pack_hash: bytes, first: int = 0, lineages: Sequence[int] | None = None) -> bytes:
        """Return the body of the index of a pack with the segments from number `first` on. `lineages`: the lineages of
        its records."""

    def forget(self) -> None:
        """Drop texts and marks, as no more segments will be proved."""

    def tally(self) -> Sequence[int]:
        """Return the counts of `_WORK` since the last call: frames decoded, their bytes, the bytes of their texts;
        texts hashed, their bytes; reads, their bytes."""


_WORK: Final = (DECOMPRESSED, DECOMPRESSED_IN, DECOMPRESSED_OUT, HASHED, HASHED_BYTES, READS, BYTES_READ)
"""The meters of the counts that `Prover.tally` returns."""


def make_prover(vcs: str, cache: int, judges: bool, stored: object) -> Prover | None:
    """Return a native prover of the segments of a version-control system; None if the system has none. `cache`: bytes
    of texts that the prover keeps. `judges`: True if faults matter. `stored`: a `known_records.StoredBases`; None for
    an empty repository."""
    made = native("Prover")
    found: Prover | None = made(vcs, cache, judges, stored) if made is not None and vcs in made.systems else None
    return found


def count_work(prover: Prover) -> None:
    """Add the counts of a prover to the meters of this process."""
    tally = here.tally
    for meter, more in zip(_WORK, prover.tally(), strict=True):
        tally[meter] += more


class RecordReader(Protocol):
    """Reads undamaged records of a snapshot's packs natively. Its twin is `store.stored_records.StoredRecords`."""

    def add(self, number: int, index: int, content: int | None = None) -> bool:
        """Add an index, and its pack, by descriptors of open files. Return False if they cannot be used."""

    def read(self, pack: int, row: int) -> tuple[int, bytes, bytes, bytes, bytes, int, bool] | int | None:
        """Read the record of a row of a pack: kind, key, meta, text, check, the bytes decoded, and whether it was
        proved by its key. A number `n` means that pack `n` must be added first; if `n` is negative, the index of pack
        `-1 - n`. None means that Python must read the record."""


def record_reader(kinds: Sequence[Kind], packs: int) -> RecordReader | None:
    """Make the reader of the records of `packs` packs; None if the native module is missing."""
    made = native("RecordReader")
    proofs = [(kind.check, check_bytes(kind)) for kind in kinds]
    found: RecordReader | None = None if made is None else made(proofs, packs)
    return found
