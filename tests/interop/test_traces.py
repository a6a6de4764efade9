"""cli.trace, trace.wait: commands of real git, brz and hg, whose whole wait is in their traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_sides import RTT, Served, Side

from smartserver.spans import Part
from smartserver.trace.wait import Trace, traces, wait

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

RUN = 'smartserver trace run -o "$TRACE" --'

GIT = """
git init -q -b main git; cd git; echo one > f; git add f; git commit -q -m one; cd ..
"""
BRZ = (
    "brz init -q brz; cd brz; brz whoami --branch 'A <a@example.org>'; echo one > f; brz add -q f; brz commit -q -m one"
)
HG = "hg init hg; cd hg; echo one > f; hg commit -q -A -m one -u a"


def traced(side: Side, script: str, **variables: str) -> Trace:
    """The trace of the one command of a script that is run under `RUN`."""
    path = side.folder / "trace"
    side.prepare(script.replace("RUN", RUN), TRACE=str(path), **variables)
    (found,) = traces(path.read_bytes().splitlines())
    path.unlink()
    return found


@pytest.mark.parametrize(
    ("tool", "script"),
    [
        ("git", GIT + 'cd git; RUN git push -q "$URL" main'),
        ("brz", BRZ + '; smartserver setup brz; RUN brz push -q "$URL"'),
        ("hg", HG + '; RUN hg --config extensions.hpss= push -q "$URL"'),
    ],
)
def test_the_whole_wait_is_in_it(served: Served, tmp_path: Path, tool: str, script: str) -> None:
    side = Side(tmp_path / "side", served.url(f"trace-{tool}"), served)
    found = traced(side, script)
    assert found.program == tool
    parts = wait(found)
    assert sum(parts.parts.values()) == parts.total
    (end,) = found.ends
    (request,) = found.requests
    # The way to the server and back is a round trip, which the server has no part in.
    assert end.round_trips == 1
    assert parts.parts[Part.LINK] >= RTT * 1e6 * 0.9
    assert {each.part for each in request.server} >= {Part.SERVER, Part.DISK, Part.QUEUED}
    assert request.up <= end.up
    assert parts.parts[Part.START] > 0


def test_commands_that_read(served: Served, tmp_path: Path) -> None:
    """Ones of our own too; an export names what the client does, and a reply with a body tells the rest at its end."""
    side = Side(tmp_path / "side", served.url("trace-read"), served)
    side.prepare(GIT + 'cd git; git push -q "$URL" main')
    stats = traced(side, 'RUN smartserver stats "$URL"')
    assert (stats.program, stats.ends[0].round_trips) == ("smartserver", 1)
    export = traced(side, 'RUN smartserver export "$URL" out')
    assert {each.name for each in export.spans if each.part == Part.LOCAL} >= {"write", "decompress and check"}
    assert min(wait(each).parts[Part.LINK] for each in (stats, export)) >= RTT * 1e6 * 0.9
    (request,) = traced(side, 'RUN git clone -q "$URL" clone').requests
    assert [each.name for each in request.server if each.part == Part.SERVER][-1] == "read"


def test_nothing_is_told_that_nobody_asked_for(served: Served, tmp_path: Path) -> None:
    side = Side(tmp_path / "side", served.url("trace-quiet"), served)
    side.prepare(GIT)
    plain = side.run('cd git; git push -q "$URL" main; echo two > f; git commit -q -a -m two; git push -q "$URL" main')
    detail = side.run(
        'cd git; echo 3 > f; git commit -q -a -m 3; git -c hpss.debug=hpssdetail push -q "$URL" main; rm -rf .git'
    )
    assert plain.said == ""
    assert "  in the server" in detail.said
    assert "  unnamed" in detail.said
