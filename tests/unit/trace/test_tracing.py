"""trace.tracing: what flags make of a client's calls, for every tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartserver.trace.flags import BadFlag, read
from smartserver.trace.tracing import Tracing


@pytest.mark.parametrize("parent", ["", "nonsense", "01-" + "1" * 32 + "-" + "2" * 16 + "-01", "00-" + "G" * 32])
def test_a_parent_that_is_none_begins_a_trace(tmp_path: Path, parent: str) -> None:
    tracing = Tracing(read([f"hpss-json={tmp_path / 'trace'}"]), print, "git", {"TRACEPARENT": parent})
    version, trace, process, sampled = tracing.traceparent.split("-")
    assert (version, len(trace), len(process), sampled) == ("00", 32, 16, "01")
    tracing.end()


@pytest.mark.parametrize("flag", ["hpss-ban=nonsense", "hpss-json=/nowhere/trace"])
def test_what_cannot_be_done_is_refused(flag: str) -> None:
    with pytest.raises(BadFlag):
        Tracing(read([flag]), print, "git", {})
