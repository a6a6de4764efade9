"""bench.baseline: its table, its bars, and one way measured for real."""

from __future__ import annotations

import json

import pytest
from bench.baseline import Baseline, markdown, page, shortfalls
from bench.command import command
from bench.ways import REPACK, ROWS, RPC, SFTP, VFS, WAYS, ByRpc
from click.testing import CliRunner

from smartserver.cli.servers import LinkCost


def test_a_bar_is_a_third_of_what_breezy_needs() -> None:
    for row in ROWS:
        for way, breezy in row.breezy.items():
            assert row.bars[way] <= breezy // 3, row.name
    assert {way.name for way in WAYS} == {RPC, VFS, SFTP}


def test_the_table() -> None:
    found = Baseline(
        1.0, WAYS, {("clone", SFTP): LinkCost(34, 16.2, 4_700, 111_500), ("clone", RPC): LinkCost(2, 2.8, 170, 72_700)}
    )
    (line,) = [line for line in markdown(found).splitlines() if line.startswith("| clone")]
    assert (
        line == "| clone | 34, 4.7 KB + 111.5 KB, 16.2 s | 33 MISSED | 99 | - |  | 36 "
        "| 2 (1 of them to connect), 170 B + 72.7 KB, 2.8 s | 2 |"
    )
    found.costs["lock and unlock", RPC] = LinkCost(1, 1.0, 85, 468)
    assert "| 1, 85 B + 468 B, 1.0 s | 1 |" in markdown(found)
    assert "| put 1 B * | - |" in markdown(found)
    assert all(row.saved in page(found) for row in ROWS)
    (cost,) = [each for each in found.as_json()["costs"] if each["way"] == SFTP]
    assert (cost["rounds"], cost["bar"], cost["breezy"]) == (34, 33, 99)


def test_a_way_that_is_none() -> None:
    result = CliRunner().invoke(command, ["baseline", "--only", "ftp"])
    assert result.exit_code == 2
    assert "there is sftp, vfs, rpc" in result.output


def test_what_was_not_measured_is_a_problem() -> None:
    every = {
        (row.name, way.name): LinkCost(row.bars[way.name], 1.0, 1, 1)
        for row in ROWS
        for way in WAYS
        if way.name in row.bars
    }
    assert list(shortfalls(Baseline(1.0, WAYS, every))) == []
    less = {each: cost for each, cost in every.items() if each != ("clone", VFS)}
    less["pull one revision", RPC] = LinkCost(3, 1.0, 1, 1)
    assert list(shortfalls(Baseline(1.0, WAYS, less))) == [
        "pull one revision, RPC: 3 round trips, bar 2",
        "clone, VFS verbs: was not measured",
    ]
    # Nobody made the packs of the repack.
    alone = {each: cost for each, cost in every.items() if each[1] == RPC and each[0] != REPACK}
    assert list(shortfalls(Baseline(1.0, [ByRpc], alone))) == []


def test_the_pages_are_not_written_with_some_ways() -> None:
    result = CliRunner().invoke(command, ["baseline", "--write", "--only", "rpc"])
    assert result.exit_code == 2
    assert "--write takes no --only" in result.output


@pytest.mark.sockets
@pytest.mark.interop
def test_one_way_for_real() -> None:
    result = CliRunner().invoke(command, ["baseline", "--rtt", "5ms", "--only", "rpc", "--json"])
    assert result.exit_code == 0, result.output
    costs = {each["operation"]: each["rounds"] for each in json.loads(result.stdout)["costs"]}
    expected = ("new repository", "push one revision", "push a new branch", "pull one revision", "clone")
    assert costs == {"lock and unlock": 1, **dict.fromkeys(expected, 2)}
