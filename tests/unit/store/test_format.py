from __future__ import annotations

import pytest

from smartserver.errors import CorruptFile, Unsupported
from smartserver.store import format as formats
from smartserver.store.format import VERSION, VERSIONS, Discipline, Format, is_marked, is_ours, parse_format, recognise
from transports.memory import MemoryTransport


@pytest.mark.parametrize("discipline", list(Discipline))
def test_a_line_gives_back_its_format(discipline: Discipline) -> None:
    assert parse_format(Format(discipline).line()) == Format(discipline)


def test_the_line() -> None:
    assert Format(Discipline.FILE).line() == b"smartserver repository 1 swap=file\n"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"5\n", "the repository format '5'"),
        (b"smartserver repository\n", "the repository format 'smartserver repository'"),
        (b"\xff\n", "the repository format"),
        (b"smartserver repository 2 swap=file\n", "version 2 of the repository format"),
        (b"smartserver repository 1 swap=raft\n", "the swap discipline 'swap=raft'"),
        (b"smartserver repository 1\n", "the swap discipline ''"),
        (b"smartserver repository 1 lock=file\n", "the swap discipline 'lock=file'"),
    ],
)
def test_what_this_release_does_not_speak_is_named(content: bytes, what: str) -> None:
    assert is_ours(content) is (b"smartserver" in content)
    with pytest.raises(Unsupported, match=r"this side speaks smartserver repository 1 swap=file") as raised:
        parse_format(content)
    assert raised.value.what.startswith(what)
    assert raised.value.what.endswith(" in the file 'format'")


def test_an_older_version_is_read_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it will be when there is another."""
    assert VERSIONS[-1] == VERSION
    monkeypatch.setattr(formats, "VERSIONS", ("1", "2"))
    for version in ("1", "2"):
        read = parse_format(b"smartserver repository %b swap=file\n" % version.encode())
        assert read == Format(Discipline.FILE, version)
        assert read.line() == b"smartserver repository %b swap=file\n" % version.encode()


def test_a_folder_is_marked_by_our_line_alone() -> None:
    storage = MemoryTransport()
    assert not is_marked(storage)
    storage.put("format", [b"smartserver repository 9\n"])
    assert is_marked(storage)
    storage.delete("format")
    storage.put("format", [b"hi\n"])
    assert not is_marked(storage)
    storage.delete("format")
    storage.make_directory("format")
    assert not is_marked(storage)


@pytest.mark.parametrize("content", [b"", b"smartserver repository 1 swap=file", b"a\nb\n", b"x" * 1000])
def test_no_whole_line_is_damage(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="expected one line"):
        parse_format(content)


@pytest.mark.parametrize(
    ("folders", "what"),
    [
        ([], None),
        (["objects"], None),
        ([".git"], "a git repository"),
        (["HEAD", "objects"], "a git repository"),
        ([".hg"], "a Mercurial repository"),
        ([".bzr"], "a Bazaar repository"),
    ],
)
def test_recognise(folders: list[str], what: str | None) -> None:
    transport = MemoryTransport()
    for folder in folders:
        transport.make_directory(folder)
    assert recognise(transport) == what
