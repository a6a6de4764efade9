"""Pushes to a server that proves segments natively, and to one that proves them in Python."""

from __future__ import annotations

import re
import tempfile

import pytest
from builders import SETTINGS, Repeatable
from memory_transport import MemoryTransport
from twins import prove_in_python

from smartserver.records.model import Segment
from smartserver.records.system import System
from smartserver.store.incoming import UploadValidator
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.errors import CodedError
from transports.local import LocalTransport

TAKE = UploadValidator._take


def push_both_ways(
    system: System, segments: list[bytes], pieces: list[int], stored: int, *, is_plain: bool = False
) -> None:
    """Check that both servers give the same outcome. `pieces`: sizes that the body is cut into. `stored`: segments that
    two pushes bring before. `is_plain`: native proof needs no help of Python."""
    looked: list[bytes] = []

    def noted(intake: UploadValidator, segment: Segment, content: bytes) -> None:
        looked.append(segment.revision)
        TAKE(intake, segment, content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UploadValidator, "_take", noted)
        native = _outcome(system, segments, pieces, stored)
    if is_plain:
        assert not looked, "all of it is proved natively"
    with pytest.MonkeyPatch.context() as patched:
        prove_in_python(patched)
        python = _outcome(system, segments, pieces, stored)
    assert native == python, f"natively {native}, in Python {python}"


def _outcome(system: System, segments: list[bytes], pieces: list[int], stored: int) -> object:
    """Return the outcome of a push: its index and the hashes of the pack, or the error."""
    with tempfile.TemporaryDirectory() as folder:
        # A file is read natively, and memory is not.
        transport = MemoryTransport() if len(segments) % 2 else LocalTransport(folder)
        repository = PackRepository(transport, "project", randomness=Repeatable())
        return _outcome_in(repository, system, segments, pieces, stored)


def _outcome_in(
    repository: PackRepository, system: System, segments: list[bytes], pieces: list[int], stored: int
) -> object:
    def begun(transaction: Transaction) -> bytes:
        """Create a repository without content."""
        if not transaction.exists:
            transaction.create(system.name, system.kinds, SETTINGS)
        return b""

    half = stored // 2
    for number, part in enumerate((segments[:half], segments[half:stored], segments[stored:])):
        if not part:
            continue
        transaction = repository.begin()
        begun(transaction)
        sent = repository.receive(transaction)
        body = b"".join(part)
        at = 0
        try:
            for size in [*pieces, len(body)]:
                sent.write(body[at : at + size])
                at += size
            sent.finish(len(part), len(body))
        except CodedError as error:
            sent.abandon()
            # Which fault zstd finds in a damaged frame depends on what its context decoded before.
            return type(error).__name__, re.sub("(a damaged frame): .*", r"\1", str(error))
        entry = sent.entry
        if entry is None or number < 2:
            repository.commit(b"r%d" % number, 0, "user", begun, sent)
            continue
        sent.abandon()
        return entry.hash, entry.index_hash, entry.records, sent.warnings
    return None
