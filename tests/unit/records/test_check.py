"""records.check, records.system: the checks of records, what is asked of a system, and how systems are found."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest
from counting import Counting

from smartserver.errors import Unsupported
from smartserver.records.check import KEYS, check_bytes, make_check, verify_record
from smartserver.records.model import Kind
from smartserver.records.system import SYSTEMS, System, register, system_of

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


def test_an_unknown_one_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="the version-control system 'cvs'") as refused:
        system_of("cvs")
    assert refused.value.speaks == ", ".join(sorted(SYSTEMS))
    assert SYSTEMS.keys() >= {"bzr 2a", "git sha1", "git sha256"}


def test_a_second_one_of_a_name_or_check_is_refused() -> None:
    git = system_of("git sha1")

    class Second(System):
        name = "git sha1"
        kinds = git.kinds

    with pytest.raises(ValueError, match="the system 'git sha1' is registered already"):
        register(Second())
    other = Second()
    other.name = "git sha2"
    other.keys = {"git-sha1": KEYS["sha1-key"]}
    with pytest.raises(ValueError, match="the check 'git-sha1' is registered already: 'git sha2' must"):
        register(other)
    assert SYSTEMS["git sha1"] is git
    assert "git sha2" not in SYSTEMS
    assert KEYS["git-sha1"] is git.keys["git-sha1"]


def test_all_are_found_without_being_imported() -> None:
    script = "from smartserver.records.system import every_system; print(*sorted(every_system()), sep=', ')"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"bzr 2a", "git sha1", "git sha256"} <= set(run.stdout.strip().split(", "))
