"""server.work: a request that comes again is answered as it was, and not carried out twice."""

from __future__ import annotations

import msgspec
from builders import MAIN
from dialogs import Dialog, Served, message, numbered
from session_calls import done, refused, set_ref


def test_a_refusal_is_not_kept(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """Nothing was changed, so the repeat is decided anew."""
    request = message(set_ref(line[1]), request=numbered(9))
    assert refused(dialog.ask(request)).code == "diverged"
    served.push([], {MAIN: line[0]})
    assert done(dialog.ask(msgspec.structs.replace(request, age=500)))
    assert served.refs() == {MAIN: line[1]}
