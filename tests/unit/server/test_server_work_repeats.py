"""server.work: a request that comes again is answered as it was, and not carried out twice."""

from __future__ import annotations

import msgspec
from builders import MAIN
from dialogs import Dialog, Served, message, numbered
from session_calls import BODY, INSERT, done, refused, set_ref

from smartserver.wire.events import Body, End
from smartserver.wire.messages import Reply


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


def test_a_refusal_is_not_kept(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """Nothing was changed, so the repeat is decided anew."""
    request = message(set_ref(line[1]), request=numbered(9))
    assert refused(dialog.ask(request)).code == "diverged"
    served.push([], {MAIN: line[0]})
    assert done(dialog.ask(msgspec.structs.replace(request, age=500)))
    assert served.refs() == {MAIN: line[1]}
