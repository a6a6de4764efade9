"""bench.links over packets: a tool's server and clients in namespaces of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.peers.base import CLONE, PUSH_ONE
from benches import bench

pytestmark = [pytest.mark.packets, pytest.mark.interop]


def test_git_is_counted_over_packets(temporary: Path) -> None:
    arguments = ["--rtt", "10ms", "--repeat", "1", "--json"]
    for name in ("packets", "git", CLONE, PUSH_ONE):
        arguments += ["--only", name]
    result = bench(temporary, "compare", *arguments)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    if found["notes"]:
        pytest.skip(found["notes"][0])
    assert {cost["operation"]: cost["rounds"] for cost in found["costs"]} == {CLONE: 4, PUSH_ONE: 3}
    assert all(seconds > 0.01 * cost["rounds"] for cost in found["costs"] for _, seconds in cost["points"])
