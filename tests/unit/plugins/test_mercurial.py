"""plugins.mercurial.compat, phase, markers, credentials: what Mercurial adds to changesets, and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mercurial import changegroup, context, error, hg, localrepo, obsolete, ui

from smartserver.client.medium import ConnectionLost
from smartserver.plugins.mercurial import compat
from smartserver.plugins.mercurial.credentials import source_of
from smartserver.plugins.mercurial.markers import (
    Marker,
    MarkerMemory,
    encode,
    marker_updates,
    stream,
)
from smartserver.plugins.mercurial.peer import HpssPeer
from smartserver.plugins.mercurial.phase import draft_roots, phase_heads
from smartserver.plugins.mercurial.remote import RequestLevel
from smartserver.vcs.hg.kinds import NULL
from smartserver.vcs.hg.markers import KnownVersion, key_of, parse
from smartserver.vcs.hg.repository import HgRepository
from smartserver.verbs.fields import MAX_IDS


@pytest.fixture
def repository(tmp_path: Path) -> localrepo.localrepository:
    try:
        from mercurial import initialization  # Since 7.2.
    except ImportError:
        pass
    else:
        initialization.init()
    made = ui.ui.load()
    return hg.repository(made, bytes(tmp_path / "made"), create=True)


def test_a_repository_takes_changegroups_of_version_3(
    repository: localrepo.localrepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    compat.allow_changegroup_3(repository)
    assert repository.baseui.configsource(b"experimental", b"changegroup3") != b"hpss"
    monkeypatch.setattr(changegroup, "supportedincomingversions", lambda _: {b"01", b"02"})  # As 6.3 has it.
    compat.allow_changegroup_3(repository)
    assert repository.baseui.configsource(b"experimental", b"changegroup3") == b"hpss"


def test_an_error_in_the_middle_of_a_clone(repository: localrepo.localrepository, tmp_path: Path) -> None:
    """Its message does not fit into the 237 bytes of Mercurial's bundles. Each later question raises it again."""
    repository.ui.environ = {**repository.ui.environ, b"XDG_CACHE_HOME": bytes(tmp_path)}
    peer = HpssPeer(repository.ui, b"hpss://127.0.0.1:9/x")
    peer.remote.bind(repository)
    peer.remote.level = RequestLevel.HISTORY

    def body() -> Iterator[bytes]:
        yield b"\x05"
        raise ConnectionLost("lost" * 100)

    peer.remote._receive(body(), 3)
    with pytest.raises(error.Abort, match=r"(lost){100}"):
        list(peer.getbundle(b"pull", bundlecaps={b"HG20"}).iterparts())
    with pytest.raises(error.Abort, match=r"(lost){100}"):
        peer.remote.heads()
    with pytest.raises(error.Abort, match=r"(lost){100}"):
        peer.remote._receive(body(), 0)  # Mercurial would take no changegroup of none.


P, Q, R, S, T = (bytes([n]) * 20 for n in (1, 2, 3, 4, 5))


def test_roots_of_what_came() -> None:
    """A line of three and a side of two that leaves it at the first."""
    came: dict[bytes, tuple[bytes, ...]] = {P: (), Q: (P,), R: (Q,), S: (P,), T: (S,)}
    assert draft_roots(None, came, (), ()) == [P]
    assert draft_roots(None, came, (), (P,)) == [Q, S]
    assert draft_roots(None, came, (), (Q, T)) == [R]
    assert draft_roots(None, came, (), (R, T)) == []
    assert draft_roots(None, {P: (), Q: (P,)}, (), (R,)) == [P]


def test_heads_of_what_came() -> None:
    came: dict[bytes, tuple[bytes, ...]] = {P: (), Q: (P,), R: (Q,), S: (P,), T: (S,)}
    assert phase_heads(None, came, (), (R, T)) == ([], [R, T])
    assert phase_heads(None, came, (R,), (Q, T)) == ([P, Q], [T])
    assert phase_heads(None, came, (Q,), (R,)) == ([Q], [R])


