"""plugins.mercurial.compat, with the release of Mercurial that the extra installs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from mercurial import changegroup, hg, localrepo, ui

from smartserver.plugins.mercurial import compat


class Named(compat.Peer):
    """A peer with two capabilities."""

    def capabilities(self) -> set[bytes]:
        return {b"lookup", b"bundle2=HG20"}


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


def test_a_peer() -> None:
    peer = Named(ui.ui(), b"hpss://host/x")
    assert peer.peer() is peer
    assert peer.local() is None
    assert peer.path == b"hpss://host/x"


@pytest.mark.parametrize(
    ("name", "has", "value"), [(b"lookup", True, b""), (b"bundle2", True, b"HG20"), (b"known", False, b"")]
)
def test_capabilities(name: bytes, has: bool, value: bytes) -> None:
    peer = Named(ui.ui(), b"hpss://host/x")
    assert (bool(peer.capable(name)), peer.cap_value(name)) == (has, value)
    with pytest.raises(NotImplementedError):
        compat.Peer(ui.ui(), b"hpss://host/x").capabilities()


@pytest.mark.parametrize(
    ("path", "url"),
    [
        (b"hpss://host/x", b"hpss://host/x"),
        (SimpleNamespace(loc=b"hpss://host/x", rawloc=b"hpss://host/x#b"), b"hpss://host/x"),
        (SimpleNamespace(loc=None, rawloc=b"hpss://host/x"), b"hpss://host/x"),
    ],
)
def test_the_url_of_a_path(path: object, url: bytes) -> None:
    assert compat.location(path) == url


def test_a_scheme_is_one_of_mercurials_own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = SimpleNamespace(make_peer=lambda _ui, path, *_, **__: Named(_ui, path))
    monkeypatch.setitem(compat.peer_schemes(), b"hpss", scheme)
    assert isinstance(compat.FACTORY.peer(ui.ui(), {}, b"hpss://host/x"), Named)


def test_the_heads_of_branches() -> None:
    heads = compat.BranchMap({b"default": [b"1" * 20]})
    assert list(heads) == [b"default"]
    assert heads.branchheads(b"default", closed=True) == [b"1" * 20]


def test_a_repository_takes_changegroups_of_version_3(
    repository: localrepo.localrepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    compat.allow_changegroup_3(repository)
    assert repository.baseui.configsource(b"experimental", b"changegroup3") != b"hpss"
    monkeypatch.setattr(changegroup, "supportedincomingversions", lambda _: {b"01", b"02"})  # As 6.3 has it.
    compat.allow_changegroup_3(repository)
    assert repository.baseui.configsource(b"experimental", b"changegroup3") == b"hpss"


def test_what_finds_the_branches_of_a_command() -> None:
    module, name = compat.branch_resolver()
    assert getattr(module, name)(None, Named(ui.ui(), b"hpss://host/x"), (None, []), [b"tip"]) == ([b"tip"], b"tip")
