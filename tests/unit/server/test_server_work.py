"""server.work, server.context: what a read tells, what is told of a refused request, and upkeep."""

from __future__ import annotations

import msgspec
import pytest
from builders import MAIN
from dialogs import PATH, Dialog, Served, message, numbered
from session_calls import BODY, INSERT, PULL, done, known, refused, set_ref

from smartserver.errors import CorruptFile
from smartserver.server import upkeep
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.context import state_of
from smartserver.server.header import check_header
from smartserver.server.upkeep import tidy
from smartserver.store.index_build import Pace, unpaced
from smartserver.store.repack import MOST_PACKS
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.verbs.repository_open import OpenRequest, OpenResult, repository_open
from smartserver.verbs.repository_pull import PullResult
from smartserver.verbs.repository_verify import VerifyRequest, VerifyResult, repository_verify
from smartserver.verbs.server_info import InfoRequest, InfoResult, server_info
from smartserver.wire.events import Body
from smartserver.wire.messages import Failure, KnownRoot, RequestFlag, State, raw
from transports.errors import NoSpace

EVERY = ["Branch.create", "Server.ping"]


# -- reads


def test_a_read_tells_all_to_who_knows_nothing(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    answer = done(dialog.ask(message(PULL)))
    assert answer.state == state_of(served.repository().changes_since(None))
    assert answer.state is not None
    assert answer.state.refs == {MAIN: raw([[line[3]]])}
    assert answer.state.since is None
    assert set(EVERY) <= set(answer.capabilities)
    assert msgspec.msgpack.decode(answer.outcomes[0].result, type=PullResult).segments == 4


def test_a_read_tells_what_changed_to_who_knows_something(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    before = known(served)
    request = message(PULL, known=before)
    answer = done(dialog.ask(request))
    assert answer.state == State(before.incarnation, before.version, before.version, {}, mark=before.mark)
    assert answer.capabilities == []
    served.push([], {b"refs/heads/new": line[1]})
    answer = done(dialog.ask(request))
    assert answer.state is not None
    assert answer.state.refs == {b"refs/heads/new": raw([[line[1]]])}
    assert (answer.state.vcs, answer.state.settings) == ("", {})


@pytest.mark.parametrize(
    "wrong", [KnownRoot(b"", 0), KnownRoot(b"x" * 16, 5), KnownRoot(b"y" * 5000, -3), KnownRoot(b"z", 1 << 62)]
)
def test_knowledge_of_another_repository_counts_as_none(dialog: Dialog, line: list[bytes], wrong: KnownRoot) -> None:
    answer = done(dialog.ask(message(PULL, known=wrong)))
    assert answer.state is not None
    assert answer.state.since is None
    assert answer.state.refs == {MAIN: raw([[line[3]]])}


@pytest.mark.parametrize("version", [-1, 0, 99, 1 << 62])
def test_a_version_that_never_was_counts_as_none(dialog: Dialog, served: Served, version: int) -> None:
    answer = done(dialog.ask(message(PULL, known=KnownRoot(known(served).incarnation, version))))
    assert answer.state is not None
    assert MAIN in answer.state.refs


def test_no_repository_and_one_above(dialog: Dialog) -> None:
    assert refused(dialog.ask(message(PULL, path="nowhere"))).code == "no-such-repository"
    assert refused(dialog.ask(message(PULL, path="project/below"))).code == "nested-repository"
    answer = done(dialog.ask(message((repository_open, OpenRequest()), path="/project/below/it/")))
    assert msgspec.msgpack.decode(answer.outcomes[0].result, type=OpenResult) == OpenResult(
        "project", "below/it", "git sha1"
    )
    assert answer.state is not None
    nothing = dialog.ask(message((repository_open, OpenRequest()), path="nowhere/at/all"))
    assert refused(nothing).code == "no-such-repository"
    assert isinstance(nothing, Failure)
    assert nothing.state is None


@pytest.mark.parametrize(
    "path", ["../project", "a//b", "project/packs", "a\\b", "a\0b", ".hidden", "x" * 2000, "\ud800"]
)
def test_paths_that_cannot_be(dialog: Dialog, path: str) -> None:
    if path == "\ud800":
        with pytest.raises(UnicodeEncodeError):
            message(PULL, path=path).path.encode()
        return
    assert refused(dialog.ask(message(PULL, path=path))).code == "invalid-path"


def test_what_concerns_the_server_needs_no_path(dialog: Dialog) -> None:
    answer = done(dialog.ask(message((server_info, InfoRequest()), path="../anything")))
    facts = msgspec.msgpack.decode(answer.outcomes[0].result, type=InfoResult)
    assert set(EVERY) <= set(facts.capabilities)


def test_several_reads_in_one_request(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    calls = [(repository_open, OpenRequest()), PULL, (repository_verify, VerifyRequest())]
    answer = done(dialog.ask(message(*calls)))
    assert msgspec.msgpack.decode(answer.outcomes[2].result, type=VerifyResult).problems == []
    assert dialog.body(1) == served.history.body(line[:4])


# -- permissions


@pytest.fixture
def reader(served: Served) -> Dialog:
    return Dialog(served.site, anonymous(Anonymous.READ, local=True))


@pytest.fixture
def nobody(served: Served) -> Dialog:
    return Dialog(served.site, anonymous(Anonymous.NONE, local=True))


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


def test_who_may_not_read_is_told_nothing(nobody: Dialog, line: list[bytes]) -> None:
    for request in (
        message(PULL),
        message(PULL, path="nowhere"),
        message(PULL, path="project/inside"),
        message(set_ref(line[3])),
        message((repository_open, OpenRequest()), path="project/x"),
    ):
        answer = nobody.ask(request)
        assert refused(answer).code == "access-denied", request
        assert isinstance(answer, Failure)
        assert answer.state is None


def test_who_may_read_gets_the_state_with_a_refusal(reader: Dialog, line: list[bytes]) -> None:
    answer = reader.ask(message(set_ref(line[3])))
    assert refused(answer).code == "access-denied"
    assert isinstance(answer, Failure)
    assert answer.state is not None
    assert answer.state.refs == {MAIN: raw([[line[3]]])}


def test_a_refusal_comes_without_the_state_where_that_cannot_be_read(
    dialog: Dialog, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise CorruptFile("project/tables/x", 0, "the content does not match its check")

    monkeypatch.setattr(Transaction, "changes_since", damaged)
    answer = dialog.ask(message(set_ref(line[1])))
    assert refused(answer).code == "diverged"
    assert isinstance(answer, Failure)
    assert answer.state is None


# -- upkeep


def test_repacking_comes_after_the_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    line = served.history.line(40, list(served.history.parents)[3], "more")
    dialog = Dialog(served.site)
    answered: list[bool] = []

    def tidied(repository: PackRepository, pace: Pace) -> None:
        answered.append(dialog.answer(dialog._last) is not None)
        tidy(repository, pace)

    monkeypatch.setattr(upkeep, "tidy", tidied)
    for number, tip in enumerate(line):
        request = message(INSERT, set_ref(tip), request=numbered(100 + number), flags=BODY)
        assert done(dialog.ask(request, served.history.segment(tip), 1))
    assert answered == [True] * len(line)
    assert len(served.repository().snapshot().packs) < 20


def test_packs_are_joined_at_a_pace_that_leaves_time_for_others(served: Served) -> None:
    rests: list[None] = []
    for tip in served.history.line(MOST_PACKS, list(served.history.parents)[3], "more"):
        served.push([tip], {MAIN: tip})
    tidy(served.repository(), lambda: rests.append(None))
    assert rests


def test_a_repack_that_fails_is_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(PackRepository):
        def repack_if_needed(self, pace: Pace = unpaced) -> bool:
            raise NoSpace("packs/x")

    tidy(Failing(served.transport, PATH), unpaced)
    assert "tidying project: no space left" in caplog.text


@pytest.mark.parametrize(("path", "said"), [("a/b", "Server.info on 'a/b'"), ("", "Server.info")])
def test_a_request_in_short_for_a_log(served: Served, path: str, said: str) -> None:
    """The path of a request that is about no repository is empty."""
    assert check_header(message((server_info, InfoRequest()), path=path)).description == said
