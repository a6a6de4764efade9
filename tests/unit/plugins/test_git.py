"""plugins.git.remote, options, terminal, words, credentials: the conversation with git, line by line."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest
from git_conversation import MAIN, Conversation, FakeRemote, key, local_with

from smartserver.client.places import ADVICE, parse_place
from smartserver.client.url import TcpLocation
from smartserver.errors import (
    A_GIT_REPOSITORY,
    CorruptFile,
    CorruptRecord,
    LimitExceeded,
    NoSuchRepository,
    OutcomeUnknown,
    WrongVcs,
)
from smartserver.plugins.git.credentials import SILENT, GitCredentials
from smartserver.plugins.git.hint import Hint, parse
from smartserver.plugins.git.options import Options, filters_of
from smartserver.plugins.git.terminal import CannotGoOn, Terminal
from smartserver.plugins.git.words import in_words
from smartserver.records import limits
from smartserver.records.model import BaseTag, Entry
from smartserver.records.segment import STORED, SegmentStream, encode_segment
from smartserver.vcs.base import CannotSend, VcsError, WrongContent
from smartserver.vcs.git.pack import BaseNotHere
from smartserver.vcs.git.selector import BLOBS, TREES, Filter
from smartserver.wire.messages import Advice, raw
from transports.errors import CodedError, NoSpace

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


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def terminal(said: list[str]) -> Terminal:
    made = Terminal(said.append)
    made.shows_progress = True
    return made


def test_progress_is_told_now_and_then_also_within_a_revision(
    terminal: Terminal, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * 0.15)
    for size in (10, 20, 30, 40):
        terminal.moved("Sending", size * 1_000_000, size // 40, 2)
    terminal.moved("Sending", 72_000_000, 2, 2)
    assert said == [
        "Sending:   0% (0/2 revisions), 30.00 MB\r",
        "Sending: 100% (2/2 revisions), 72.00 MB\n",
    ]


def test_what_the_server_says_of_itself(terminal: Terminal, said: list[str]) -> None:
    terminal.server_progress("checking", 1, 2)
    terminal.server_progress("che\x1bcking", 2, 2)
    terminal.server_progress("checking", 2, 0)
    assert said == ["remote: checking  50%\r", "remote: che cking 100%\n", "remote: checking\n"]


OID = "sparse:oid=main:sparse"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (f"filter {OID}", f"hpss: --filter={OID} is not supported: all objects are fetched"),
        ("family ipv6", "hpss: -4 and -6 are not supported: every address of the host may be tried"),
        ("pushcert true", ""),
        ("check-connectivity true", ""),
        ("anything", ""),
    ],
)
def test_what_is_not_supported_is_said_once(option: str, said: str) -> None:
    """`interop/git_rows.py` has the commands of those that are."""
    lines: list[str] = []
    options, terminal = Options(), Terminal(lines.append)
    assert [options.set(option, terminal), options.set(option, terminal)] == [b"unsupported"] * 2
    assert lines == ([said] if said else [])


def test_what_is_set() -> None:
    terminal, options = Terminal(lambda _line: None), Options()
    for option in (
        "progress true",
        "dry-run true",
        "atomic true",
        "refetch yes",
        f"cas refs/heads/a:b:{key(8).hex()}",
        f'cas "refs/heads/dr\\303\\274ck\\"t\\n\\x:{"0" * 40}"',
    ):
        options.set(option, terminal)
    assert terminal.shows_progress
    leases = {b"refs/heads/a:b": key(8), 'refs/heads/dr\u00fcck"t\nx'.encode(): b""}
    assert options == Options(dry_run=True, atomic=True, refetch=True, leases=leases)
    for option in ("progress false", "dry-run false", "atomic false", "refetch false"):
        options.set(option, terminal)
    assert not terminal.shows_progress
    assert options == Options(leases=leases)


def test_push_options_in_their_order() -> None:
    options = Options()
    for option in ("push-option b", 'push-option "a\\tb \\303\\266"', 'push-option "\\377"'):
        options.set(option, Terminal(lambda _line: None))
    assert options == Options(push_options=["b", "a\tb ö", "\\xff"])


def test_where_history_is_cut() -> None:
    terminal, options = Terminal(lambda _line: None), Options()
    for option in (
        "depth 2147483647",
        "deepen-relative true",
        'deepen-since "2 weeks\\tago"',
        "deepen-not v1",
        "deepen-not v2",
    ):
        options.set(option, terminal)
    assert options.deepens
    assert options == Options(
        depth=2147483647, relative=True, since="2 weeks\tago", excluded={b"v1": None, b"v2": None}
    )
    # As before the tags that a fetch follows.
    again = Options(depth=3)
    again.set("depth 0", terminal)
    assert not again.deepens


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("blob:none", [(BLOBS, 0)]),
        ("blob:limit=17", [(BLOBS, 17)]),
        ("blob:limit=2K", [(BLOBS, 2048)]),
        ("tree:0", [(TREES, 0)]),
        ("combine:tree:2+blob%3alimit=1m", [(TREES, 2), (BLOBS, 1 << 20)]),
        ("combine:tree:2+sparse:oid=x", None),
        ("object:type=tree", None),
        ("blob:limit=k", None),
        ("blob:limit=-1", None),
        ("tree:" + 19 * "1", None),
    ],
)
def test_filters(spec: str, found: list[Filter] | None) -> None:
    assert filters_of(spec) == found


@pytest.mark.parametrize(("verbosity", "lines"), [("0", 0), ("1", 1), ("2", 1)])
def test_who_wants_it_quiet_is_told_nothing(verbosity: str, lines: int) -> None:
    """Git says how loud before anything else."""
    said: list[str] = []
    options, terminal = Options(), Terminal(said.append)
    assert options.set(f"verbosity {verbosity}", terminal) == b"ok"
    assert options.set("family ipv6", terminal) == b"unsupported"
    assert len(said) == lines


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            CorruptFile("packs/1.pack", 70, "why"),
            f"the repository 'p' is damaged: packs/1.pack at byte 70: why {ADVICE}",
        ),
        (
            WrongContent(b"\x01\x02", "its content has the id 03"),
            f"the repository 'p' seems to be damaged: object 0102 from the server: its content has the id 03 {ADVICE}",
        ),
        (NoSuchRepository("p"), "there is no repository at 'p'"),
        (NoSpace("p/incoming"), "no space left to write 'p/incoming'"),
        (
            BaseNotHere(b"\x01\x02"),
            "object 0102 is missing here, and what the server sent needs it: run `git fsck` "
            "(if it finds nothing wrong, the server left the object out)",
        ),
        (LimitExceeded("bytes of a record", 7, 6), "a file has 7 bytes, expected no more than 6"),
        (
            LimitExceeded("bytes of a segment", 7, 6),
            "the new content of a commit has 7 bytes (compressed), expected no more than 6",
        ),
        (
            OutcomeUnknown("reset"),
            "it is unknown whether the change was made: reset; look at the repository before you repeat the command",
        ),
        (
            CorruptRecord(b"\x01", b"\x02", "why"),
            "record 02 of revision 01 is not valid: why (`git fsck` shows whether it is damaged here)",
        ),
        (LimitExceeded("calls", 7, 6), "too many calls: 7, at most 6 are allowed"),
        (CannotSend("object 01 is missing"), "object 01 is missing"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_user_reads(error: CodedError | VcsError, words: str) -> None:
    assert in_words(error, TcpLocation("h", 1, "p")) == words


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("hpss+sftp://me@h/srv/code/a%20b", "sftp://me@h/srv/code/a%20b"),
        ("hpss+ssh://h/srv/code/a", "/srv/code/a"),
        ("hpss+ssh://h/~/a", "~/a"),
        ("hpss+ssh://h/~", "~"),
    ],
)
def test_the_path_is_that_of_the_url(url: str, called: str) -> None:
    """Not what is left of it below the folder that happens to be served."""
    said = in_words(CorruptFile("root", 7, "why"), parse_place(url))
    assert said.startswith(f"the repository {called!r} is damaged: root at byte 7")


def test_what_is_said_to_be_run_names_a_place_over_ipv6_as_it_is_read() -> None:
    said = in_words(NoSuchRepository("p", A_GIT_REPOSITORY), TcpLocation("::1", 1, "p"))
    assert "`git push --mirror hpss://[::1]:1/ANOTHER-PATH`" in said
    assert parse_place("hpss://[::1]:1/ANOTHER-PATH") == TcpLocation("::1", 1, "ANOTHER-PATH")


def test_what_a_server_finds_too_large_is_what_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages above are as other releases write them; here it is this one that refuses."""
    stream = SegmentStream(graph_first=False, limit=6)
    with pytest.raises(LimitExceeded) as segment:
        stream.feed(b"\x07")
    monkeypatch.setattr(limits, "MAX_RECORD", 6)
    entry = Entry(0, STORED, b"k", b"", BaseTag.NONE, b"", 7, 7, b"")
    with pytest.raises(LimitExceeded) as record:
        encode_segment(b"r", (), [entry], [b""], ())
    said = [in_words(each.value, TcpLocation("h", 1, "p")) for each in (segment, record)]
    assert said == [
        "the new content of a commit has 7 bytes (compressed), expected no more than 6",
        "a file has 7 bytes, expected no more than 6",
    ]


