"""server.work: a request that comes again is answered as it was, and not carried out twice."""

from __future__ import annotations

import msgspec
import pytest
from builders import MAIN
from dialogs import Dialog, Served, message, numbered
from session_calls import BODY, CREATION, INSERT, done, refused, set_ref

from smartserver.wire.events import Body, End
from smartserver.wire.messages import Reply, RequestFlag


def test_a_repeat_with_a_body(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    request = message(INSERT, set_ref(line[5]), request=numbered(7), flags=BODY)
    body = served.history.body(line[4:6])
    first = done(dialog.ask(request, body, 2))
    served.push([], {MAIN: line[3]})
    files = served.files()
    for age in (0, 500):
        again = done(dialog.ask(msgspec.structs.replace(request, age=age), body, 2))
        assert again.outcomes == first.outcomes
    assert served.refs() == {MAIN: line[3]}
    assert served.files() == files


def test_a_repeat_beside_its_first_sending_leaves_nothing(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """The first is carried out while the body of the second is on its way."""
    body = served.history.body(line[4:6])
    request = message(INSERT, set_ref(line[5]), flags=BODY)
    second = Dialog(served.site)
    number = second.begin(msgspec.structs.replace(request, age=1000))
    second.send(Body(number, body))
    first = done(dialog.ask(request, body, 2))
    second.send(End(number, 2, len(body)))
    again = second.answer(number)
    assert isinstance(again, Reply)
    assert again.outcomes == first.outcomes
    assert not any(path.startswith("project/incoming/") for path in served.files())


def test_a_repeat_of_a_creation(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    request = message(CREATION, INSERT, set_ref(line[2]), path="new", request=numbered(8), flags=BODY)
    body = served.history.body(line[:3])
    first = done(dialog.ask(request, body, 3))
    again = done(dialog.ask(msgspec.structs.replace(request, age=500), body, 3))
    assert again.outcomes == first.outcomes


@pytest.mark.parametrize("body", [False, True])
def test_a_repeat_from_before_the_log_is_not_carried_out(
    dialog: Dialog, served: Served, line: list[bytes], body: bool
) -> None:
    """Sent first to a repository that was deleted meanwhile; the log of the new one says nothing of that time."""
    served.repository().delete(numbered(90), 0, "somebody")
    served.now += 3600
    served.push(line[:4], {MAIN: line[3]})
    served.now += 10
    calls = [INSERT, set_ref(line[5])] if body else [set_ref(line[1], b"refs/heads/x")]
    sent = served.history.body(line[4:6]) if body else b""
    flags = BODY if body else RequestFlag.NONE
    assert refused(dialog.ask(message(*calls, age=20_000, flags=flags), sent, 2)).code == "outcome-unknown"
    assert served.refs() == {MAIN: line[3]}
    assert done(dialog.ask(message(*calls, age=5_000, flags=flags), sent, 2))


def test_a_refusal_is_not_kept(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """Nothing was changed, so the repeat is decided anew."""
    request = message(set_ref(line[1]), request=numbered(9))
    assert refused(dialog.ask(request)).code == "diverged"
    served.push([], {MAIN: line[0]})
    assert done(dialog.ask(msgspec.structs.replace(request, age=500)))
    assert served.refs() == {MAIN: line[1]}
