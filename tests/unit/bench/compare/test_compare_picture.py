"""bench.picture: bars as high as the counts, lines through the seconds."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from bench.peers.base import CLONE
from bench.picture import COLOURS, LINES_HEIGHT, lines_svg, step, svg
from compared import TRIPS, comparison

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*rtts: float) -> ElementTree.Element:
    return ElementTree.fromstring(svg(comparison(*rtts)))


def bars(root: ElementTree.Element) -> dict[str, float]:
    """Heights by title."""
    return {
        title: float(bar.attrib["height"])
        for bar in root.iter(f"{SVG}rect")
        if (title := bar.findtext(f"{SVG}title", ""))
    }


def test_a_bar_is_as_high_as_its_count() -> None:
    found = bars(drawn(0.1, 0.2, 0.3))
    assert len(found) == len(TRIPS)
    assert found["git://, clone: 4"] == pytest.approx(2 * found["git over hpss://, clone: 2"], abs=0.2)


def test_what_packets_add_is_outlined() -> None:
    root = drawn(0.1, 0.2, 0.3)
    outlines = [bar for bar in root.iter(f"{SVG}rect") if bar.get("fill") == "none"]
    assert len(outlines) == len(TRIPS) + 1  # and in the legend
    highest = max(float(bar.attrib["height"]) for bar in outlines)
    assert highest == pytest.approx(bars(root)["git://, clone: 4"] * 6 / 4, abs=0.2)


def test_lines_go_through_the_seconds_at_each_rtt() -> None:
    root = drawn(0.1, 0.2, 0.3)
    lines = [line for line in root.iter(f"{SVG}polyline") if line.get("stroke") == COLOURS[1]]
    places = [tuple(map(float, place.split(","))) for place in lines[0].attrib["points"].split()]
    assert len(places) == 3
    (x1, y1), (x2, y2), (x3, y3) = places
    assert (x2 - x1, y2 - y1) == pytest.approx((x3 - x2, y3 - y2), abs=0.2)
    most = comparison(0.1, 0.2, 0.3).costs["packets", "git", CLONE].seconds(0.3)
    assert y1 - y3 == pytest.approx(LINES_HEIGHT * 6 * 0.2 / most, abs=0.2)


def test_each_operation_has_a_panel_and_each_name_a_line_in_it() -> None:
    rtts = (0.0, 0.001, 0.1)
    root = ElementTree.fromstring(
        lines_svg("Pushes & fetches", ["ours", "git"], rtts, {"push": [[1, 2, 3], [2, 4, 6]], "fetch": [[1, 1, 1]] * 2})
    )
    lines = list(root.iter(f"{SVG}polyline"))
    assert [line.get("stroke") for line in lines] == [*COLOURS[:2]] * 2
    assert all(len(line.attrib["points"].split()) == len(rtts) for line in lines)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"Pushes & fetches", "ours", "git", "push", "fetch"} <= {*texts}
    assert (texts.count("100 ms"), texts.count("1 ms"), texts.count("0 ms")) == (2, 2, 0), "labels do not overlap"


def test_what_a_tool_cannot_do_is_a_dash() -> None:
    texts = [text.text for text in drawn(0.1, 0.2, 0.3).iter(f"{SVG}text")]
    assert texts.count("-") == 1


def test_counts_alone_are_drawn_too() -> None:
    assert len(bars(drawn(0.02))) == len(TRIPS)


@pytest.mark.parametrize(("most", "apart"), [(1.0, 0.2), (16, 5), (4, 1), (5, 1), (64, 20), (0.3, 0.1)])
def test_grid_lines_are_at_round_numbers(most: float, apart: float) -> None:
    assert step(most) == pytest.approx(apart)
