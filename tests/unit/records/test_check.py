"""records.check, records.system: the checks of records, what is asked of a system, and how systems are found.

records.cache, records.keys: the values that a cache keeps; a table gives each key its number."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys

import pytest
from counting import Counting

from smartserver.errors import Unsupported
from smartserver.records import keys
from smartserver.records.cache import Cache
from smartserver.records.check import KEYS, check_bytes, make_check, verify_record
from smartserver.records.keys import ABSENT, KeyTable
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


def test_the_least_recently_used_is_dropped() -> None:
    cache = Cache[str, bytes](10, len)
    assert cache.put("a", b"12345") == cache.put("b", b"12345") == 0
    assert cache.get("a") == b"12345"
    assert cache.put("c", b"1") == 1
    assert [cache.get(key) for key in "abc"] == [b"12345", None, b"1"]
    assert (len(cache), cache.size) == (2, 6)


def test_a_value_put_again_counts_once() -> None:
    cache = Cache[str, bytes](10, len)
    cache.put("a", b"12345")
    cache.put("b", b"1234")
    assert cache.put("a", b"123456") == 0
    assert cache.size == 10
    assert cache.put("c", b"1") == 1
    assert cache.get("b") is None


def test_a_value_over_the_limit_drops_the_one_before_and_no_other() -> None:
    cache = Cache[str, bytes](10, len)
    cache.put("a", b"12345")
    cache.put("b", b"1")
    assert cache.put("a", b"12345678901") == 0
    assert (cache.get("a"), cache.get("b"), cache.size) == (None, b"1", 1)


def test_a_spare_value_goes_first_unless_it_is_used() -> None:
    cache = Cache[str, bytes](10, len)
    cache.put("a", b"12345")
    assert cache.put("b", b"12345", spare=True) == 0
    assert cache.put("c", b"1") == 1
    assert [cache.get(key) for key in "abc"] == [b"12345", None, b"1"]
    cache.put("d", b"1234", spare=True)
    assert cache.get("d") == b"1234"
    assert cache.put("e", b"1") == 1
    assert [cache.get(key) for key in "acde"] == [None, b"1", b"1234", b"1"]


def test_it_is_a_dictionary() -> None:
    rng = random.Random(1)
    table, expected = KeyTable(), dict[bytes, int]()
    for _ in range(20_000):
        key = rng.randbytes(rng.choice((0, 1, 2, 20)))
        assert (table.find(key), key in table) == (expected.get(key, ABSENT), key in expected)
        assert table.number(key) == expected.setdefault(key, len(expected))
    assert len(table) == len(expected)
    for key, number in expected.items():
        assert table.find(key) == number
        assert table.key(number) == key


@pytest.mark.parametrize("value", [0, 7, -1, (1 << 62) - 1])
def test_keys_of_one_hash_are_told_apart(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "hash", lambda key: value, raising=False)
    table = KeyTable()
    names = [b"%d" % n for n in range(300)]
    assert [table.number(name) for name in names] == list(range(300))
    assert [table.find(name) for name in names] == list(range(300))
    assert table.find(b"300") == ABSENT


def test_its_memory() -> None:
    """Sixty-four bytes a key of twenty at most, just after the slots were doubled."""
    table = KeyTable()
    for number in range((1 << 15) + 2):
        table.number(number.to_bytes(20, "big"))
    taken = sum(map(sys.getsizeof, (table._slots, table.joined, table.ends)))
    assert taken < 70 * len(table)
