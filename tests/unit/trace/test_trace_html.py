"""trace.html: what a page has of a trace, and that no name in it can be anything but text."""

from __future__ import annotations

import re

import msgspec
import pytest
from pages import PageText, hash_of
from traces import HOSTILE, OTHER_ID, push, read

from smartserver.spans import Part
from smartserver.trace.events import Event, LinkMeasured, ProcessBegan, RequestEnded, SpanEnded
from smartserver.trace.html import MARGIN, REQUEST, Bar, Command, Page, Track, command, html
from smartserver.trace.report import CALLED


def tracks(shown: Command) -> dict[str, Track]:
    return {each.title: each for each in shown.tracks}


@pytest.fixture
def shown() -> Command:
    (trace,) = read(push())
    return command(trace)


def test_the_table_sums_to_the_whole_wait(shown: Command) -> None:
    assert (shown.program, shown.total) == ("git project", 165_000)
    assert shown.counted == "2 round trips, 1 fresh connection"
    assert sum(each.micro for each in shown.shares) == shown.total
    assert sum(each.tenths for each in shown.shares) == 1000
    shares = {each.part: each for each in shown.shares}
    assert (shares[Part.LINK].called, shares[Part.LINK].micro) == ("wait for the link", 59_500)
    assert [shares[part].micro for part in (Part.QUEUED, Part.DISK, Part.SERVER)] == [1_000, 4_000, 35_500]
    assert shares[Part.LOCAL].names == [
        ("plan project", 6_000),
        ("git project, after the last call", 5_000),
        ("read project", 5_000),
    ]


def test_the_wait_has_no_gap_and_spans_nest(shown: Command) -> None:
    wait, own, *_ = shown.tracks
    assert [wait.bars[0].start, *(each.end for each in wait.bars)] == [*(each.start for each in wait.bars), 165_000]
    assert [(bar.row, bar.start, bar.end, bar.part, bar.name) for bar in own.bars[:3]] == [
        (0, 0, 40_000, "start", "git project"),
        (0, 41_000, 52_000, "local", "plan project"),
        (1, 45_000, 50_000, "local", "read project"),
    ]
    assert own.bars[2].facts == {"processor time": ["4.000 ms"], "times": ["3"]}


def test_a_request_tells_what_it_was(shown: Command) -> None:
    first, second = tracks(shown)["requests of process 7"].bars
    assert first == Bar(
        0, 54_500, 156_000, REQUEST, "Branch.tip project; Repository.open",
        {
            "calls": ["Branch.tip project(project)", "Repository.open()"], "on": ["project"], "result": ["ok"],
            "sent": ["967 B"], "received": ["447 B"], "in the server": ["39.000 ms"],
            "first bytes after": ["100.500 ms"],
        },
    )  # fmt: skip
    assert second.facts["called from"] == ["project.py:3 in f"]


def test_the_server_is_drawn_within_its_margin(shown: Command) -> None:
    bars = tracks(shown)["the server of process 7, by its own clock"].bars
    assert [(bar.row, bar.start, bar.end, bar.part) for bar in bars] == [
        (0, 54_500, 155_000, MARGIN), (1, 84_500, 85_500, "queued"), (1, 85_500, 125_000, "server"),
        (2, 89_500, 93_500, "disk"), (0, 157_000, 158_000, MARGIN), (1, 157_350, 157_650, "server"),
    ]  # fmt: skip
    assert bars[0].facts["earlier or later by"] == ["30.000 ms"]


def test_requests_at_the_same_time_have_servers_below_each_other() -> None:
    first = next(each for each in push() if isinstance(each, RequestEnded))
    events: list[Event] = [push()[0], first, msgspec.structs.replace(first, start=first.start + 10), push()[-1]]
    (trace,) = read(events)
    bars = tracks(command(trace))["the server of process 7, by its own clock"].bars
    assert [bar.row for bar in bars if bar.part == MARGIN] == [0, 3]
    assert [bar.row for bar in tracks(command(trace))["requests of process 7"].bars] == [0, 1]


def test_a_part_of_a_later_release_is_shown_by_its_name() -> None:
    (trace,) = read([push()[0], SpanEnded(7, "teleport", 1_040_000, 1_050_000), push()[-1]])
    assert ("teleport", "teleport", 10_000) in [(each.part, each.called, each.micro) for each in command(trace).shares]


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


def test_each_part_has_its_colour() -> None:
    style = PageText(html(read(push()))).texts["style"]
    assert all(f"\n[data-part={part}] {{ background:" in style for part in (*Part, "unnamed", MARGIN, REQUEST))
    drawn = re.findall(rf"^\[data-part=(?:{'|'.join(Part)})\] {{ (background: .*?);", style, re.MULTILINE)
    assert len(drawn) == len(set(drawn)) == len(Part)


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


def test_what_has_no_bar_has_no_track() -> None:
    (trace,) = read([ProcessBegan(7, 1, "empty", OTHER_ID, 5)])
    assert (command(trace).shares, command(trace).tracks) == ([], [])


def test_what_the_kernel_knew_of_a_connection_is_told() -> None:
    (trace,) = read([*push(), LinkMeasured(7, 50_000, 40_000, 10, 1448, 20, 1, 0)])
    assert command(trace).links == [
        "TCP: RTT 50.0 ms (least 40.0 ms), window of 10 packets, 1 of 20 packets sent again"
    ]