def test_heads_of_what_is_here(repository: localrepo.localrepository) -> None:
    nodes = [NULL]
    for number in range(4):
        made = context.memctx(repository, (nodes[-1], NULL), b"%d" % number, [], lambda *_: None, user=b"u")
        nodes.append(made.commit())
    _, one, two, three, four = nodes
    local = HgRepository(repository)
    assert phase_heads(local, {}, (), (two,)) == ([], [two])
    assert phase_heads(local, {}, (three,), (two, four)) == ([three], [four])
    assert phase_heads(local, {P: (two,), Q: (P,)}, (P,), (Q,)) == ([P], [Q])
    assert phase_heads(local, {P: (two,), Q: (P,)}, (one,), (Q, two)) == ([one], [Q, two])
    assert draft_roots(local, {P: (four,)}, [three], [one]) == [two, P]


class Ui:
    """The part of Mercurial's `ui` that is asked."""

    def __init__(self, auth: dict[str, str], given: str = "", *, interactive: bool = True) -> None:
        self.auth = auth
        self.given = given
        self.asked: list[bytes] = []
        self.is_interactive = interactive

    def configitems(self, section: bytes) -> list[tuple[bytes, bytes]]:
        assert section == b"auth"
        return [(name.encode(), value.encode()) for name, value in self.auth.items()]

    def interactive(self) -> bool:
        return self.is_interactive

    def getpass(self, prompt: bytes, default: bytes) -> bytes:
        self.asked.append(prompt)
        return self.given.encode() or default


def auth(prefix: str, password: str = "hpss_kept", **more: str) -> dict[str, str]:
    return {"x.prefix": prefix, "x.password": password, **{f"x.{name}": value for name, value in more.items()}}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (auth("hpss+tls://example.org"), "hpss_kept"),
        (auth("hpss+tls://example.org:7878/path"), "hpss_kept"),
        (auth("hpss+tls://*"), "hpss_kept"),
        (auth("example.org", schemes="https hpss+tls"), "hpss_kept"),
        (auth("hpss+tls://example.org", "secret"), ""),
        # As in Mercurial these are for https.
        (auth("example.org"), ""),
        (auth("*"), ""),
        (auth("example.org", schemes="https"), ""),
        (auth("https://example.org"), ""),
        (auth("hpss://example.org"), ""),
        (auth("hpss+tls://other.example.org"), ""),
        (
            auth("hpss+tls://*")
            | {"y.prefix": "hpss+tls://example.org", "y.password": "hpss_nearer"}
            | {"z.prefix": "example.org:7878", "z.password": "hpss_web"},
            "hpss_nearer",
        ),
        ({"odd": "x"}, ""),
    ],
)
def test_the_group_that_fits_best(given: dict[str, str], found: str) -> None:
    credentials = source_of(Ui(given))("hpss+tls", "example.org:7878")
    assert credentials.stored() == found


def test_one_that_was_refused_is_given_no_more() -> None:
    ui = Ui(auth("hpss+tls://*"), "typed")
    credentials = source_of(ui)("hpss+tls", "example.org:7878")
    assert credentials.ask() == "hpss_kept"
    credentials.reject()
    assert credentials.stored() == ""
    assert credentials.ask() == "typed"
    assert ui.asked == [b"token for hpss+tls://example.org:7878: "]
    credentials.approve()


def test_nobody_is_asked_where_nobody_is() -> None:
    ui = Ui({}, "typed", interactive=False)
    assert source_of(ui)("hpss", "localhost:7878").ask() == ""
    assert ui.asked == []


ONE, OTHER = b"one" + bytes(13), b"other" + bytes(11)
"""Incarnations of repositories."""


def marker(number: int) -> Marker:
    return (bytes([number]) * 20, (bytes([number + 100]) * 20,), 0, ((b"user", b"u"),), (0.0, 0), None)


A, B, C = marker(1), marker(2), marker(3)


class Files(dict[bytes, bytes]):
    """A folder as Mercurial has it."""

    def tryread(self, path: bytes) -> bytes:
        return self.get(path, b"")

    def write(self, path: bytes, content: bytes, *, atomictemp: bool) -> None:
        assert atomictemp
        self[path] = content


