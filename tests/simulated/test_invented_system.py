"""A server of a system that nothing of ours knows: it is one object, which is registered (`records.system`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from invented import BRANCH, NEW, SLATE, Slates, use
from simulated_joint import Joint

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, RefUpdate
from smartserver.errors import CorruptRecord, InvalidName, MissingReference, Unsupported, WrongVcs
from smartserver.records.model import Kind
from smartserver.records.system import SYSTEMS
from smartserver.store.repository import PackRepository
from smartserver.verbs.repository_pull import TreesField


@pytest.fixture
def client(joint: Joint) -> Iterator[Client]:
    with joint.client() as client:
        yield client


def remote(client: Client) -> RemoteRepository:
    return RemoteRepository(client, "slates", Knowledge(None, "slates"))


def test_all_that_a_server_does(client: Client) -> None:
    use(client, "slates")


def test_its_references_are_proved(client: Client) -> None:
    with pytest.raises(MissingReference):
        remote(client).push(PushRequest([RefUpdate(BRANCH, Slates(3).notes[-1])], Slates(3, forgets=1), NEW))


def test_its_keys_are_proved(client: Client) -> None:
    wrong = Slates(1)
    wrong.texts = {place: text.replace(b"page=0", b"page=00") for place, text in wrong.texts.items()}
    with pytest.raises(CorruptRecord, match="the text hashes to 6e6f746520"):
        remote(client).push(PushRequest([RefUpdate(BRANCH, wrong.notes[0])], wrong, NEW))


def test_its_refs_are_checked(client: Client) -> None:
    (done,) = remote(client).push(PushRequest([RefUpdate(b"a/b", Slates(1).notes[0])], Slates(1), NEW)).refs
    assert isinstance(done.error, InvalidName)
    assert "letters are all that a slate takes" in str(done.error)


def test_it_has_no_trees(client: Client) -> None:
    use(client, "slates")
    with pytest.raises(Unsupported, match=r"parts of a repository of slate 1 .*\(this side speaks bzr 2a\)"):
        list(remote(client).read(trees=TreesField([-1])).parts)


def test_other_kinds_are_refused(client: Client) -> None:
    other = NewRepository(SLATE.name, (Kind("note", "md5", True),))
    with pytest.raises(WrongVcs, match=r"note \(slate-key"):
        remote(client).push(PushRequest([RefUpdate(BRANCH, Slates(1).notes[0])], Slates(1), other))


def test_one_that_is_not_registered_is_refused_by_name(joint: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a repository of it is to be made, and where there is one."""
    refused = pytest.raises(Unsupported, match="the version-control system 'slate 1'")
    with joint.client() as client:
        use(client, "slates")
        monkeypatch.delitem(SYSTEMS, SLATE.name)
        with refused:
            client_of_another = RemoteRepository(client, "other", Knowledge(None, "other"))
            client_of_another.push(PushRequest([RefUpdate(BRANCH, Slates(1).notes[0])], Slates(1), NEW))
    with refused:
        PackRepository(joint.storage, "slates").snapshot()
