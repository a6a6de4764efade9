"""bench.ratchet: its table, and its problems."""

from __future__ import annotations

from bench.options import marks, put
from bench.ratchet import Compared, Ratchet, markdown
from bench.ratchet_rows import Row
from ratcheted import figures, measured


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_each_command_has_both_sides_figures_and_a_verdict() -> None:
    found = measured()
    found.rows[1].problems.append("42.1 KB, stock 41.5 KB")
    table = rows(markdown(found))
    assert table[2] == ["push", "11", "15", "15 + 1", "21.0 KB / 7.0 KB", "1", "1 + 1", "1.8 KB / 200 B", "1", "ok"]
    assert table[3][2] == "12 (2 vfs)"
    assert table[3][-1] == "MISSED: 42.1 KB, stock 41.5 KB"
    assert table[4][5:] == ["-", "-", "-", "1", "MISSED: it failed"]
    assert found.problems == ["cat: 42.1 KB, stock 41.5 KB", "reconcile: it failed"]


def test_the_notes_count_what_is_done_and_name_what_moves_more() -> None:
    notes = [line for line in markdown(measured()).splitlines() if line.startswith("- ")]
    assert notes[0] == "- History: 300 revisions. Breezy 3.3.23 on both sides; 2 cores."
    assert "2 of 3 commands are done over hpss://: 2 round trips where bzr:// takes 27, 0 VFS calls" in notes[2]
    assert notes[3] == "- More bytes over hpss://: cat."
    assert len(notes) == 4


def test_the_table_has_a_place_of_its_own_in_a_page() -> None:
    begin, end = marks("ratchet")
    page = put(f"a\n{begin}\nold\n{end}\nb\n", "ratchet", "new")
    assert page == f"a\n{begin}\n\nnew\n\n{end}\nb\n"


def test_as_json_both_sides_are_told() -> None:
    cat = measured().as_json()["rows"][1]
    assert (cat["stock"]["vfs"], cat["ours"]["bytes_down"], cat["budget"]) == (2, 42_000, 1)


def test_of_another_system_its_own_names_stand() -> None:
    found = Ratchet([Compared(Row("clone", "hg clone"), figures(3, 0, 3, 1300, 2000), figures(1, 0, 1, 90, 900))])
    found.tool, found.scheme = "Mercurial", "http://"
    text = markdown(found)
    assert rows(text)[0][:2] == ["command", "http:// calls"]
    assert "Mercurial" in text
    assert "where http:// takes 3" in text
    assert "was" not in text