class Repository:
    """A local repository with some markers."""

    def __init__(self, *markers: Marker) -> None:
        self.svfs, self.cachevfs = Files(), Files()
        self.add(*markers)

    def unfiltered(self) -> Repository:
        return self

    def add(self, *markers: Marker) -> None:
        before = self.svfs.tryread(b"obsstore") or stream(b"")
        self.svfs[b"obsstore"] = before + b"".join(map(encode, markers))

    def memory(self, url: bytes = b"hpss://h/p") -> MarkerMemory:
        return MarkerMemory(self, url)

    def unsent(self, *relevant: Marker, incarnation: bytes = ONE) -> list[Marker]:
        return self.memory().unsent(relevant, incarnation)


def version(version: int, incarnation: bytes = ONE) -> KnownVersion:
    return (incarnation, version, version % 7)


def test_what_was_sent_is_not_sent_again() -> None:
    repository = Repository(A, B)
    assert repository.unsent(B, A) == [A, B]
    repository.memory().sent([A], version(4), version(5), is_changed=True)
    assert repository.unsent(A, B) == [B]
    repository.add(C)
    assert repository.unsent(A, B, C) == [B, C]
    repository.memory().sent([B, C], version(5), version(6), is_changed=True)
    assert repository.unsent(A, B, C) == []
    assert MarkerMemory(repository, b"hpss://h/another").unsent([A], ONE) == [A]
    # Of a repository that was recreated there nothing is known.
    assert repository.unsent(A, B, C, incarnation=OTHER) == [A, B, C]


def test_what_was_taken_is_not_sent_back() -> None:
    repository = Repository(A)
    repository.add(B)
    repository.memory().took(encode(B), version(3), is_all=True)
    assert repository.unsent(A, B) == [A]
    assert repository.memory().version == version(3)
    repository.add(C)
    repository.memory().took(encode(C), version(5), is_all=False)
    assert repository.unsent(A, B, C) == [A]
    assert repository.memory().version == version(3)
    repository.memory().took(b"", version(1, OTHER), is_all=True)
    assert repository.unsent(A, incarnation=OTHER) == [A]
    assert repository.memory().version == version(1, OTHER)


def test_what_is_new_there_came_from_here_alone() -> None:
    repository = Repository(A)
    repository.memory().took(b"", version(3), is_all=True)
    repository.memory().sent([A], version(3), version(4), is_changed=True)
    assert repository.memory().version == version(4)
    repository.memory().sent([A], version(4), version(6), is_changed=True)  # Somebody else was there, too.
    assert repository.memory().version == version(4)
    repository.memory().sent([A], version(5), version(6), is_changed=True)
    assert repository.memory().version == version(4)


def test_where_markers_were_removed_nothing_is_known() -> None:
    repository = Repository(A, B)
    repository.memory().took(encode(A), version(3), is_all=True)
    kept = dict(repository.svfs)
    repository.svfs.clear()
    repository.add(B)
    assert repository.memory().version == (b"", 0, 0)
    repository.add(C)  # As long as before.
    assert repository.unsent(A, B) == [A, B]
    repository.svfs.update(kept)
    assert repository.memory().version == version(3)


def test_a_damaged_file() -> None:
    repository = Repository(A)
    repository.memory().took(encode(A), version(3), is_all=True)
    repository.cachevfs[b"hpss-markers"] = b"\xc1"
    assert repository.memory().version == (b"", 0, 0)


def test_updates_of_the_map() -> None:
    many = [(*marker(number % 100)[:4], (float(number), 0), None) for number in range(MAX_IDS + 1)]
    first, second = marker_updates(many)
    assert (first.map, len(first.entries), len(second.entries)) == ("obsolete", MAX_IDS, 1)
    (entry,) = second.entries
    assert entry.value is not None
    assert (entry.key, parse(entry.value).predecessor) == (key_of(entry.value), many[-1][0])
    assert list(obsolete._readmarkers(stream(entry.value))[1]) == [many[-1]]
