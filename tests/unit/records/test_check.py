from __future__ import annotations

import hashlib

import pytest
from counting import Counting

from smartserver.records.check import check_bytes, make_check, verify_record
from smartserver.records.model import Kind

PAGE = Kind("page", "sha1-key", True)
TEXT = Kind("text", "blake2b-128", True)


def test_page_keys() -> None:
    key = b"sha1:" + hashlib.sha1(b"page").hexdigest().encode()
    assert make_check(PAGE, key, b"", b"page") == b""
    verify_record(PAGE, key, b"", b"page", b"")
    with pytest.raises(ValueError, match="expected"):
        verify_record(PAGE, key, b"", b"pagE", b"")


def test_check_covers_kind_key_meta_and_text() -> None:
    check = make_check(TEXT, b"key", b"meta", b"text")
    assert len(check) == check_bytes(TEXT) == 16
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


def test_check_is_fixed() -> None:
    # The bytes are in files: a change of them is a change of the format.
    assert (
        make_check(TEXT, b"key", b"meta", b"text").hex()
        == hashlib.blake2b(b"\x04text\x03key\x04metatext", digest_size=16).hexdigest()
    )


def test_what_is_proved_is_counted() -> None:
    counting = Counting()
    verify_record(TEXT, b"key", b"", b"text", make_check(TEXT, b"key", b"", b"text"))
    with pytest.raises(ValueError, match="expected"):
        verify_record(TEXT, b"key", b"", b"other", bytes(16))
    assert counting.named == {"hashed": 2, "hashed_bytes": 9}


def test_unknown_check() -> None:
    with pytest.raises(ValueError, match="md5"):
        check_bytes(Kind("x", "md5", False))
