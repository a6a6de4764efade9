"""trace.html, trace.perfetto, trace.otlp: of any events each view is valid, and has all of them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict

import msgspec
from hypothesis import given
from pages import PageText
from traces import any_events, push, read

from smartserver.trace.events import Event, RequestEnded, SpanEnded
from smartserver.trace.html import REQUEST, WAIT, Page, command, html
from smartserver.trace.otlp import otlp
from smartserver.trace.perfetto import perfetto

PLAIN = PageText(html(read(push())))


@given(any_events())
def test_the_block_of_a_page_is_the_trace(events: list[Event]) -> None:
    found = read(events)
    page = PageText(html(found))
    assert re.fullmatch(r"[\x20-\x7e]+", page.block)
    assert not set("<>&") & set(page.block)
    assert msgspec.json.decode(page.block, type=Page).commands == [command(each) for each in found]
    assert page.attributes == PLAIN.attributes
    assert {**page.texts, "script application/json": PLAIN.block} == PLAIN.texts


@given(any_events())
def test_a_page_has_every_event_and_its_table_adds_up(events: list[Event]) -> None:
    for trace in read(events):
        shown = command(trace)
        assert sum(each.micro for each in shown.shares) == shown.total
        assert sum(each.tenths for each in shown.shares) == (1000 if shown.total else 0)
        bars = Counter(
            (bar.part, bar.name, bar.start + trace.start, bar.end + trace.start)
            for track in shown.tracks
            if track.title != WAIT
            for bar in track.bars
        )
        wanted = Counter((each.part, each.name, each.start, each.end) for each in trace.spans)
        wanted += Counter((REQUEST, "; ".join(each.verbs), each.start, each.end) for each in trace.requests)
        assert wanted <= bars


@given(any_events())
def test_no_bar_of_a_page_is_over_another(events: list[Event]) -> None:
    for trace in read(events):
        for track in command(trace).tracks:
            until: dict[int, int] = defaultdict(lambda: -(2**60))
            for bar in track.bars:
                assert bar.start >= until[bar.row]
                until[bar.row] = bar.end


@given(any_events())
def test_slices_of_a_thread_nest(events: list[Event]) -> None:
    shown = json.loads(perfetto(read(events)))["traceEvents"]
    threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named = {(each["pid"], each["tid"]) for each in shown if each["name"] == "thread_name"}
    for each in shown:
        if each["ph"] == "X":
            assert each["ts"] >= 0
            assert each["dur"] >= 0
            assert each["name"] or not each["cat"]
            threads[each["pid"], each["tid"]].append((each["ts"], each["ts"] + each["dur"]))
    assert named == threads.keys()
    for found in threads.values():
        around: list[int] = []
        for start, end in found:
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)
    counted = sum(isinstance(each, SpanEnded | RequestEnded) for each in events)
    assert counted <= sum(each["ph"] == "X" for each in shown)


@given(any_events())
def test_opentelemetry_takes_each_span(events: list[Event]) -> None:
    names: Counter[str] = Counter()
    ids: dict[str, str] = {}
    parents: list[tuple[str, str]] = []
    for resource in json.loads(otlp(read(events)))["resourceSpans"]:
        for span in resource["scopeSpans"][0]["spans"]:
            assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
            assert re.fullmatch("(?!0+$)[0-9a-f]{16}", span["spanId"])
            assert span["spanId"] not in ids
            assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
            ids[span["spanId"]] = span["traceId"]
            names[span["name"]] += 1
            if span["parentSpanId"]:
                parents.append((span["parentSpanId"], span["traceId"]))
    assert all(ids[parent] == trace for parent, trace in parents)
    assert Counter(each.name for each in events if isinstance(each, SpanEnded) and each.name) <= names
