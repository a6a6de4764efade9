"""smartserver.trace.text: the lines a person reads, to the character."""

from __future__ import annotations

import pytest

from smartserver.trace.recorder import CallRecord, Recorder
from smartserver.trace.text import line, lines, size, summary


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (1234, "1.2 KB"),
        (999_949, "999.9 KB"),
        (1_000_000, "1.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (7_000_000_000_000, "7.0 TB"),
        (7_000_000_000_000_000, "7000.0 TB"),
    ],
)
def test_size(count: int, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(("count", "shown"), [(999_950, "1.0 MB"), (999_999, "1.0 MB"), (999_999_999, "1.0 GB")])
def test_size_never_rounds_up_to_a_thousand(count: int, shown: str) -> None:
    assert size(count) == shown


def record(verbs: list[str], path: str = "project") -> CallRecord:
    return CallRecord(verbs, ["refs/heads/main"] * len(verbs), path, 10.0, 10.25, 1234, 56, 1500, "ok")


def test_line_of_one_call() -> None:
    assert line(record(["Branch.delete"]), 9.5) == (
        "hpss: Branch.delete(refs/heads/main) on project: ok, 1.2 KB up, 56 B down, "
        "250 ms (1.5 ms in the server), at 500 ms"
    )


def test_line_of_calls_that_go_together() -> None:
    assert line(record(["A.b", "C.d"])).startswith("hpss: A.b(refs/heads/main); C.d(refs/heads/main) on project: ok")


def test_line_of_many_calls_is_short() -> None:
    assert line(record(["Branch.delete"] * 5)).startswith("hpss: Branch.delete(...) and 4 more on project: ok")


def test_line_of_the_server_itself() -> None:
    assert " on /: ok" in line(record(["Server.ping"], ""))


def test_summary_of_nothing() -> None:
    recorder = Recorder(lambda: 5.0)
    assert summary(recorder, 5.5) == "hpss: 0 round trips, 0 calls (0 vfs), 0 B up, 0 B down, 500 ms"


def test_summary_says_what_the_start_took() -> None:
    assert summary(Recorder(lambda: 5.0), 5.5, start=0.04).endswith(" 0 B down, 500 ms after a start of 40 ms")


def test_summary_counts_one_as_one() -> None:
    recorder = Recorder(lambda: 5.0)
    recorder.connecting()
    recorder.round_trips = 1
    recorder.calls.append(record(["get"]))
    recorder.calls[0].is_vfs = True
    recorder.bytes_up, recorder.bytes_down = 1234, 5
    said = summary(recorder, 6.0)
    assert said == "hpss: 1 round trip on a fresh connection, 1 call (1 vfs), 1.2 KB up, 5 B down, 1000 ms"


def test_summary_says_whose_link_is_not_counted() -> None:
    assert summary(Recorder(lambda: 5.0), 5.5, "sftp://h/srv/") == (
        "hpss: 0 round trips, 0 calls, 0 B up, 0 B down, 500 ms, all to a process of this machine; "
        "what that did at sftp://h/srv/ is not counted"
    )


def test_detail_lists_the_calls_that_the_line_leaves_out() -> None:
    for count, listed in ((1, 0), (4, 0), (5, 5)):
        made = record(["A.b"] * count)
        assert list(lines(made, in_detail=True)) == [line(made), *["    A.b(refs/heads/main)"] * listed]
        assert list(lines(made)) == [line(made)]


def test_what_the_server_counted_is_shown_in_detail() -> None:
    found = record(["Branch.delete"])
    found.counts = {"file_reads": 3, "text_cache_hits": 2}
    assert list(lines(found)) == [line(found)]
    assert list(lines(found, in_detail=True)) == [line(found), "    the server counted file_reads 3, text_cache_hits 2"]
