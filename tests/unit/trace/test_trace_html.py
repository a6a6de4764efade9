"""trace.html: what a page has of a trace, and that no name in it can be anything but text."""

from __future__ import annotations

import re

import msgspec
import pytest
from pages import PageText, hash_of
from traces import HOSTILE, OTHER_ID, push, read

from smartserver.spans import Part
from smartserver.trace.html import REQUEST, Bar, Command, Page, Track, command, html
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
