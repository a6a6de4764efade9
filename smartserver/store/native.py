"""The native parts of the store: each reads and proves what is in order, and leaves all else to Python."""

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
    """Proves the segments of one stream, up to one that Python must look at: out of the ordinary, or wrong. A segment
    that Python takes then is noted. Its twin is `store.incoming.UploadValidator`, which it serves."""

    @property
    def segments(self) -> int:
        """The number of segments that came."""

    @property
    def records(self) -> int:
        """The number of records that they have."""

    def read_from(self, source: int | Callable[[int, int], bytes]) -> None:
        """Say where the segments that come next are read again: the descriptor of a file, or by offset and size."""

    def prove(self, blocks: Sequence[bytes], at: int, decoded: int, steps: int) -> tuple[int, int, int, bool]:
        """Prove segments that lie one behind the other from `at` on: how many, bytes decoded, and steps. It ends early
        where it is Python's turn, which it says, and where it has decoded or done as much as it may."""

    def own_meta(self, revision: bytes) -> bytes | None:
        """The meta of the own record of a revision; None where it did not come."""

    def note(self, block: bytes, at: int, rows: Sequence[tuple[int, int, int]] = (), bases: Sequence[int] = ()) -> None:
        """Take a segment that Python has proved. `rows`: depth, chain and lineage of each record; `bases`: the number
        of its base in the stream, else negative. Without them they are as the stream says."""

    def revisions(self, first: int) -> Sequence[tuple[bytes, Sequence[int]]]:
        """The revisions from a number on, and their parents by number; of stored ones the ordinal, as -1 - ordinal."""

    def columns(self, first: int) -> Any:
        """The records from a number on, as `UploadIndex.extend` takes them."""

    def index(self, pack_length: int, pack_hash: bytes, first: int = 0, lineages: Sequence[int] | None = None) -> bytes:
        """The body of the index of a pack that has the segments from a number on. `lineages`: those of its records."""

    def forget(self) -> None:
        """Drop texts and marks: nothing more is proved."""

    def tally(self) -> Sequence[int]:
        """Counts since the last call: frames decoded, their bytes, texts' bytes; texts hashed, bytes; reads, bytes."""


_WORK: Final = (DECOMPRESSED, DECOMPRESSED_IN, DECOMPRESSED_OUT, HASHED, HASHED_BYTES, READS, BYTES_READ)
"""The meters that `Prover.tally` counts for."""


def make_prover(vcs: str, cache: int, judges: bool, stored: object) -> Prover | None:
    """Give the prover of the segments of a version-control system; None where there is none. `cache`: bytes of texts
    that are kept. `judges`: whether faults matter. `stored`: `known_records.StoredBases`, or None for a repository that
    has nothing."""
    made = native("Prover")
    found: Prover | None = made(vcs, cache, judges, stored) if made is not None and vcs in made.systems else None
    return found


def count_work(prover: Prover) -> None:
    """Add what a prover has done to the meters of this process."""
    tally = here.tally
    for meter, more in zip(_WORK, prover.tally(), strict=True):
        tally[meter] += more


class RecordReader(Protocol):
    """Reads sound records of a snapshot's packs natively. Its twin is `store.stored_records.StoredRecords`."""

    def add(self, number: int, index: int, content: int | None = None) -> bool:
        """Say how an index, and its pack, are read: descriptors of open files. Whether they can be."""

    def read(self, pack: int, row: int) -> tuple[int, bytes, bytes, bytes, bytes, int, bool] | int | None:
        """The record of a row of a pack: kind, key, meta, text, check, the bytes that were decoded, and whether it was
        proved to be what its key says. A number: that pack is to be added; a negative one: the index of the pack
        whose number is one less than its amount. None: Python must read it."""


def record_reader(kinds: Sequence[Kind], packs: int) -> RecordReader | None:
    """Give the reader of the records of so many packs; None where it was not built."""
    made = native("RecordReader")
    proofs = [(kind.check, check_bytes(kind)) for kind in kinds]
    found: RecordReader | None = None if made is None else made(proofs, packs)
    return found
