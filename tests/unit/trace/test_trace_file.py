"""trace.file, events, html, perfetto: what a process writes down, and the pages and files made of it."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from traces import HOSTILE, OTHER_ID, push, read

from smartserver.trace.events import CommandEnded, Event, RequestEnded, SpanEnded, decode, encode, schema
from smartserver.trace.file import Narrator, TraceFile
from smartserver.trace.html import Command, Page, Track, html
from smartserver.trace.perfetto import REQUESTS, SERVER, SPANS, WAIT, perfetto
from smartserver.trace.recorder import CallRecord, Recorder, Span
from smartserver.trace.report import CALLED
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


def tracks(shown: Command) -> dict[str, Track]:
    return {each.title: each for each in shown.tracks}


def test_the_page_has_each_command_and_runs_nothing_but_its_own() -> None:
    page = PageText(html(read([*push(), *push("second", trace=OTHER_ID, process=17)])))
    content = msgspec.json.decode(page.block, type=Page)
    assert [each.program for each in content.commands] == ["git project", "git second"]
    assert content.called.items() >= CALLED.items()
    assert page.policy == (
        f"default-src 'none'; script-src {hash_of(page.texts['script'])}; style-src {hash_of(page.texts['style'])}; "
        "base-uri 'none'; form-action 'none'"
    )
    assert {name for name, _ in page.attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "role", "aria-label", "aria-live", "hidden", "id",
        "type",
    }  # fmt: skip


def test_the_page_asks_for_nothing_and_makes_no_markup_of_text() -> None:
    page = PageText(html(read(push())))
    code = page.texts["script"] + page.texts["style"]
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch(")
    assert not [each for each in (*forbidden, "url(", "@import", "import(", "http:", "https:", "src") if each in code]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text(name: str) -> None:
    page, plain = PageText(html(read(push(name)))), PageText(html(read(push())))
    assert re.fullmatch(r"[\x20-\x7e]+", page.block)
    assert not set("<>&") & set(page.block)
    assert page.texts.keys() == plain.texts.keys()
    assert page.attributes == plain.attributes
    (shown,) = msgspec.json.decode(page.block, type=Page).commands
    assert shown.program == f"git {name}"
    assert tracks(shown)["requests of process 7"].bars[0].facts["on"] == [name]


def slices(events: list[Event], process: int, thread: int) -> list[tuple[str, str, int, int]]:
    shown = json.loads(perfetto(read(events)))["traceEvents"]
    return [
        (each["cat"], each["name"], each["ts"], each["dur"])
        for each in shown
        if (each["ph"], each["pid"], each["tid"]) == ("X", process, thread)
    ]


def test_each_thread_has_its_slices() -> None:
    assert slices(push(), 7, SPANS) == [
        ("start", "git project", 0, 40_000), ("local", "plan project", 41_000, 11_000),
        ("local", "read project", 45_000, 5_000), ("connect", "TCP", 53_000, 1_000),
        ("link", "wait for the link", 55_000, 100_000),
    ]  # fmt: skip
    assert slices(push(), 7, REQUESTS) == [
        ("request", "Branch.tip project; Repository.open", 54_500, 101_500), ("request", "get", 157_000, 1_000),
    ]  # fmt: skip
    assert slices(push(), 7, SERVER)[:3] == [
        ("server", "somewhere in this time", 54_500, 100_500), ("queued", "queued", 84_500, 1_000),
        ("server", "commit project", 85_500, 39_500),
    ]  # fmt: skip
    assert sum(length for *_, length in slices(push(), 6, WAIT)) == 165_000


def test_what_does_not_nest_is_on_a_thread_of_its_own() -> None:
    request = next(each for each in push() if isinstance(each, RequestEnded))
    within = msgspec.structs.replace(request, start=request.start + 10, end=request.end - 10)
    crossing = SpanEnded(7, "local", 1_050_500, 1_053_500, "crossing")
    events = [*push(), within, crossing]
    assert [name for _, name, *_ in slices(events, 7, SPANS + 1)] == ["crossing"]
    assert [start for *_, start, _ in slices(events, 7, REQUESTS + 1)] == [54_510]


class PageText(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        """The text of each script and style, by its tag and type."""
        self.attributes: list[tuple[str, str | None]] = []
        self.policy = ""
        self._within = ""
        self.feed(page.decode())
        self.close()

    @property
    def block(self) -> str:
        """Return the JSON of the trace."""
        return self.texts["script application/json"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.attributes += attrs
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        self._within = ""
        if tag in ("script", "style"):
            self._within = f"{tag} {given.get('type') or ''}".strip()
            assert self._within not in self.texts, "one of each"
            self.texts[self._within] = ""

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within:
            self.texts[self._within] += data


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
