"""trace.tracing: what flags make of a client's calls, for every tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartserver.spans import Part, span
from smartserver.trace.bans.watcher import Watcher
from smartserver.trace.events import SpanEnded, decode
from smartserver.trace.flags import BadFlag, read
from smartserver.trace.recorder import CallRecord
from smartserver.trace.tracing import Tracing

RECORD = CallRecord(["Branch.delete"] * 5, ["x"] * 5, "p", 1.0, 1.5, 10, 20, 300, "ok")


def test_without_flags_nothing_is_watched() -> None:
    said: list[str] = []
    tracing = Tracing(read([]), said.append, "git", {})
    with tracing.listening(), span(Part.LOCAL, "a"):
        pass
    tracing.close()
    assert (tracing.observers, tracing.recorder, tracing.traceparent, said) == ([], None, "", [])


@pytest.mark.parametrize(
    ("flag", "count", "parts"), [("hpss", 1, []), ("hpssdetail", 6, ["start", "unnamed"]), ("hpssvfs", 1, [])]
)
def test_calls_are_shown_as_they_end_and_then_summed_up(flag: str, count: int, parts: list[str]) -> None:
    said: list[str] = []
    tracing = Tracing(read([flag]), said.append, "git", {})
    tracing._finished(RECORD)
    tracing.close()
    assert len(said[0].splitlines()) == count
    assert said[1].startswith("hpss: 0 round trips")
    assert [line.split()[0] for line in "\n".join(said[2:]).splitlines()] == parts


def test_a_trace_is_written_and_belongs_to_the_command(tmp_path: Path) -> None:
    path, trace = tmp_path / "trace", "12" * 16
    said: list[str] = []
    environment = {"TRACEPARENT": f"00-{trace}-{'34' * 8}-01"}
    tracing = Tracing(read([f"hpss-json={path}"]), said.append, "git", environment)
    assert tracing.traceparent.startswith(f"00-{trace}-")
    assert tracing.traceparent.endswith("-01")
    with tracing.listening(), span(Part.LOCAL, "a"):
        pass
    tracing._finished(RECORD)
    tracing.close()
    tracing.end()  # It ended.
    found = [decode(line) for line in path.read_bytes().splitlines()]
    assert [type(each).__name__ for each in found] == ["ProcessBegan", "SpanEnded", "RequestEnded", "ProcessEnded"]
    assert isinstance(found[1], SpanEnded)
    assert found[1].name == "a"
    assert said == []


@pytest.mark.parametrize("parent", ["", "nonsense", "01-" + "1" * 32 + "-" + "2" * 16 + "-01", "00-" + "G" * 32])
def test_a_parent_that_is_none_begins_a_trace(tmp_path: Path, parent: str) -> None:
    tracing = Tracing(read([f"hpss-json={tmp_path / 'trace'}"]), print, "git", {"TRACEPARENT": parent})
    version, trace, process, sampled = tracing.traceparent.split("-")
    assert (version, len(trace), len(process), sampled) == ("00", 32, 16, "01")
    tracing.end()


def test_rules_ban() -> None:
    tracing = Tracing(read(["hpss-ban=silly"]), print, "git", {})
    assert [type(each) for each in tracing.observers] == [Watcher]


@pytest.mark.parametrize("flag", ["hpss-ban=nonsense", "hpss-json=/nowhere/trace"])
def test_what_cannot_be_done_is_refused(flag: str) -> None:
    with pytest.raises(BadFlag):
        Tracing(read([flag]), print, "git", {})
