"""server.advice: when each kind is said, to whom, and that an answer without any is no longer."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from builders import MAIN
from dialogs import PATH, Dialog, Served, message
from session_calls import PULL, done, known

from smartserver.server import advice
from smartserver.server.access import Anonymous, anonymous
from smartserver.store.repack import LARGE
from smartserver.store.repository import PackRepository
from smartserver.wire.messages import Advice, Request, raw


def many(served: Served, count: int) -> None:
    """So many packs, which nobody has joined."""
    for number in range(count):
        (revision,) = served.history.line(1, name=f"{len(served.history.parents)} {number}")
        served.push([revision], {MAIN: revision})


def saying(agent: object, request: Request) -> Request:
    return msgspec.structs.replace(request, extras={"agent": msgspec.Raw(msgspec.msgpack.encode(agent))})


def test_many_packs_are_said_to_whoever_may_join_them(
    dialog: Dialog, served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "MANY_PACKS", 3)
    many(served, 2)
    assert len(served.repository().snapshot().state.packs) == 3
    assert done(dialog.ask(message(PULL, known=known(served)))).advice == []
    many(served, 1)
    assert done(dialog.ask(message(PULL, known=known(served)))).advice == [Advice("packs", raw({"packs": 4}))]
    reader = Dialog(served.site, anonymous(Anonymous.READ, local=True))
    assert done(reader.ask(message(PULL))).advice == []


def test_packs_that_are_never_joined_are_not_many(served: Served, line: list[bytes]) -> None:
    state = served.repository().snapshot().state
    small, large = state.packs[0], msgspec.structs.replace(state.packs[0], length=LARGE + 1)
    assert advice.of_packs(replace(state, packs=(large,) * 100)) is None
    assert advice.of_packs(replace(state, packs=(small, large) * 100)) is None
    assert advice.of_packs(replace(state, packs=(small,) * 20)) is None
    assert advice.of_packs(replace(state, packs=(small,) * 21)) == Advice("packs", raw({"packs": 21}))


def test_records_that_are_not_saved_unasked(
    dialog: Dialog, served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a store behind a link, to a user who may write."""
    monkeypatch.setattr(PackRepository, "unsaved", 70)
    assert done(dialog.ask(message(PULL, known=known(served)))).advice == []
    served.site.tidies = False
    assert done(dialog.ask(message(PULL, known=known(served)))).advice == [Advice("log", raw({"records": 70}))]
    reader = Dialog(served.site, anonymous(Anonymous.READ, local=True))
    assert done(reader.ask(message(PULL))).advice == []


def test_this_client_is_not_older_than_this_server_expects(dialog: Dialog, line: list[bytes]) -> None:
    from smartserver.cli.session import AGENT

    assert advice.AGENT.search(AGENT)
    assert done(dialog.ask(saying(AGENT, message(PULL, path=PATH)))).advice == []
