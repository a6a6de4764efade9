"""server.open_files: a file counts until nothing refers to it, for its connection and for all of them."""

from __future__ import annotations

import pytest

from smartserver.errors import LimitExceeded
from smartserver.server.open_files import MAX_OF_CONNECTION, MAX_OF_SITE, OpenFiles
from smartserver.wire.limits import MAX_FILE_CALLS
from transports.base import ReadFile
from transports.memory import MemoryTransport


def opened() -> ReadFile:
    storage = MemoryTransport()
    storage.put("file", [b"content"])
    return storage.open_read("file")


def test_a_file_counts_until_nothing_refers_to_it() -> None:
    site = OpenFiles(3)
    one, other = OpenFiles(2, site), OpenFiles(2, site)
    files = [opened() for _ in range(3)]
    for file, connection in zip(files, (one, one, other), strict=True):
        connection.hold(file)
    assert (site.count, one.count, other.count) == (3, 2, 1)
    del file
    with pytest.raises(LimitExceeded, match=r"open files of a connection, .*: 3, expected no more than 2"):
        one.hold(opened())
    with pytest.raises(LimitExceeded, match=r"open files of all connections, .*: 4, expected no more than 3"):
        other.hold(opened())
    assert (site.count, one.count, other.count) == (3, 2, 1)
    files.pop(0)
    other.hold(kept := opened())
    assert (site.count, one.count, other.count) == (3, 1, 2)
    files.clear()
    del kept
    assert (site.count, one.count, other.count) == (0, 0, 0)


def test_one_request_of_a_client_of_ours_fits() -> None:
    assert MAX_FILE_CALLS <= MAX_OF_CONNECTION <= MAX_OF_SITE
