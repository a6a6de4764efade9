"""verbs.repository_configure: settings are changed with the refs, by one request, and everybody learns of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders import MAIN, SETTINGS, History
from history_sources import NEW, HistorySource
from simulated_joint import Joint

from smartserver.client.call import Client
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import RefUpdate
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_configure import ConfigureRequest, ConfigureResult, repository_configure

TOPIC, UNBORN = b"refs/heads/topic", b"refs/heads/unborn"
PATH = "project"


@pytest.fixture
def client(joint: Joint) -> Iterator[Client]:
    with joint.client() as client:
        yield client


@pytest.fixture
def remote(joint: Joint, client: Client) -> RemoteRepository:
    """One of a repository with two branches, and HEAD at the first."""
    history = History()
    line = history.line(3)
    remote = joint.remote(PATH, client)
    updates = [RefUpdate(MAIN, line[1]), RefUpdate(TOPIC, line[2])]
    assert [each.error for each in remote.push(PushRequest(updates, HistorySource(history), NEW)).refs] == [None, None]
    assert remote.knowledge.settings == SETTINGS == {"HEAD": MAIN}
    return remote


def configure(**settings: bytes | None) -> tuple[AnyVerb, Arguments]:
    return repository_configure, ConfigureRequest(settings)


DELETE = (branch_delete, BranchDeleteRequest(MAIN))


@pytest.mark.max_round_trips(2)  # One of them was needed to push.
def test_the_branch_that_head_named_goes_with_the_request_that_points_it_elsewhere(
    joint: Joint, remote: RemoteRepository
) -> None:
    joint.network.take()
    moved, deleted = remote.ask(configure(HEAD=TOPIC), DELETE).results
    assert isinstance(moved, ConfigureResult)
    assert isinstance(deleted, BranchDeleteResult)
    assert moved.old == SETTINGS
    assert joint.network.counts().rounds == 1
    assert remote.knowledge.settings == {"HEAD": TOPIC}
    assert joint.refs().keys() == {TOPIC}


def test_whoever_knew_the_settings_learns_of_a_change(joint: Joint, client: Client, remote: RemoteRepository) -> None:
    """Though only what changed is told: HEAD may name what is not there, or nothing, as git's may."""
    other = joint.remote(PATH, client)
    other.learn_refs()
    for settings in ({"HEAD": UNBORN}, {"HEAD": UNBORN, "description": b"of it"}, {"description": b"of it"}, {}):
        changes = {name: settings.get(name) for name in ("HEAD", "description")}
        client.call(repository_configure, ConfigureRequest(changes), PATH)
        for each in (remote, other):
            version = each.knowledge.known
            assert version is not None
            answer = each.ask(configure())
            assert answer.state is not None
            assert answer.state.since == version.version
            assert each.knowledge.settings == settings
    assert joint.refs().keys() == {MAIN, TOPIC}
    # Nothing is kept of it now.
    remote.push(PushRequest([RefUpdate(MAIN, None)], HistorySource(History())))
    assert joint.refs().keys() == {TOPIC}
