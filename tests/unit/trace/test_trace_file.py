"""trace.file, trace.events: what a process writes down, and that it can be read."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import msgspec
import pytest

from smartserver.trace.events import CommandEnded, decode, encode, schema
from smartserver.trace.file import Narrator, TraceFile
from smartserver.trace.recorder import CallRecord, Recorder, Span
from smartserver.trace.wait import traces

TRACE = "ab" * 16


def events(path: Path) -> list[object]:
    """The events of a file."""
    return [decode(line) for line in path.read_bytes().splitlines() if line]


def test_several_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            file = TraceFile(str(path))
            narrator = Narrator(file.append, f"process {number}", TRACE)
            for at in range(2000):
                narrator.span(Span("local", f"span {at} of {number}", at, at + 0.5, 0.0))
            narrator.end(Recorder(lambda: 0.0))
            file.close()
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    (found,) = traces(path.read_bytes().splitlines())
    assert (len(found.processes), len(found.spans), len(found.ends)) == (4, 8000, 4)


def test_a_process_that_was_forked_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    file = TraceFile(str(path))
    narrator = Narrator(file.append, "git", TRACE)
    child = os.fork()
    if child == 0:
        for at in range(2000):
            narrator.span(Span("local", f"span {at}", at, at + 0.5, 0.0))
        narrator.end(Recorder(lambda: 0.0))
        file.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    narrator.end(Recorder(lambda: 0.0))
    file.close()
    assert len(events(path)) == 2


def test_a_process_that_is_killed_has_begun(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    file = TraceFile(str(path))
    narrator = Narrator(file.append, "git", TRACE)
    narrator.span(Span("local", "plan", 1.0, 1.25, 0.2))
    narrator.request(CallRecord(["Server.ping"], [""], "p", 2.0, 2.5, 10, 20, 300, "ok"))
    assert [type(each).__name__ for each in events(path)] == ["ProcessBegan", "SpanEnded", "RequestEnded"]
    file.close()


def test_a_full_disk_is_noted_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that were written before can be read."""
    path = tmp_path / "trace"
    file = TraceFile(str(path))
    narrator = Narrator(file.append, "git", TRACE)
    real, left, before = os.write, [50], path.stat().st_size

    def write(descriptor: int, content: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, content[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)
    narrator.end(Recorder(lambda: 0.0))
    file.close()
    monkeypatch.undo()
    assert file.problem == "No space left on device"
    assert path.stat().st_size == before + 50
    file = TraceFile(str(path))
    Narrator(file.append, "another", "cd" * 16)
    file.close()
    # Their order is that of the clock, which may be set back meanwhile.
    assert sorted(each.program for each in traces(path.read_bytes().splitlines())) == ["another", "git"]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_what_is_no_ordinary_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "trace"
    match kind:
        case "link":
            (tmp_path / "other").write_bytes(b"")
            path.symlink_to(tmp_path / "other")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path = Path("/dev/null")
    with pytest.raises(OSError, match=re.escape(str(path))):
        TraceFile(str(path))


def test_the_schema_names_every_event() -> None:
    said = schema()
    events = [each for each in said["$defs"].values() if "event" in each.get("properties", ())]
    tags = {each["properties"]["event"]["enum"][0] for each in events}
    assert tags == {"process", "span", "request", "finding", "link", "end", "command"}
    event = CommandEnded(1, "git", TRACE, 0, 5, 0, 1)
    assert set(json.loads(encode(event))) == {"event", *msgspec.structs.asdict(event)}
