from __future__ import annotations

import hashlib

import pytest
from counting import Counting

from smartserver.records.check import check_bytes, make_check, verify_record
from smartserver.records.model import Kind

TEXT = Kind("text", "blake2b-128", True)


def test_check_covers_kind_key_meta_and_text() -> None:
    check = make_check(TEXT, b"key", b"meta", b"text")
    assert len(check) == check_bytes(TEXT)
    # The bytes are in files: a change of them is a change of the format.
    assert check == hashlib.blake2b(b"\x04text\x03key\x04metatext", digest_size=16).digest()
    verify_record(TEXT, b"key", b"meta", b"text", check)
    others = [
        make_check(Kind("inventory", "blake2b-128", True), b"key", b"meta", b"text"),
        make_check(TEXT, b"kex", b"meta", b"text"),
        make_check(TEXT, b"key", b"mete", b"text"),
        make_check(TEXT, b"key", b"meta", b"texu"),
        make_check(TEXT, b"keym", b"eta", b"text"),
        make_check(TEXT, b"key", b"metat", b"ext"),
    ]
    assert len({check, *others}) == 7
    for other in others:
        with pytest.raises(ValueError, match="expected " + other.hex()):
            verify_record(TEXT, b"key", b"meta", b"text", other)


def test_what_is_proved_is_counted() -> None:
    counting = Counting()
    verify_record(TEXT, b"key", b"", b"text", make_check(TEXT, b"key", b"", b"text"))
    with pytest.raises(ValueError, match="expected"):
        verify_record(TEXT, b"key", b"", b"other", bytes(16))
    assert counting.named == {"hashed": 2, "hashed_bytes": 9}


def test_unknown_check() -> None:
    with pytest.raises(ValueError, match="md5"):
        check_bytes(Kind("x", "md5", False))
