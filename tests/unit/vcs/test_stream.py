"""vcs.stream: what the format of git fast-import allows is read, and what it does not is told with its line."""

from __future__ import annotations

import io
from typing import Any

import pytest
from fastimport import commands

from smartserver.vcs.base import BadStream
from smartserver.vcs.stream import Refs, StreamParser

COMMIT = b"commit refs/heads/master\nmark :2\ncommitter A <a@example.org> 1700000000 +0000\ndata 1\nm\n"
BLOB = b"blob\nmark :1\ndata 3\na\nb\n"


def read(stream: bytes) -> list[Any]:
    return list(StreamParser(io.BytesIO(stream)).commands())


def commit(lines: bytes, before: bytes = b"") -> Any:
    """A commit with more lines before its message and after it."""
    head, mark, message = COMMIT.partition(b"data 1")
    (found,) = read(head + before + mark + message + lines)
    return found


def test_all_commands() -> None:
    stream = (
        b"feature done\nfeature date-format=raw\noption git quiet\n# a comment\n\n" + BLOB + COMMIT + b"M 644 :1 x\n\n"
        b"reset refs/heads/other\nfrom :2\n\ntag v1\nfrom :2\ntagger A <a@example.org> 1 +0000\ndata 1\nt\n"
        b"progress said\ncheckpoint\ndone\nwhat follows is not read"
    )
    found = read(stream)
    assert [type(each) for each in found] == [
        commands.BlobCommand,
        commands.CommitCommand,
        commands.ResetCommand,
        commands.TagCommand,
        commands.ProgressCommand,
        commands.CheckpointCommand,
    ]
    assert found[0].data == b"a\nb"
    (change,) = found[1].iter_files()
    assert (change.path, change.mode, change.dataref) == (b"x", 0o100644, b":1")


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        (rb'D "q\"\303\251 \\\t\n"', [b'q"\xc3\xa9 \\\t\n']),
        (b"D a b", [b"a b"]),
        (rb'R "a \" b" "c d"', [b'a " b', b"c d"]),
        (b"R a c d", [b"a", b"c d"]),
        (rb'C a "\303\251"', [b"a", b"\xc3\xa9"]),
        (rb'C "a b" c', [b"a b", b"c"]),
    ],
)
def test_paths(line: bytes, paths: list[bytes]) -> None:
    (change,) = commit(line + b"\n").iter_files()
    names = (
        ("path",) if line[:1] == b"D" else ("old_path", "new_path") if line[:1] == b"R" else ("src_path", "dest_path")
    )
    assert [getattr(change, name) for name in names] == paths


def test_a_commit_in_another_encoding_becomes_utf_8() -> None:
    stream = COMMIT.replace(b"A <", b"\xd6 <").replace(b"data 1\nm", b"encoding latin1\ndata 4\ncaf\xe9")
    (found,) = read(stream)
    assert (found.message, found.committer.name) == ("café".encode(), "Ö".encode())
    (unknown,) = read(stream.replace(b"latin1", b"nothing"))
    assert unknown.message == b"caf\xe9"


def test_signatures_and_notes_are_left_out() -> None:
    signed = COMMIT.replace(b"data 1", b"gpgsig sha1 openpgp\ndata 4\nsig\n\ndata 1")
    parser = StreamParser(io.BytesIO(signed + b"N :1 :2\nN inline :2\ndata 2\nn\nM 644 inline x\ndata 1\nx\n"))
    (found,) = parser.commands()
    assert found.message == b"m"
    assert [change.path for change in found.iter_files()] == [b"x"]
    assert parser.notes == 2


@pytest.mark.parametrize(
    ("date", "seconds", "zone"),
    [
        (b"-5 -0130", -5, -5400),
        (b"Tue, 14 Nov 2023 23:13:20 +0100", 1700000000, 3600),
        (b"14 Nov 2023 22:13:20 GMT", 1700000000, 0),
    ],
)
def test_dates(date: bytes, seconds: int, zone: int) -> None:
    (first, second) = read(COMMIT + COMMIT.replace(b"1700000000 +0000", date))
    assert (first.committer.timestamp, first.committer.timezone) == (1700000000, 0)
    assert (second.committer.timestamp, second.committer.timezone) == (seconds, zone)
    assert (second.committer.name, second.committer.email) == (b"A", b"a@example.org")


def test_the_end_needs_no_newline() -> None:
    (found,) = read(COMMIT + b"M 644 inline path\ndata <<END\na\nb\nEND")
    assert [change.data for change in found.iter_files()] == [b"a\nb\n"]
    assert [type(each) for each in read(b"feature done\n" + BLOB + b"done")] == [commands.BlobCommand]


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"", "the stream is empty"),
        (b"blob\nmark :1\ndata 5\nabc", "line 3 of the stream: Unexpected EOF"),
        (b"blob\ndata x\n", "line 2 of the stream: invalid literal"),
        (b"blob\ndata <<END\nabc\n", "line 4 of the stream: Unexpected EOF - expected 'END'"),
        (b"commit refs/heads/master\ndata 1\nx\n", "line 2 of the stream: Command b'commit' is missing section"),
        (COMMIT + b"M 100644 inline x\ndata 1\nx\nfrobnicate\n", "line 9 of the stream: the command 'frobnicate'"),
        (COMMIT + b"M 100648 :1 x\n", "line 6 of the stream: Bad format"),
        (COMMIT + b"M 100644\n", "line 6 of the stream"),
        (COMMIT + b'D "x\n', "line 6 of the stream: Bad format"),
        (COMMIT + b"R x\n", "line 6 of the stream: Bad format"),
        (b"feature export-marks=x\n" + COMMIT, "line 1 of the stream: the feature export-marks is not known"),
        (b"feature done\n" + COMMIT, "Stream end before 'done' command"),
        (COMMIT.replace(b"+0000", b"+00xx"), "line 3 of the stream"),
        (COMMIT.replace(b"1700000000 +0000", b"when"), "line 3 of the stream"),
        (COMMIT.replace(b"<a@example.org> ", b""), "line 3 of the stream: Bad format"),
    ],
)
def test_a_fault_is_told_with_its_line(stream: bytes, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadStream) as raised:
        read(stream)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_a_stream_that_is_cut_anywhere_is_read_or_refused() -> None:
    stream = b"feature done\n" + BLOB + COMMIT + rb'M 644 :1 "x\303\251"' + b"\nR a b\ntag t\nfrom :2\ndata 0\ndone\n"
    for end in range(1, len(stream) - len("done\n")):
        with pytest.raises(BadStream):
            read(stream[:end])
    assert len(read(stream)) == 3


def test_a_deleted_ref_is_no_parent() -> None:
    """Neither the commit that the stream gave it nor the one on the server."""
    refs = Refs({b"refs/heads/x": b"1"}, {})
    assert refs.find(b"refs/heads/x^0") == b"1"
    refs.set(b"refs/heads/x", b"2")
    refs.delete(b"refs/heads/x")
    with pytest.raises(LookupError, match="no commit refs/heads/x"):
        refs.find(b"refs/heads/x")