def test_the_servers_root_is_called_so() -> None:
    for error in (CorruptFile("root", 7, "why"), WrongContent(b"\x01", "why"), NoSuchRepository("")):
        said = in_words(error, TcpLocation("h", 1, ""))
        assert "at the server's root" in said
        assert "''" not in said


WHERE = "localhost:4155"
ABOUT = f"protocol=hpss+tls\nhost={WHERE}\n"


class Git:
    """Answers `git credential fill` as a test says."""

    def __init__(self, *passwords: str) -> None:
        self.passwords = list(passwords)
        self.asked: list[tuple[str, bool, str]] = []

    def __call__(self, words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool) -> bytes:
        assert (variables == SILENT) is quiet
        self.asked.append((words[-1], quiet, said.decode()))
        password = self.passwords.pop(0) if words[-1] == "fill" else ""
        return f"{said.decode().strip()}\nusername=x\npassword={password}\n".encode() if password else b""


def test_a_password_that_is_no_token_is_not_given_and_stays() -> None:
    git = Git("secret", "hpss_a")
    found = GitCredentials("hpss+tls", WHERE, git)
    assert found.stored() == ""
    found.reject()
    assert git.asked == [("fill", True, f"{ABOUT}\n")]
    assert found.ask() == "hpss_a"


@pytest.mark.parametrize("where", ["local\nhost=other:1", "a\x00b:1", "a\rb:1"])
def test_a_host_cannot_name_another_one(where: str) -> None:
    """The lines of git's protocol have no quotes (CVE-2020-5260)."""
    git = Git("hpss_a", "hpss_a")
    assert GitCredentials("hpss", where, git).ask() == ""
    assert git.asked == []
