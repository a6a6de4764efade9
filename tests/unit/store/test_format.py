from __future__ import annotations

import pytest
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile, Unsupported
from smartserver.store.format import LINE, is_ours, parse_format, recognise


@pytest.mark.parametrize(
    "line",
    [b"5", b"smartserver repository", b"\xff", b"smartserver repository 10 swap=file", b"smartserver repository 22"],
)
def test_what_this_release_does_not_speak_is_named(line: bytes) -> None:
    assert is_ours(line) is (b"smartserver" in line)
    with pytest.raises(Unsupported, match="supported: smartserver repository 2") as raised:
        parse_format(line + b"\n")
    said = line.decode("utf-8", "backslashreplace")
    assert raised.value.what == f"the repository format {said!r} in the file 'format'"


def test_what_changes_the_first_version_is_named() -> None:
    with pytest.raises(Unsupported, match="version 1 of the repository format: `smartserver upgrade FOLDER`"):
        parse_format(b"smartserver repository 1 swap=folder\n")


@pytest.mark.parametrize("content", [b"", LINE[:-1], b"a\nb\n", b"x" * 1000])
def test_no_whole_line_is_damage(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="expected one line"):
        parse_format(content)


def test_another_tools_folder_is_recognised() -> None:
    transport = MemoryTransport()
    assert recognise(transport) is None
    transport.make_directory(".hg")
    assert recognise(transport) == "a Mercurial repository"
