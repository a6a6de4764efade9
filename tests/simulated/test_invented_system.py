"""A server of a system that nothing of ours knows: it is one object, which is registered (`records.system`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from invented import BRANCH, NEW, PAGE, SLATE, Slate, Slates, use
from simulated_joint import Joint

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import RefUpdate
from smartserver.errors import CorruptRecord, MissingReference, NoSuchPart, Unsupported
from smartserver.records.system import SYSTEMS
from smartserver.store.repository import PackRepository


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


def test_its_selectors_are_its_own(client: Client) -> None:
    """Nothing else reads them, nor what the answer says of what they name."""
    use(client, "slates")
    slates = Slates(12)
    read = remote(client).read(b"7", refs=[BRANCH], haves=[slates.notes[9]])
    assert list(read.graph) == slates.graph[10:]
    assert (read.result.said, read.result.segments) == (slates.texts[PAGE, b"7"], 0)
    with pytest.raises(NoSuchPart, match="no page 99"):
        remote(client).read(b"99", refs=[BRANCH])


def test_a_system_without_selectors_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    use(client, "slates")
    monkeypatch.delattr(Slate, "read")
    with pytest.raises(Unsupported, match=r"reading parts of a repository of slate 1; supported: whole revisions"):
        remote(client).read(b"7")


def test_one_that_is_not_registered_is_refused_by_name(joint: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused where a repository of it is to be made, and where there is one."""
    refused = pytest.raises(Unsupported, match="the version-control system 'slate 1'")
    with joint.client() as client:
        use(client, "slates")
        monkeypatch.delitem(SYSTEMS, SLATE.name)
        with refused:
            client_of_another = RemoteRepository(client, "other", Knowledge(None, "other"))
            client_of_another.push(PushRequest([RefUpdate(BRANCH, Slates(1).notes[0])], Slates(1), NEW))
    with refused:
        PackRepository(joint.storage, "slates").snapshot()
