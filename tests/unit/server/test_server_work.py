"""server.work, server.context: what a read tells, what is told of a refused request, and upkeep."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import MAIN
from dialogs import Dialog, Served, message, numbered
from session_calls import BODY, INSERT, PULL, done, known, refused, set_ref

from smartserver.errors import CorruptFile
from smartserver.server import upkeep
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.upkeep import tidy
from smartserver.store.repository import PackRepository
from smartserver.store.state import State
from smartserver.wire.events import Body
from smartserver.wire.messages import Failure, KnownVersion, RequestFlag, raw

# -- reads


@pytest.mark.parametrize(
    "wrong",
    [KnownVersion(b"", 0), KnownVersion(b"x" * 16, 5), KnownVersion(b"y" * 5000, -3), KnownVersion(b"z", 1 << 62)],
)
def test_knowledge_of_another_repository_counts_as_none(dialog: Dialog, line: list[bytes], wrong: KnownVersion) -> None:
    answer = done(dialog.ask(message(PULL, known=wrong)))
    assert answer.state is not None
    assert answer.state.since is None
    assert answer.state.refs == {MAIN: raw([[line[3]]])}


@pytest.mark.parametrize("version", [-1, 0, 99, 1 << 62])
def test_a_version_that_never_was_counts_as_none(dialog: Dialog, served: Served, version: int) -> None:
    answer = done(dialog.ask(message(PULL, known=KnownVersion(known(served).incarnation, version))))
    assert answer.state is not None
    assert MAIN in answer.state.refs


# -- permissions


@pytest.fixture
def reader(served: Served) -> Dialog:
    return Dialog(served.site, anonymous(Anonymous.READ, local=True))


@pytest.mark.parametrize("flags", [BODY, BODY | RequestFlag.GRAPH_FIRST, BODY | RequestFlag.CHECK_ONLY])
def test_nothing_of_a_body_is_kept_for_who_may_not_write(
    reader: Dialog, served: Served, line: list[bytes], flags: RequestFlag
) -> None:
    before = served.files()
    number = reader.begin(message(INSERT, set_ref(line[5]), flags=flags))
    reader.send(Body(number, served.history.body(line[4:5], graph_first=bool(flags & ~BODY))))
    answer = reader.answer(number)
    assert answer is not None
    assert refused(answer).code == "access-denied"
    assert served.files() == before


def test_a_refusal_comes_without_the_state_where_that_cannot_be_read(
    dialog: Dialog, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise CorruptFile("project/tables/x", 0, "the content does not match its check")

    monkeypatch.setattr(State, "changes_since", damaged)
    answer = dialog.ask(message(set_ref(line[1])))
    assert refused(answer).code == "diverged"
    assert isinstance(answer, Failure)
    assert answer.state is None


# -- upkeep


def test_repacking_comes_after_the_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    line = served.history.line(40, list(served.history.parents)[3], "more")
    dialog = Dialog(served.site)
    answered: list[bool] = []

    def tidied(repository: PackRepository, work: Callable[[], None]) -> None:
        answered.append(dialog.answer(dialog._last) is not None)
        tidy(repository, work)

    monkeypatch.setattr(upkeep, "tidy", tidied)
    for number, tip in enumerate(line):
        request = message(INSERT, set_ref(tip), request=numbered(100 + number), flags=BODY)
        assert done(dialog.ask(request, served.history.segment(tip), 1))
    assert answered == [True] * len(line)
    assert len(served.repository().snapshot().packs) < 20
