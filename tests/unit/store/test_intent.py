from __future__ import annotations

import pytest

from smartserver.errors import CorruptFile
from smartserver.store.intent import (
    TAIL,
    Intent,
    Read,
    encode_intent,
    intent_behind,
    intent_path,
    ranges_of,
    read_intent,
)
from smartserver.store.swap_log import LogChange, LogEntry
from transports.memory import MemoryTransport

ENTRY = LogEntry(7, 1_700_000_000_000, "joe", b"r" * 16, b"ok", [LogChange("refs", b"main", None, b"tip")])
INTENT = Intent(b"i" * 16, ((6, b"prev"),), ENTRY)
JOINED = Intent(b"i" * 16, (), None, (b"a" * 16, b"b" * 16))
LARGE = Intent(b"i" * 16, (), ENTRY, (b"a" * 16,) * 1000)


def stored(content: bytes) -> Read:
    storage = MemoryTransport()
    storage.put("file", [content])
    return ranges_of(storage, "file")


def behind(content: bytes, length: int) -> Intent | None:
    return intent_behind(content[length:][:TAIL], stored(content), length, "file")


def read(content: bytes) -> tuple[int, Intent | None]:
    return read_intent(content[-TAIL:], stored(content), len(content), "file")


@pytest.mark.parametrize("intent", [INTENT, JOINED, LARGE])
@pytest.mark.parametrize("before", [b"", b"a pack"])
def test_it_is_found_from_the_end_of_a_file(intent: Intent, before: bytes) -> None:
    content = before + encode_intent(intent)
    assert read(content) == (len(before), intent)
    assert behind(content, len(before)) == intent


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 19, b"x" * 200, bytes(200)])
def test_a_file_without_one(content: bytes) -> None:
    assert read(content) == (len(content), None)
    assert behind(content, len(content)) is None


def test_every_damaged_byte_is_seen() -> None:
    content = encode_intent(INTENT)
    for at in range(len(content)):
        wrong = bytearray(b"a pack" + content)
        wrong[6 + at] ^= 1 << at % 8
        with pytest.raises(CorruptFile, match=r"^file at byte 6: "):
            behind(bytes(wrong), 6)


def test_the_same_change_on_another_version() -> None:
    assert INTENT.is_same_change(Intent(b"i" * 16, (), LogEntry(9, 5, "", b"r" * 16, b"", ENTRY.changes)))
    assert not INTENT.is_same_change(Intent(b"j" * 16, (), ENTRY))
    assert not INTENT.is_same_change(Intent(b"i" * 16, (), LogEntry(7, 5, "", b"r" * 16, b"", [])))
    assert not INTENT.is_same_change(JOINED)
    assert not JOINED.is_same_change(JOINED)


def test_where_a_change_without_a_pack_has_it() -> None:
    assert intent_path(7, b"12345678") == "log/7-3132333435363738.intent"
