"""plugins.mercurial.markers: what a local repository remembers of the markers of a URL."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mercurial import obsolete

from smartserver.plugins.mercurial.markers import (
    Marker,
    MarkerMemory,
    are_exchanged,
    encode,
    marker_updates,
    stream,
)
from smartserver.vcs.hg.markers import KnownVersion, key_of, parse
from smartserver.verbs.fields import MAX_IDS

ONE, OTHER = b"one" + bytes(13), b"other" + bytes(11)
"""Incarnations of repositories."""


def marker(number: int) -> Marker:
    return (bytes([number]) * 20, (bytes([number + 100]) * 20,), 0, ((b"user", b"u"),), (0.0, 0), None)


A, B, C = marker(1), marker(2), marker(3)


class Files(dict[bytes, bytes]):
    """A folder as Mercurial has it."""

    def tryread(self, path: bytes) -> bytes:
        return self.get(path, b"")

    def write(self, path: bytes, content: bytes, *, atomictemp: bool) -> None:
        assert atomictemp
        self[path] = content


class Repository:
    """A local repository with some markers."""

    def __init__(self, *markers: Marker) -> None:
        self.svfs, self.cachevfs = Files(), Files()
        self.add(*markers)

    def unfiltered(self) -> Repository:
        return self

    def add(self, *markers: Marker) -> None:
        before = self.svfs.tryread(b"obsstore") or stream(b"")
        self.svfs[b"obsstore"] = before + b"".join(map(encode, markers))

    def memory(self, url: bytes = b"hpss://h/p") -> MarkerMemory:
        return MarkerMemory(self, url)

    def unsent(self, *relevant: Marker, incarnation: bytes = ONE) -> list[Marker]:
        return self.memory().unsent(relevant, incarnation)


def version(version: int, incarnation: bytes = ONE) -> KnownVersion:
    return (incarnation, version, version % 7)


def test_what_was_sent_is_not_sent_again() -> None:
    repository = Repository(A, B)
    assert repository.unsent(B, A) == [A, B]
    repository.memory().sent([A], version(4), version(5), is_changed=True)
    assert repository.unsent(A, B) == [B]
    repository.add(C)
    assert repository.unsent(A, B, C) == [B, C]
    repository.memory().sent([B, C], version(5), version(6), is_changed=True)
    assert repository.unsent(A, B, C) == []
    assert MarkerMemory(repository, b"hpss://h/another").unsent([A], ONE) == [A]
    # Of a repository that was recreated there nothing is known.
    assert repository.unsent(A, B, C, incarnation=OTHER) == [A, B, C]


def test_what_was_taken_is_not_sent_back() -> None:
    repository = Repository(A)
    repository.add(B)
    repository.memory().took(encode(B), version(3), is_all=True)
    assert repository.unsent(A, B) == [A]
    assert repository.memory().version == version(3)
    repository.add(C)
    repository.memory().took(encode(C), version(5), is_all=False)
    assert repository.unsent(A, B, C) == [A]
    assert repository.memory().version == version(3)
    repository.memory().took(b"", version(1, OTHER), is_all=True)
    assert repository.unsent(A, incarnation=OTHER) == [A]
    assert repository.memory().version == version(1, OTHER)


def test_what_is_new_there_came_from_here_alone() -> None:
    repository = Repository(A)
    repository.memory().took(b"", version(3), is_all=True)
    repository.memory().sent([A], version(3), version(4), is_changed=True)
    assert repository.memory().version == version(4)
    repository.memory().sent([A], version(4), version(6), is_changed=True)  # Somebody else was there, too.
    assert repository.memory().version == version(4)
    repository.memory().sent([A], version(5), version(6), is_changed=True)
    assert repository.memory().version == version(4)


def test_where_markers_were_removed_nothing_is_known() -> None:
    repository = Repository(A, B)
    repository.memory().took(encode(A), version(3), is_all=True)
    kept = dict(repository.svfs)
    repository.svfs.clear()
    repository.add(B)
    assert repository.memory().version == (b"", 0, 0)
    repository.add(C)  # As long as before.
    assert repository.unsent(A, B) == [A, B]
    repository.svfs.update(kept)
    assert repository.memory().version == version(3)


def test_a_damaged_file() -> None:
    repository = Repository(A)
    repository.memory().took(encode(A), version(3), is_all=True)
    repository.cachevfs[b"hpss-markers"] = b"\xc1"
    assert repository.memory().version == (b"", 0, 0)


def test_updates_of_the_map() -> None:
    many = [(*marker(number % 100)[:4], (float(number), 0), None) for number in range(MAX_IDS + 1)]
    first, second = marker_updates(many)
    assert (first.map, len(first.entries), len(second.entries)) == ("obsolete", MAX_IDS, 1)
    (entry,) = second.entries
    assert entry.value is not None
    assert (entry.key, parse(entry.value).predecessor) == (key_of(entry.value), many[-1][0])
    assert list(obsolete._readmarkers(stream(entry.value))[1]) == [many[-1]]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, False), ({b"evolution": b"all"}, True), ({b"evolution": b"createmarkers"}, False)],
)
def test_whether_they_are_exchanged(settings: dict[bytes, bytes], expected: bool) -> None:
    def configbool(section: bytes, name: bytes) -> Any:
        if name == b"evolution" and settings:
            raise AttributeError  # A list.
        return None

    ui = SimpleNamespace(
        configbool=configbool,
        configlist=lambda section, name: settings.get(name, b"").split(),
        config=lambda section, name: None,
    )
    assert bool(are_exchanged(SimpleNamespace(ui=ui))) is expected
