"""trace.html: what a page has of a trace, and that no name in it can be anything but text."""

from __future__ import annotations

import re

import msgspec
import pytest
from pages import PageText, hash_of
from traces import HOSTILE, OTHER_ID, push, read

from smartserver.trace.html import Command, Page, Track, command, html
from smartserver.trace.report import CALLED


def tracks(shown: Command) -> dict[str, Track]:
    return {each.title: each for each in shown.tracks}


@pytest.fixture
def shown() -> Command:
    (trace,) = read(push())
    return command(trace)


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
