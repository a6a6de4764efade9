"""Several writers at once, through one server and through two that know nothing of each other."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from serving import SMARTSERVER, Server, User, check_store, is_tidy, lanes, run, server_refs, wait_until, write_history

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

WRITERS = 4
PUSHES = 6
REFS = 4


@pytest.mark.parametrize("servers", [1, 2])
def test_every_acknowledged_tip_is_there(tmp_path: Path, servers: int) -> None:
    """Each push moves four refs at once; the first four make the repository at the same moment."""
    root = tmp_path / "root"
    root.mkdir()
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(Server(root)) for _ in range(servers)]

        def write(writer: int) -> dict[str, str]:
            user = User(tmp_path / f"user{writer}")
            commits = write_history(user, "w", PUSHES * REFS, seed=f"writer {writer}", size=1_000)
            url = running[writer % servers].url("p")
            tips: dict[str, str] = {}
            for at in range(0, len(commits), REFS):
                tips = {f"refs/heads/w{writer}-{n}": commits[at + n] for n in range(REFS)}
                refspecs = [f"{commit}:{ref}" for ref, commit in tips.items()]
                user.git("push", "--atomic", url, *refspecs, folder="w").worked()
                now = server_refs(root, "p")
                assert {ref: now[ref] for ref in tips} == tips, "acknowledged and not there"
            return tips

        expected = {ref: tip for tips in lanes(WRITERS, write) for ref, tip in tips.items()}
        assert server_refs(root, "p") == expected
        wait_until(lambda: is_tidy(root, "p"), "what follows the answers is done")
        check_store(root, "p")
        assert run(*SMARTSERVER, "verify", str(root / "p")).worked().out.endswith("all well\n")
        user = User(tmp_path / "reader")
        user.git("clone", "-q", "--mirror", running[-1].url("p"), "c").worked()
        assert user.git("fsck", "--strict", "--no-progress", folder="c").worked().err.count("error") == 0
        listed = user.git("for-each-ref", "--format=%(refname) %(objectname)", folder="c").worked().out.splitlines()
        assert dict(line.split() for line in listed) == expected
        count = user.git("rev-list", "--count", "--all", folder="c").worked().out
        assert int(count) == WRITERS * PUSHES * REFS


def test_one_ref_has_one_winner(tmp_path: Path) -> None:
    """Writers who move the same ref from the same tip: one is told yes, the others no, and the ref is the winner's."""
    root = tmp_path / "root"
    root.mkdir()
    template = User(tmp_path / "template")
    write_history(template, "w", 1, seed="base", size=100)
    with Server(root) as first, Server(root) as second:
        template.git("push", "-q", first.url("p"), "main", folder="w").worked()

        def write(writer: int) -> tuple[int, str]:
            user = User(tmp_path / f"user{writer}")
            user.git("clone", "-q", "--no-hardlinks", str(template.home / "w"), "w").worked()
            user.git("commit", "-q", "--allow-empty", "-m", f"of {writer}", folder="w").worked()
            url = (first, second)[writer % 2].url("p")
            done = user.git("push", url, "main", folder="w")
            assert done.status == 0 or "[rejected]        main -> main (fetch first)" in done.err, done
            return done.status, user.tip("w")

        results = lanes(WRITERS, write)
        assert sorted(status for status, _ in results) == [0] + [1] * (WRITERS - 1)
        assert server_refs(root, "p") == {"refs/heads/main": next(tip for status, tip in results if status == 0)}
        check_store(root, "p")
