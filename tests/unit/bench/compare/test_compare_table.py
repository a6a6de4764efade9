"""bench.compare, bench.options: cells, notes, and the place between two marks of a page."""

from __future__ import annotations

import pytest
from bench.compare import agreement, markdown
from bench.options import marks, put
from bench.peers.base import CLONE
from compared import comparison

from smartserver.cli.errors import CommandError
from smartserver.cli.servers import LinkCost

BEGIN, END = marks("compare")


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_each_network_has_a_table_of_rounds_slope_and_seconds() -> None:
    text = markdown(comparison(0.1, 0.2, 0.3))
    proxy, packets = text.split("**On ")[1:]
    assert proxy.startswith("`netem proxy`")
    assert packets.startswith("`netem run`")
    assert rows(proxy)[0] == ["operation", "git over hpss://", "git://"]
    assert rows(proxy)[2] == ["clone", "2 / 2.0 / 1.10 s", "4 / 4.0 / 1.70 s"]
    assert rows(packets)[2] == ["clone", "2 / 4.0 / 1.70 s", "4 / 6.0 / 2.30 s"]
    assert rows(proxy)[-1] == ["push a new repository", "2 / 2.0 / 1.10 s", "-"]
    assert "seconds at 300 ms (RTT 100, 200, 300 ms, 1 run each" in proxy
    assert "no timer beside it was more than 4 ms late." in proxy
    assert "packets were let out no more than 4 ms after they were due, and how long" in packets


def test_a_slope_off_its_line_is_marked() -> None:
    found = comparison(0.1, 0.2, 0.3)
    assert "~" not in markdown(found)
    found.costs["packets", "git", CLONE].costs[1] = (0.2, LinkCost(4, 1.9, 0, 0))
    text = markdown(found)
    assert rows(text.split("**On ")[2])[2][2].startswith("4 / ~6.0 / ")
    assert "- ~: a run lies over 30 ms off the line" in text


def test_one_rtt_has_no_slope() -> None:
    text = markdown(comparison(0.02))
    assert rows(text)[2] == ["clone", "2 / 0.54 s", "4 / 0.58 s"]
    assert "slope" not in text


def test_the_notes_name_versions_load_and_what_is_missing() -> None:
    notes = [line for line in markdown(comparison(0.02)).splitlines() if line.startswith("- ")]
    assert notes[0] == "- git version 9; 2 cores; load 0.2 to 1.5 while it ran."
    assert "- hg http:// is not here: hg is not installed." in notes
    assert any("git:// cannot make a repository" in note for note in notes)


def test_an_earlier_count_that_was_another_is_named() -> None:
    found = comparison(0.02)
    text = "2 of 2 counts on the proxy are within one round trip of an earlier instrument's"
    assert agreement(found) == [text]
    found.costs["proxy", "git", CLONE].costs = [(0.02, LinkCost(6, 0.5, 0, 0))]
    assert agreement(found) == [text.replace("2 of 2", "1 of 2") + "; not: git:// clone (6, then 4)"]


def test_the_page_keeps_what_is_around_the_marks() -> None:
    found = comparison(0.02)
    before = f"# Page\n\n{BEGIN}\nold\n{END}\n\n## Next\n"
    after = put(before, "compare", markdown(found))
    assert after.startswith(f"# Page\n\n{BEGIN}\n\n**On ")
    assert after.endswith(f"\n\n{END}\n\n## Next\n")
    assert "old" not in after
    assert put(after, "compare", markdown(found)) == after


@pytest.mark.parametrize("text", ["", BEGIN, f"{END} {BEGIN}"])
def test_a_page_without_marks_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="the page lacks a line"):
        put(text, "compare", "")
