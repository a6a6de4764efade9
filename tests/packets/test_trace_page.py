"""trace.html in Chromium: opened from disk in a network namespace of its own, used with mouse and keys."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser
from traces import HOSTILE, ID, OTHER_ID, push, read

from smartserver.trace.events import ProcessBegan, SpanEnded
from smartserver.trace.html import html

pytestmark = pytest.mark.packets


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """A page of two commands."""
    path = tmp_path / "slow trace.html"
    path.write_bytes(html(read([*push(), *push("second", trace=OTHER_ID, process=17)])))
    browser.problems.clear()
    browser.open(path)
    return browser


def details(page: Browser) -> str | None:
    """The text of the details, where they are shown."""
    found: str | None = page.value(
        "document.querySelector('aside').hidden ? null : document.querySelector('aside').innerText"
    )
    return found


def focused(page: Browser) -> str | None:
    found: str | None = page.value("document.activeElement.getAttribute('aria-label')")
    return found


def ticks(page: Browser) -> list[str]:
    found: list[str] = page.value("[...document.querySelector('.axis').children].map(each => each.innerText)")
    return found


def test_there_is_no_network(page: Browser) -> None:
    pid = page.process.pid
    assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    devices = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    assert [each.split(":")[0].strip() for each in devices] == ["lo"]


def test_the_table_is_what_python_counted(page: Browser) -> None:
    assert page.value("document.title") == "git project, git second"
    rows = page.value(
        "[...document.querySelector('table').rows].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    assert ["wait for the link", "59.500 ms", "36.1 %"] in rows
    assert ["TCP 1.000 ms"] in rows
    rows = [row for row in rows if len(row) == 3]
    assert rows[-1] == ["the whole wait", "165.000 ms", "100.0 %"]
    assert sum(round(float(row[1].split()[0]) * 1000) for row in rows[:-1]) == 165_000
    assert page.problems == []


def test_a_click_on_a_bar_shows_its_details(page: Browser) -> None:
    assert details(page) is None
    page.click("[data-part=request]")
    said = details(page)
    assert said is not None
    assert "request: Branch.tip project; Repository.open" in said
    assert "Branch.tip project(project)\nRepository.open()" in said
    assert "54.500 ms" in said
    assert "101.500 ms, 61.5 % of the wait" in said
    page.click("aside button")
    assert details(page) is None
    assert page.problems == []


def test_everything_is_reached_with_the_keyboard(page: Browser) -> None:
    tracks = page.value("document.querySelectorAll('.track').length")
    page.press("Tab")
    assert focused(page) == "start: git project, 40.000 ms, at 0.000 ms"
    assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert focused(page) == "local: plan project, 4.000 ms, at 41.000 ms"
    page.press("ArrowDown")
    page.press("ArrowRight")
    assert focused(page) == "local: read project, 5.000 ms, at 45.000 ms"
    page.press("Enter")
    assert "processor time\n4.000 ms" in (details(page) or "")
    assert focused(page) == "local: read project, 5.000 ms, at 45.000 ms"
    page.press("ArrowUp")
    assert focused(page) == "local: read project, 5.000 ms, at 45.000 ms"
    page.press("Escape")
    assert details(page) is None
    page.press("Tab")  # Each track has one place, where it was left.
    assert focused(page) == "local: read project, 5.000 ms, at 45.000 ms"
    page.press("Tab")
    assert focused(page) == "request: Branch.tip project; Repository.open, 101.500 ms, at 54.500 ms"
    for _ in range(tracks - 3):
        page.press("Tab")
    assert page.value("[...document.querySelectorAll('.track')].at(-1).contains(document.activeElement)")
    assert page.problems == []


def test_zoom_and_move_by_keys_and_wheel(page: Browser) -> None:
    whole = ticks(page)
    assert whole[0] == "0 ms"
    page.press("+")
    page.press("+")
    closer = ticks(page)
    assert (closer[0], closer[-1]) == ("65 ms", "100 ms")
    page.press("ArrowRight")
    assert (ticks(page)[0], ticks(page)[-1]) == ("75 ms", "110 ms")
    page.press("-")
    page.press("0")
    assert ticks(page) == whole
    x, y = page.middle(".track")
    page.do("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-500)
    closer = ticks(page)
    assert closer != whole
    page.do("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=200, deltaY=0)
    assert ticks(page) != closer
    assert page.problems == []


def test_thin_bars_are_joined_until_one_zooms_in(browser: Browser, tmp_path: Path) -> None:
    spans = [SpanEnded(7, "local", at, at + 100, "read") for at in range(1_062_500, 1_102_500, 200)]
    began, *_, ended = push()
    (tmp_path / "thin.html").write_bytes(html(read([began, *spans, ended])))
    browser.open(tmp_path / "thin.html")
    labels = "[...document.querySelectorAll('.track')[1].children].map(each => each.title)"
    drawn = browser.value(labels)
    assert 1 < len(drawn) < 150
    joined = [int(found[1]) for each in drawn if (found := re.search(r"and (\d+) more", each))]
    assert len(drawn) + sum(joined) == len(spans) + 1  # And the start.
    for _ in range(4):
        browser.press("+")
    closer = browser.value(labels)
    assert 40 < len(closer) < 60
    assert set(closer) == {"local: read, 0.100 ms"}


def test_hostile_names_do_nothing_and_are_seen(browser: Browser, tmp_path: Path) -> None:
    for name in HOSTILE:
        (tmp_path / "hostile.html").write_bytes(html(read(push(name))))
        browser.problems.clear()
        browser.open(tmp_path / "hostile.html")
        browser.click("[data-part=request]")
        said = browser.value("document.querySelector('h2').textContent") + (details(browser) or "")
        shown = re.sub(
            "[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200f]", lambda each: f"\\u{{{ord(each[0]):x}}}", name
        )
        assert f"git {shown}: 165.000 ms" in said
        assert not set(said) & set("\0\x1b\u2028\u202e\u2067")
        assert browser.value("document.scripts.length") == 2
        assert browser.value("document.title") == f"git {shown}"
        assert browser.problems == []


def test_a_trace_without_a_wait_and_parts_with_names_of_javascript(browser: Browser, tmp_path: Path) -> None:
    parts = [SpanEnded(17, part, 0, 9) for part in ("constructor", "__proto__", "toString", "track")]
    events = [ProcessBegan(7, 1, "empty", ID, 5), ProcessBegan(17, 1, "odd", OTHER_ID, 0), *parts]
    (tmp_path / "odd.html").write_bytes(html(read(events)))
    browser.problems.clear()
    browser.open(tmp_path / "odd.html")
    assert browser.value("document.querySelectorAll('.track').length") == 2
    for _ in range(2):
        browser.press("Tab")
    browser.press("ArrowRight")
    browser.press("Enter")
    assert (details(browser) or "").startswith("Close\n__proto__")
    browser.press("ArrowUp")
    browser.press("ArrowUp")
    assert browser.problems == []


def test_what_is_not_its_own_is_refused(page: Browser, tmp_path: Path) -> None:
    """The policy works, and a problem is seen."""
    path = tmp_path / "slow trace.html"
    more = b"<script>document.title = 'changed'</script><img src='https://example.org/x'></html>"
    path.write_bytes(path.read_bytes().replace(b"</html>", more))
    page.open(path)
    assert page.value("document.title") == "git project, git second"
    assert len([each for each in page.problems if "Content Security Policy" in each]) == 2
