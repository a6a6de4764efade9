"""The modules that a whole run of the helper loads: git starts it for every command."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from git_sides import Side

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

ALONE = "SMARTSERVER_AGENT=0; export SMARTSERVER_AGENT;"

HEAVY = {
    "twisted",
    "click",
    "asyncio",
    "importlib.metadata",
    "multiprocessing",
    "zope",
    "paramiko",
    "fastimport",
    "urllib.request",
    "ssl",
}


@pytest.mark.parametrize(
    "command",
    [
        "a commit four; a git push origin main",
        "a git push origin main:new :topic",
        "a git fetch",
        'as c git clone "$URL" c',
        'a git ls-remote "$URL"',
        "SMARTSERVER_DEBUG=hpss; export SMARTSERVER_DEBUG; a git fetch",
    ],
)
def test_a_run_loads_nothing_heavy(ours: Callable[[str], Side], command: str) -> None:
    done = ours("shared").run(f"{ALONE} PYTHONPROFILEIMPORTTIME=1; export PYTHONPROFILEIMPORTTIME; {command}")
    assert done.status == 0, done.said
    # import time: self | cumulative | name
    loaded = {line.rpartition("|")[2].strip() for line in done.err.splitlines() if line.startswith("import time:")}
    assert "smartserver.plugins.git.remote" in loaded
    assert not {name for name in loaded if any(name == heavy or name.startswith(heavy + ".") for heavy in HEAVY)}


def test_the_tracer_tells_a_line_a_call_and_one_of_all(ours: Callable[[str], Side]) -> None:
    side = ours("shared")
    done = side.run(f"{ALONE} a commit four; SMARTSERVER_DEBUG=hpss a git push -q origin main")
    assert done.status == 0, done.said
    call, summary = done.err.splitlines()
    assert call.startswith("hpss: Repository.insert_pack(")
    assert "Branch.set_last_revision(" in call
    assert summary.startswith("hpss: 1 round trip on a fresh connection, 1 call (0 vfs), ")
