"""The one place that chooses between a part in Python and its native twin.

`smartserver._native` is a crate of Rust (`native/`), which `setup.py` builds where there is cargo. Each of its parts
does what Python's part of the same name does, in a fraction of the time. Python's part is the reference: it runs where
the crate was not built, it decides what is wrong with anything that the native part refuses, and tests run on both.
`SMARTSERVER_NATIVE=0` in the environment turns the native parts off.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

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

OFF: Final = "SMARTSERVER_NATIVE"

T = TypeVar("T")


class Prover(Protocol):
    """Proves the segments of one stream, up to one that Python must look at: what is out of the ordinary or wrong. What
    Python takes then is noted. Its twin is `store.incoming.Intake`, which it serves."""

    own_meta: bytes
    """The meta of the own record of each segment that it proves."""

    @property
    def segments(self) -> int:
        """How many came."""

    @property
    def records(self) -> int:
        """How many they have."""

    def read_from(self, source: int | Callable[[int, int], bytes]) -> None:
        """Say where the segments that come next are read again: the descriptor of a file, or by offset and size."""

    def prove(self, blocks: Sequence[bytes], at: int, decoded: int, steps: int) -> tuple[int, int, int, bool]:
        """Prove segments that lie one behind the other from `at` on: how many, bytes decoded, and steps. It ends early
        where it is Python's turn, which it says, and where it has decoded or done as much as it may."""

    def has(self, revision: bytes) -> bool:
        """Whether a revision came."""

    def note(self, block: bytes, at: int, rows: Sequence[tuple[int, int, int]] = (), bases: Sequence[int] = ()) -> None:
        """Take a segment that Python has proved. `rows`: depth, chain and lineage of each record; `bases`: the number
        of its base in the stream, negative where that is stored or there is none. Without them they are as the stream
        says."""

    def revisions(self, first: int) -> Sequence[tuple[bytes, Sequence[int]]]:
        """The revisions from a number on, and the numbers of their parents in the stream."""

    def columns(self, first: int) -> Any:
        """The records from a number on, as `Arrivals.extend` takes them."""

    def index(self, pack_length: int, pack_hash: bytes, first: int = 0, lineages: Sequence[int] | None = None) -> bytes:
        """The body of the index of a pack that has the segments from a number on. `lineages`: those of its records."""

    def forget(self) -> None:
        """Drop texts and marks: nothing more is proved."""

    def tally(self) -> Sequence[int]:
        """What was done since the last call: frames decoded, their bytes, bytes of texts; texts hashed, their bytes;
        reads, their bytes."""


_IS_OFF: Final = os.environ.get(OFF) == "0"


def _load() -> Any:
    if _IS_OFF:
        return None
    try:
        return importlib.import_module("smartserver._native")
    except ImportError:
        return None


_native: Final = _load()

_WORK: Final = (DECOMPRESSED, DECOMPRESSED_IN, DECOMPRESSED_OUT, HASHED, HASHED_BYTES, READS, BYTES_READ)
"""What `Prover.tally` counts."""

PARTS: Final[dict[str, tuple[Any, Any]]] = {}
"""Each part by its name, in Python and, where there is one, natively."""


def twin(python: T) -> T:
    """The native part with the name of one in Python, or that one."""
    name: str = python.__name__  # type: ignore[attr-defined]
    native: T | None = getattr(_native, name, None)
    PARTS[name] = python, native
    return python if native is None else native


def prover(width: int, cache: int, judges: bool, is_stored: Callable[[int, bytes], bool] | None) -> Prover | None:
    """What proves segments whose keys are hashes; None where no native part does. `width`: bytes of a key. `cache`:
    bytes of texts that are kept. `judges`: whether faults matter. `is_stored`: whether the repository has a record."""
    made: Prover | None = None if _native is None else _native.Prover(width, cache, judges, is_stored)
    return made


def count_work(prover: Prover) -> None:
    """Add what a prover has done to the meters of this process."""
    tally = here.tally
    for meter, more in zip(_WORK, prover.tally(), strict=True):
        tally[meter] += more


class RecordReader(Protocol):
    """Reads records of a snapshot's packs natively, where nothing is damaged. Its twin is
    `store.stored_records.StoredRecords`."""

    def add(self, number: int, index: int, content: int | None = None) -> bool:
        """Say how an index, and its pack, are read: descriptors of open files. Whether they can be."""

    def read(self, pack: int, row: int) -> tuple[int, bytes, bytes, bytes, bytes, int, bool] | int | None:
        """The record of a row of a pack: kind, key, meta, text, check, the bytes that were decoded, and whether it was
        proved to be what its key says. A number: that pack is to be added; a negative one: the index of the pack
        whose number is one less than its amount. None: Python must read it."""


def record_reader(kinds: Sequence[Kind], packs: int) -> RecordReader | None:
    """What reads the records of so many packs; None where no native part does."""
    proofs = [(kind.check, check_bytes(kind)) for kind in kinds]
    made: RecordReader | None = None if _native is None else _native.RecordReader(proofs, packs)
    return made


def said() -> str:
    """What `smartserver --version` says of it; empty where the native parts are used."""
    if _native is not None:
        return ""
    if _IS_OFF:
        return f"native parts are turned off by {OFF}=0"
    return "native parts are not built (is there cargo?): large pushes and clones take several times as long"
