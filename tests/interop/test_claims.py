"""A client's false claims about tips are shown to no other user: with a client that lies, and the tools beside it.

The claims of an earlier release are stored here without `Transaction.prove_tips`; `verify` names and mends them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from brz_sides import Users
from git_sides import TIMEOUT, Served, Side, environment, fine
from hg_sides import HgSide, server_bookmarks
from our_forks import FORKS

from smartserver.cli.copying import repository_at
from smartserver.client.push import PushRequest
from smartserver.client.updates import RefUpdate
from smartserver.records.model import Tip
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.verbs.rules import Rule
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def claim(url: str, *updates: RefUpdate) -> None:
    """Send updates with any claims about tips."""
    with repository_at(url, frozenset()) as remote:
        assert remote.push(PushRequest(updates)).error() is None


def store(root: Path, path: str, change: Callable[[Transaction], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a change as an earlier release did."""

    def plan(transaction: Transaction) -> bytes:
        change(transaction)
        return b"\x90"

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "prove_tips", lambda self: None)
        assert PackRepository(LocalTransport(root), path).commit(bytes(16), 0, "eve", plan).changed


def verify(place: str, *options: str) -> tuple[int, str]:
    words = ("-m", "smartserver.cli.main", "verify", *options, place)
    status, out, err = FORKS.run(*words, timeout=TIMEOUT, environment=environment(Path("/nonexistent")))
    return status, (out + err).decode()


# -- what a tag peels to


PEELED = r"""
cd a
git ls-remote "$URL" "refs/tags/*" | sort > ../there
git show-ref -d --tags | tr " " "\t" | sort > ../here
diff ../here ../there
"""

TAGS = """
cd a
git tag -a -m tree of-tree main^{tree}
git tag -a -m blob of-blob main:one
git push -q origin --tags
"""


def test_what_a_tag_peels_to_is_read_from_the_tag(ours: Callable[[str], Side]) -> None:
    side = ours("shared")
    side.prepare(TAGS)
    tag, main = (bytes.fromhex(side.git("a", "rev-parse", name).strip()) for name in ("nested", "main"))
    for how in (Rule.NEW, Rule.FORCE):
        claim(side.url, RefUpdate(b"refs/tags/nested", tag, how, attributes=main))
    claim(side.url, RefUpdate(b"refs/tags/again", tag, attributes=main))
    claim(side.url, RefUpdate(b"refs/tags/light-too", main, attributes=tag))
    side.prepare("cd a; git tag again nested; git tag light-too main")
    fine(side.run(PEELED), 2)
    with repository_at(side.url, frozenset()) as remote:
        remote.learn_refs()
        assert {name: value[0].attributes for name, value in remote.knowledge.refs().items() if b"heads" in name} == {
            b"refs/heads/main": b"",
            b"refs/heads/topic": b"",
        }


def test_a_stored_claim_of_a_tag_is_named_and_mended(
    ours: Callable[[str], Side], served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = ours("shared")
    path = side.path
    tag, main = (bytes.fromhex(side.git("a", "rev-parse", name).strip()) for name in ("v1", "main"))
    store(served.root, path, lambda made: made.set_ref(b"refs/tags/v1", (Tip(tag, main),)), monkeypatch)
    status, said = verify(str(served.root / path))
    assert (status, "the ref refs/tags/v1 has the attributes" in said, "--mend puts it right" in said) == (
        1,
        True,
        True,
    )
    status, said = verify(side.url, "--mend")
    assert status == 0, said
    assert said.startswith("mended: the ref refs/tags/v1 has the attributes ")
    assert "mended" not in verify(str(served.root / path), "--mend")[1]
    fine(side.run(PEELED), 2)


# -- the number of a revision


def _numbers(users: Users, *, trunk: str = "trunk") -> list[str]:
    """Return brz's output on the remote branch for commands that depend on revision numbers."""
    url = users.url(trunk)
    done = [users.run("a", *words) for words in (["revno", url], ["revision-info", "-r", "2", "-d", url])]
    assert [each.status for each in done] == [0, 0], done
    return [each.out.strip() for each in done]


LONG = b"9" * 3000


def test_the_number_of_a_revision_is_counted(users: Users) -> None:
    right = _numbers(users)
    assert right[0] == "3"
    tip = users.revision("a", 3)
    claim(users.url(""), RefUpdate(b"trunk", tip, Rule.FF, attributes=LONG))
    claim(users.url(""), RefUpdate(b"new", tip, attributes=LONG))
    assert _numbers(users) == _numbers(users, trunk="new") == right
    users.commit("a", "more")
    with repository_at(users.url(""), frozenset()) as remote:
        remote.learn_refs()
        assert {value[0].attributes for value in remote.knowledge.refs().values()} == {b"3"}
    assert users.run("a", "push", users.url()).status == 0
    assert users.served_tip() == (4, users.revision("a", 4))


def test_a_stored_number_ends_no_command(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    tip = users.revision("a", 3)
    store(users.served.root, users.place, lambda made: made.set_ref(b"trunk", (Tip(tip, LONG),)), monkeypatch)
    for words in (["revno"], ["branch", "copy"], ["log", "--line"], ["cat", "-r", "3"], ["missing", "--theirs-only"]):
        at = [users.url() + "/one"] if words[0] == "cat" else [users.url()]
        done = users.run("b", *words[:1], *at, *words[1:])
        assert "Traceback" not in done.err, done.err


# -- bookmarks


HG = """
hg init "$URL"
hg init a
a commit one; a commit two
a hg push -q "$URL"
a hg bookmark -r 0 there; a hg push -q -B there "$URL" || true
"""


def rule(may: str) -> str:
    return f'[[rules]]\nwho = ["*"]\npath = "**"\nmay = "{may}"\n'


ACTIONS = {
    "forward": 'a hg bookmark -f -r 1 there; a hg push -B there "$URL"',
    "create": 'a hg bookmark -r 1 new; a hg push -B new "$URL"',
    "rewind": 'a hg bookmark -f -r 0 there; a hg push -B there "$URL"',
    "delete": 'a hg bookmark -d there; a hg push -B there "$URL"',
}


def test_bookmarks_need_the_rights_of_branches(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    file = folder / "access.toml"
    file.write_text(rule("admin"))
    server = Served(folder, "--access", str(file))
    side = HgSide(tmp_path / "ours", server.url("project"), server)
    side.prepare(HG)
    file.write_text(rule("create"))
    for action, script in ACTIONS.items():
        before = server_bookmarks(server, "project")
        done = side.run(script)
        is_allowed = action in ("forward", "create")
        assert (before != server_bookmarks(server, "project")) is is_allowed, (action, done)
        assert ("the server's access rules allow anonymous" in done.said) is not is_allowed, done
    server.close()
