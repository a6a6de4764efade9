"""server.context, server.work: behind a link what a client has seen is not read again, and refuses nothing."""

from __future__ import annotations

import pytest
from builders import MAIN, Stepwise, push
from dialogs import PATH, Dialog, Served, message, numbered
from session_calls import BODY, INSERT, PULL, done, set_ref

from smartserver.store.repository import PackRepository
from smartserver.wire.messages import Failure, KnownRoot, RequestFlag
from transports.base import Capability, Transport
from transports.memory import MemoryTransport

SIDE = b"refs/heads/side"
ATOMIC = BODY | RequestFlag.ATOMIC | RequestFlag.GRAPH_FIRST


class Roots(Stepwise):
    """A store that counts how often a root is read; behind a link if `far`."""

    def __init__(self, *, far: bool) -> None:
        super().__init__(MemoryTransport())
        self.capabilities = Capability.ROUND_TRIPS if far else self.inner.capabilities
        self.count = 0

    def wrap(self, inner: Transport, prefix: str) -> Roots:
        made = super().wrap(inner, prefix)
        made.capabilities = self.capabilities
        return made

    def before(self, call: str, path: str) -> None:
        self.count += call == "get" and path.endswith("/root")


@pytest.fixture(params=[True, False], ids=["far", "near"])
def far(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def roots(far: bool) -> Roots:
    return Roots(far=far)


@pytest.fixture
def served(roots: Roots) -> Served:
    served = Served(roots)
    served.site.tidies = False
    line = served.history.line(6)
    served.push(line[:4], {MAIN: line[3]})
    return served


def seen(dialog: Dialog) -> KnownRoot:
    """What a client learns."""
    state = done(dialog.ask(message(PULL, request=numbered(9)))).state
    assert state is not None
    return KnownRoot(state.incarnation, state.version, state.mark)


def elsewhere(roots: Roots) -> PackRepository:
    """The repository as another process has it."""
    return PackRepository(roots.inner, PATH)


def test_a_push_after_a_look_reads_the_root_under_the_lock_alone(
    served: Served, dialog: Dialog, roots: Roots, line: list[bytes], far: bool
) -> None:
    for number, calls, body, segments in (
        (1, [INSERT, set_ref(line[5])], served.history.body(line[4:6]), 2),
        (2, [set_ref(line[2], SIDE)], b"", 0),
    ):
        client = seen(dialog)
        roots.count = 0
        flags = BODY if body else RequestFlag.NONE
        done(dialog.ask(message(*calls, request=numbered(number), flags=flags, known=client), body, segments))
        assert roots.count == (1 if far else 3)
    assert served.refs() == {MAIN: line[5], SIDE: line[2]}


def test_what_was_seen_refuses_nothing(served: Served, dialog: Dialog, roots: Roots, line: list[bytes]) -> None:
    """It would be no fast-forward of what the client has seen, and is one of what is there."""
    (other,) = served.history.line(1, line[2], "other")
    client = seen(dialog)
    push(elsewhere(roots), served.history, [], {MAIN: line[2]})
    request = message(INSERT, set_ref(other), flags=ATOMIC, known=client)
    done(dialog.ask(request, served.history.body([other], graph_first=True), 1))
    assert served.refs() == {MAIN: other}


def test_what_was_seen_allows_nothing(served: Served, dialog: Dialog, roots: Roots, line: list[bytes]) -> None:
    """It would be a fast-forward of what the client has seen, and is none of what is there: which he is told."""
    client = seen(dialog)
    (other,) = served.history.line(1, line[3], "other")
    push(elsewhere(roots), served.history, [other], {MAIN: other})
    request = message(INSERT, set_ref(line[5]), flags=ATOMIC, known=client)
    answer = dialog.ask(request, served.history.body(line[4:6], graph_first=True), 2)
    assert isinstance(answer, Failure)
    assert [each.fault and each.fault.code for each in answer.outcomes] == ["not-done", "diverged"]
    assert answer.state is not None
    assert answer.state.version == client.version + 1
    assert served.refs() == {MAIN: other}
