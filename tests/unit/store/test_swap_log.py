from __future__ import annotations

import hashlib

import pytest

from smartserver.errors import CorruptFile
from smartserver.store.swap_log import (
    MERGED_FILE,
    LogChange,
    LogEntry,
    LogFile,
    absorb,
    decode_log,
    find_in_file,
    find_request,
    log_file,
    older_half,
    read_log,
)
from transports.errors import NoSuchFile
from transports.memory import MemoryTransport


def entries(first: int, last: int, outcomes: bytes = b"ok") -> list[LogEntry]:
    return [
        LogEntry(
            version,
            1000 * version,
            "joe",
            version.to_bytes(16, "big"),
            outcomes,
            [LogChange("refs", b"refs/heads/main", None, b"new")],
        )
        for version in range(first, last + 1)
    ]


def stored(transport: MemoryTransport, *groups: list[LogEntry]) -> list[LogFile]:
    if not transport.exists("log"):
        transport.make_directory("log")
    files = []
    for number, group in enumerate(groups):
        file, content = log_file(group, bytes([number]) * 8)
        transport.put(file.path, [content])
        files.append(file)
    return files


def test_a_file_gives_back_its_entries() -> None:
    transport = MemoryTransport()
    (file,) = stored(transport, entries(3, 9))
    assert (file.first, file.last, file.time) == (3, 9, 9000)
    assert file.path == "log/9-0000000000000000"
    assert decode_log(read_log(transport, file), file.path) == entries(3, 9)


def test_the_bytes_begin_with_magic_version_flags_and_count() -> None:
    _, content = log_file(entries(1, 2), b"n" * 8)
    assert content[:16] == b"hpss-log" + bytes.fromhex("0100 0000 02000000")


def test_every_flipped_byte_is_noticed() -> None:
    _, content = log_file(entries(1, 3), b"n" * 8)
    (file,) = stored(MemoryTransport(), entries(1, 3))
    for at in range(len(content)):
        transport = MemoryTransport()
        transport.make_directory("log")
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        transport.put(file.path, [bytes(damaged)])
        with pytest.raises(CorruptFile, match="check"):
            read_log(transport, file)


def test_a_short_file_and_a_missing_one() -> None:
    transport = MemoryTransport()
    (file,) = stored(transport, entries(1, 3))
    content = transport.get(file.path)
    transport.delete(file.path)
    with pytest.raises(NoSuchFile):
        read_log(transport, file)
    transport.put(file.path, [content[:-1]])
    with pytest.raises(CorruptFile, match=f"{len(content) - 1} bytes, expected {len(content)}"):
        read_log(transport, file)


def test_an_unknown_version_and_what_is_no_list_of_entries() -> None:
    transport = MemoryTransport()
    transport.make_directory("log")
    for body, why in (
        (b"hpss-log\x02\x00\x00\x00\x00\x00\x00\x00\x90", "no log this release reads"),
        (b"hpss-log\x01\x00\x00\x00\x00\x00\x00\x00\xc0", "Expected `array`"),
        (b"hpss-log\x01\x00\x00\x00\x05\x00\x00\x00\x90", "5 entries stated, 0 found"),
    ):
        check = hashlib.blake2b(body, digest_size=16).digest()
        file = LogFile(1, 1, 1, len(body) + 16, check, hashlib.sha1(body).digest()[:8])
        transport.put(file.path, [body, check])
        with pytest.raises(CorruptFile, match=why):
            decode_log(read_log(transport, file), file.path)


def test_find_gives_the_newest_entry_of_a_request() -> None:
    twice = [*entries(1, 3), LogEntry(4, 4000, "ann", (2).to_bytes(16, "big"), b"second")]
    assert find_request(twice, (2).to_bytes(16, "big")) == twice[3]
    assert find_request(twice, (9).to_bytes(16, "big")) is None


def test_find_in_file() -> None:
    transport = MemoryTransport()
    (file,) = stored(transport, entries(1, 50))
    assert find_in_file(transport, file, (17).to_bytes(16, "big")) == entries(17, 17)[0]
    assert find_in_file(transport, file, b"\xee" * 16) is None
    # Bytes that occur in the file, but are no entry's request.
    assert find_in_file(transport, file, b"refs/heads/main\xc0") is None


@pytest.mark.parametrize(("count", "older"), [(1, 1), (2, 1), (3, 2), (10, 5)])
def test_the_older_half(count: int, older: int) -> None:
    parts = older_half(entries(1, count))
    assert parts == (entries(1, older), entries(older + 1, count))


def test_a_large_newest_entry_stays_alone() -> None:
    large = entries(6, 6, b"x" * 5000)
    assert older_half(entries(1, 5) + large) == (entries(1, 5), large)


def test_files_no_larger_than_the_new_one_are_joined() -> None:
    transport = MemoryTransport()
    files = stored(transport, entries(1, 100), entries(101, 110), entries(111, 115))
    kept, moved = absorb(transport, files, entries(116, 130))
    assert kept == files[:1]
    assert moved == entries(101, 130)


def test_joining_stops_at_the_limit() -> None:
    transport = MemoryTransport()
    half = b"x" * (MERGED_FILE // 2)
    files = stored(transport, entries(1, 1, half))
    more = entries(2, 2, half + b"x" * 100)
    assert absorb(transport, files, more) == (files, more)
    fits = MemoryTransport()
    assert absorb(fits, stored(fits, entries(1, 1, half[:-2000])), entries(2, 2, half[:-1000]))[0] == []


def test_a_damaged_file_is_left_alone() -> None:
    transport = MemoryTransport()
    files = stored(transport, entries(1, 2))
    transport.delete(files[0].path)
    assert absorb(transport, files, entries(3, 9)) == (files, entries(3, 9))
    transport.put(files[0].path, [b"damaged"])
    assert absorb(transport, files, entries(3, 9)) == (files, entries(3, 9))
