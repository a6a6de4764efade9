"""server.context, server.work: behind a link what a client has seen decides nothing."""

from __future__ import annotations

import pytest
from builders import MAIN, push
from dialogs import PATH, Dialog, Served, message, numbered
from session_calls import BODY, INSERT, PULL, done, set_ref

from smartserver.store.repository import PackRepository
from smartserver.wire.events import Body, End
from smartserver.wire.messages import Failure, KnownVersion, RequestFlag

ATOMIC = BODY | RequestFlag.ATOMIC | RequestFlag.GRAPH_FIRST


@pytest.fixture
def served() -> Served:
    served = Served()
    served.site.tidies = False
    line = served.history.line(6)
    served.push(line[:4], {MAIN: line[3]})
    return served


def seen(dialog: Dialog) -> KnownVersion:
    """The state that a client learns."""
    state = done(dialog.ask(message(PULL, request=numbered(9)))).state
    assert state is not None
    return KnownVersion(state.incarnation, state.version, state.mark)


def elsewhere(served: Served) -> PackRepository:
    """The repository as another process has it."""
    return PackRepository(served.transport, PATH)


def test_what_was_seen_refuses_nothing(served: Served, dialog: Dialog, line: list[bytes]) -> None:
    """It would be no fast-forward of what the client has seen, and is one of what is there."""
    (other,) = served.history.line(1, line[2], "other")
    client = seen(dialog)
    push(elsewhere(served), served.history, [], {MAIN: line[2]})
    request = message(INSERT, set_ref(other), flags=ATOMIC, known=client)
    done(dialog.ask(request, served.history.body([other], graph_first=True), 1))
    assert served.refs() == {MAIN: other}


def test_a_body_on_its_way_refuses_nothing(served: Served, dialog: Dialog, line: list[bytes]) -> None:
    """It is no fast-forward of what was there when its body began, and is one of what is there when that is whole."""
    (other,) = served.history.line(1, line[2], "other")
    body = served.history.body([other])
    number = dialog.begin(message(INSERT, set_ref(other), flags=BODY, known=seen(dialog)))
    dialog.send(Body(number, body[:-10]))
    push(elsewhere(served), served.history, [], {MAIN: line[2]})
    dialog.send(Body(number, body[-10:]))
    dialog.send(End(number, 1, len(body)))
    answer = dialog.answer(number)
    assert answer is not None
    done(answer)
    assert served.refs() == {MAIN: other}


def test_what_was_seen_allows_nothing(served: Served, dialog: Dialog, line: list[bytes]) -> None:
    """It would be a fast-forward of what the client has seen, and is none of what is there: which he is told."""
    client = seen(dialog)
    (other,) = served.history.line(1, line[3], "other")
    push(elsewhere(served), served.history, [other], {MAIN: other})
    request = message(INSERT, set_ref(line[5]), flags=ATOMIC, known=client)
    answer = dialog.ask(request, served.history.body(line[4:6], graph_first=True), 2)
    assert isinstance(answer, Failure)
    assert [each.fault and each.fault.code for each in answer.outcomes] == ["not-done", "diverged"]
    assert answer.state is not None
    assert answer.state.version == client.version + 1
    assert served.refs() == {MAIN: other}
