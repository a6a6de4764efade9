"""plugins.git.remote: the conversation with git, line by line."""

from __future__ import annotations

import pytest
from git_conversation import MAIN, Conversation, FakeRemote, local_with
from git_local import key

from smartserver.errors import (
    WrongVcs,
)
from smartserver.plugins.git.hint import Hint, parse
from smartserver.plugins.git.terminal import CannotGoOn
from smartserver.wire.messages import Advice, raw

PUSH = parse(["git", "push", "o"])


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("import refs/heads/x\n", "git sent an unknown command: import refs/heads/x"),
        ("push a:b\nfetch c\n\n", "git sent fetch among push commands"),
        ("push a:b\n\n", "push needs a git repository"),
        ("list for-push\n", "push needs a git repository"),
        (f"fetch {key(1).hex()} refs/heads/x\n\n", "fetch needs a git repository"),
    ],
)
def test_what_cannot_be_answered(lines: str, why: str) -> None:
    with pytest.raises(CannotGoOn, match=why):
        Conversation(lines, FakeRemote({})).run()


@pytest.mark.parametrize("name", [b"refs/heads/x\ny", b"refs/heads/x y", b"", b"refs/heads/\x7f", b"\t"])
def test_names_that_would_be_other_lines_are_left_out(name: bytes) -> None:
    refs = {name: key(2), MAIN: key(1)}
    assert "".join(Conversation("list\n", FakeRemote(refs)).run()).count(key(2).hex()) == 0
    here = local_with(main=key(1))
    for hint, value in ((PUSH, "?"), (Hint(), key(1).hex())):
        lines = Conversation("list for-push\n", FakeRemote(refs, known=True), here, hint).run()
        assert lines == [f"{value} refs/heads/main", ""]


@pytest.mark.parametrize("vcs", ["git sha1\n?bad refs/heads/x", "git sha1 sha256", "git ", "git sha512"])
def test_an_object_format_that_is_none_is_no_word_of_a_line(vcs: str) -> None:
    """Git would read further lines of it."""
    conversation = Conversation("list\n", FakeRemote({MAIN: key(1)}, vcs=vcs))
    with pytest.raises(WrongVcs):
        conversation.run()
    assert conversation.answers.getvalue() == b""


@pytest.mark.parametrize("name", [b"refs/heads/a..b", b"refs/heads/../../x", b"trunk", b"refs/heads/" + b"n" * 251])
def test_a_ref_that_git_refuses_is_left_out_and_said(name: bytes) -> None:
    """One that an older server took: git would refuse the whole list for it, or the files of the others."""
    conversation = Conversation("list\n", FakeRemote({MAIN: key(1), name: key(2)}))
    assert conversation.run() == ["@refs/heads/main HEAD", f"{key(1).hex()} refs/heads/main", ""]
    (said,) = conversation.said
    assert said.startswith(f"hpss: hpss://h:1/x: the ref {name.decode()!r} is left out: ")


@pytest.mark.parametrize("quiet", [False, True])
def test_faults_of_a_push_are_shown_unless_git_is_quiet(quiet: bool) -> None:
    talk = Conversation(f"option verbosity {0 if quiet else 1}\nlist\n", FakeRemote({MAIN: key(1)}))
    talk.run()
    talk.git.advised([Advice("faults", raw({"faults": {"badTimezone": [1, "ab"]}})), Advice("newer", raw({}))])
    assert talk.said == ([] if quiet else ["hpss: hpss://h:1/x: taken with faults that git fsck finds: "
                                           "badTimezone in ab"])  # fmt: skip
