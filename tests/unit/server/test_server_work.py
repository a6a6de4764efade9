"""server.work, server.asked, server.receiving: what a request does to the store, and what is told of a refused one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from builders import MAIN
from dialogs import CREATE, PATH, Dialog, Served, message, numbered

from smartserver.errors import CorruptFile, KnownRevisions, error_from_wire
from smartserver.records.segment import encode_graph
from smartserver.server import tidying
from smartserver.server.access import Anonymous, anonymous, invoking_user
from smartserver.server.asked import state_of
from smartserver.server.dispatch import prepare
from smartserver.server.site import Site
from smartserver.server.work import RequestWork, tidy
from smartserver.store.incoming import Upload
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import RepositoryTransaction
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_insert_pack import InsertPackRequest, InsertPackResult, repository_insert_pack
from smartserver.verbs.repository_open import OpenRequest, OpenResult, repository_open
from smartserver.verbs.repository_pull import PullRequest, PullResult, repository_pull
from smartserver.verbs.repository_verify import VerifyRequest, VerifyResult, repository_verify
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_info import InfoRequest, InfoResult, server_info
from smartserver.wire.events import Body, Cancel, End
from smartserver.wire.messages import Failure, Known, Reply, RequestFlag, State, Status
from transports.errors import CodedError, NoSpace

INSERT: tuple[AnyVerb, Arguments] = (repository_insert_pack, InsertPackRequest())
PULL: tuple[AnyVerb, Arguments] = (repository_pull, PullRequest())
CREATION: tuple[AnyVerb, Arguments] = (repository_create, CREATE)
BODY = RequestFlag.BODY
EVERY = ["Branch.create", "Server.ping"]


def set_ref(tip: bytes, ref: bytes = MAIN) -> tuple[AnyVerb, Arguments]:
    return branch_set_last_revision, SetLastRevisionRequest(ref, tip)


def done(answer: Reply | Failure) -> Reply:
    assert isinstance(answer, Reply), answer
    return answer


def refused(answer: Reply | Failure) -> CodedError:
    assert isinstance(answer, Failure), answer
    return error_from_wire(answer.fault.code, answer.fault.arguments)


def known(served: Served, path: str = PATH) -> Known:
    root = served.repository(path).snapshot().root
    return Known(root.incarnation, root.version, root.log[-1].mark)


# -- reads


def test_a_read_tells_all_to_who_knows_nothing(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    answer = done(dialog.ask(message(PULL)))
    assert answer.state == state_of(served.repository().changes_since(None))
    assert answer.state is not None
    assert answer.state.refs == {MAIN: [[line[3]]]}
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
    assert answer.state.refs == {b"refs/heads/new": [[line[1]]]}
    assert (answer.state.vcs, answer.state.settings) == ("", {})


@pytest.mark.parametrize("wrong", [Known(b"", 0), Known(b"x" * 16, 5), Known(b"y" * 5000, -3), Known(b"z", 1 << 62)])
def test_knowledge_of_another_repository_counts_as_none(dialog: Dialog, line: list[bytes], wrong: Known) -> None:
    answer = done(dialog.ask(message(PULL, known=wrong)))
    assert answer.state is not None
    assert answer.state.since is None
    assert answer.state.refs == {MAIN: [[line[3]]]}


@pytest.mark.parametrize("version", [-1, 0, 99, 1 << 62])
def test_a_version_that_never_was_counts_as_none(dialog: Dialog, served: Served, version: int) -> None:
    answer = done(dialog.ask(message(PULL, known=Known(known(served).incarnation, version))))
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


# -- changes


def test_a_change_without_a_body(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    answer = done(dialog.ask(message(set_ref(line[1], b"refs/heads/x"), known=known(served))))
    assert answer.state is not None
    assert answer.state.refs == {b"refs/heads/x": [[line[1]]]}
    assert served.refs()[b"refs/heads/x"] == line[1]


def test_nothing_to_change_is_no_swap(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    before = known(served)
    answer = done(dialog.ask(message(set_ref(line[3]))))
    assert answer.outcomes[0].status == Status.DONE
    assert known(served) == before


def test_a_body_that_brings_nothing_new(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    before = served.files()
    request = message(INSERT, set_ref(line[3]), flags=BODY)
    answer = done(dialog.ask(request, served.history.body(line[2:4]), 2))
    assert msgspec.msgpack.decode(answer.outcomes[0].result, type=InsertPackResult).new == 0
    assert served.files() == before


def test_what_was_forced_in_vain_is_not_forced_again(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """The answers were lost, somebody moved the refs, and the requests are repeated."""
    served.push([], {b"refs/heads/x": line[3]})
    force = (branch_set_last_revision, SetLastRevisionRequest(b"refs/heads/x", line[3], Rule.FORCE))
    delete = (branch_delete, BranchDeleteRequest(b"refs/heads/y"))
    requests = [message(force, request=numbered(1)), message(delete, request=numbered(2))]
    before = known(served)
    first = [done(dialog.ask(request)) for request in requests]
    assert known(served).version == before.version + 2
    served.push([], {b"refs/heads/x": line[1], b"refs/heads/y": line[1]})
    again = [done(dialog.ask(msgspec.structs.replace(request, age=5000))) for request in requests]
    assert [each.outcomes for each in again] == [each.outcomes for each in first]
    assert served.refs() == {MAIN: line[3], b"refs/heads/x": line[1], b"refs/heads/y": line[1]}


@pytest.mark.parametrize(
    "call",
    [
        lambda line: (branch_set_last_revision, SetLastRevisionRequest(MAIN, line[3])),
        lambda line: (branch_set_last_revision, SetLastRevisionRequest(MAIN, line[3], Rule.NEW)),
        lambda line: (branch_set_last_revision, SetLastRevisionRequest(MAIN, line[3], Rule.LEASE, expected=line[0])),
        lambda line: (branch_delete, BranchDeleteRequest(b"refs/heads/y", line[0])),
    ],
)
def test_what_has_a_condition_writes_nothing_in_vain(
    dialog: Dialog, served: Served, line: list[bytes], call: Callable[[list[bytes]], tuple[AnyVerb, Arguments]]
) -> None:
    before = known(served)
    answer = done(dialog.ask(message(call(line))))
    assert (answer.counters.bytes_written, answer.counters.syncs) == (0, 0)
    assert known(served) == before


def test_a_check_of_what_is_forced_writes_nothing(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    before = known(served)
    force = (branch_set_last_revision, SetLastRevisionRequest(MAIN, line[3], Rule.FORCE))
    assert done(dialog.ask(message(force, flags=RequestFlag.CHECK_ONLY)))
    assert known(served) == before


def test_an_empty_body(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    assert done(dialog.ask(message(INSERT, set_ref(line[1], b"refs/heads/x"), flags=BODY)))
    assert served.refs()[b"refs/heads/x"] == line[1]


def test_bringing_revisions_alone(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    assert done(dialog.ask(message(INSERT, flags=BODY), served.history.body(line[4:6]), 2))
    assert served.refs() == {MAIN: line[3]}
    assert served.repository().begin(b"", "x").is_stored(line[5])


def test_a_body_for_no_repository(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    before = served.files()
    request = message(INSERT, set_ref(line[3]), path="nowhere", flags=BODY)
    assert refused(dialog.ask(request, served.history.body(line[:4]), 4)).code == "no-such-repository"
    assert served.files() == before


def test_creating_over_another_system(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    wrong = (repository_create, msgspec.structs.replace(CREATE, vcs="hg"))
    request = message(wrong, INSERT, set_ref(line[3]), flags=BODY)
    answer = dialog.ask(request, served.history.body(line[:4]), 4)
    assert refused(answer).code == "wrong-vcs"
    assert isinstance(answer, Failure)
    assert answer.state is not None


def test_a_refused_ref_before_the_body_is_refused_alone(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """It has its own verdict; the body and the other refs go through."""
    stale = (branch_delete, BranchDeleteRequest(b"refs/heads/x", line[0]))
    served.push([], {b"refs/heads/x": line[1]})
    request = message(stale, INSERT, set_ref(line[5]), flags=BODY)
    answer = done(dialog.ask(request, served.history.body(line[4:6]), 2))
    assert [outcome.status for outcome in answer.outcomes] == [Status.REFUSED, Status.DONE, Status.DONE]
    assert served.refs() == {MAIN: line[5], b"refs/heads/x": line[1]}


def test_an_announcement_that_is_not_kept(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    graph = encode_graph([served.history.announced(line[4]), served.history.announced(line[5])])
    request = message(INSERT, set_ref(line[5]), flags=BODY | RequestFlag.GRAPH_FIRST)
    body = graph + served.history.segment(line[4])
    assert refused(dialog.ask(request, body, 1)).code == "corrupt-record"
    assert served.refs() == {MAIN: line[3]}


@pytest.mark.parametrize("body", [b"\x80", b"\x00", b"\xff" * 20, b"\x80" * 9 + b"\x02", b"\x03abc"])
def test_a_body_that_is_none(dialog: Dialog, served: Served, body: bytes) -> None:
    for flags in (BODY, BODY | RequestFlag.GRAPH_FIRST, BODY | RequestFlag.CHECK_ONLY):
        answer = dialog.ask(message(INSERT, flags=flags), body, 1)
        assert refused(answer).code in ("corrupt-record", "limit-exceeded"), flags


def test_much_that_is_known_cuts_a_push_short(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    request = message(INSERT, set_ref(line[5]), flags=BODY | RequestFlag.GRAPH_FIRST)
    number = dialog.begin(request)
    graph = encode_graph([served.history.announced(each) for each in line])
    dialog.send(Body(number, graph))
    answer = dialog.answer(number)
    assert answer is not None
    error = refused(answer)
    assert isinstance(error, KnownRevisions)
    assert error.tips == [line[3]]
    dialog.send(Cancel(number))


def test_a_failure_of_the_store_is_told(
    dialog: Dialog, served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        (upload,) = (each for each in arguments if isinstance(each, Upload))
        upload.abandon()  # As a commit does whatever happens to it.
        raise NoSpace("project/packs/x")

    monkeypatch.setattr(PackRepository, "commit", full)
    answer = dialog.ask(message(INSERT, set_ref(line[5]), flags=BODY), served.history.body(line[4:6]), 2)
    assert refused(answer).code == "no-space"
    assert not any(path.startswith("project/incoming/") for path in served.files())


@pytest.mark.parametrize("creating", [False, True])
def test_what_is_acknowledged_is_there_whatever_went_meanwhile(
    served: Served, line: list[bytes], creating: bool
) -> None:
    """All that comes is stored already when it comes, and is gone, with the whole repository, before the end."""
    dialog = Dialog(served.site)
    calls = [CREATION] * creating + [INSERT, set_ref(line[3], b"refs/heads/x")]
    number = dialog.begin(message(*calls, flags=BODY))
    body = served.history.body(line[:4])
    dialog.send(Body(number, body))
    served.repository().delete(numbered(90), 0, "somebody")
    if not creating:
        other = served.history.line(1, None, "other")
        served.push(other, {MAIN: other[0]})
    dialog.send(End(number, 4, len(body)))
    answer = dialog.answer(number)
    assert answer is not None
    assert refused(answer).code == "missing-parents"
    assert served.refs() == ({} if creating else {MAIN: other[0]})
    again = dialog.ask(message(CREATION, *calls[-2:], flags=BODY, request=numbered(91)), body, 4)
    assert done(again)
    assert served.repository().verify().problems == ()


def test_a_change_that_is_made_is_no_error_whatever_is_damaged(served: Served, line: list[bytes]) -> None:
    served.push(line[:4], {b"refs/tags/%06d" % number: line[1] for number in range(800)})
    (table,) = (path for path in served.files() if "/tables/" in path)
    damaged = bytearray(served.transport.get(table))
    damaged[len(damaged) // 2] ^= 1
    served.transport.delete(table)
    served.transport.put(table, [bytes(damaged)])
    version = served.repository().snapshot().root.version
    dialog = Dialog(Site(served.transport, wall_clock=lambda: served.now))
    answer = dialog.ask(message(set_ref(line[3], b"refs/tags/000001")))
    assert done(answer)
    assert answer.state is None
    assert served.repository().snapshot().root.version == version + 1


@pytest.mark.parametrize("moment", ["begin", "commit", "receive"])
def test_a_bug_is_internal_and_leaks_nothing(
    dialog: Dialog,
    served: Served,
    line: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    moment: str,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret of the server")

    with monkeypatch.context() as patch:
        patch.setattr(PackRepository, moment, broken)
        body = served.history.body(line[4:6])
        answer = dialog.ask(message(INSERT, set_ref(line[5]), flags=BODY), body, 2)
    error = refused(answer)
    assert error.code == "internal"
    assert set(error.wire_arguments()) == {"reference"}
    assert b"secret" not in bytes(dialog.raw)
    assert "a secret of the server" in caplog.text
    assert str(error.wire_arguments()["reference"]) in caplog.text


def test_a_check_changes_nothing_and_says_what_would_be(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    before = served.files()
    graph = encode_graph([served.history.announced(each) for each in line[4:6]])
    flags = BODY | RequestFlag.CHECK_ONLY | RequestFlag.GRAPH_FIRST
    request = message(INSERT, set_ref(line[5]), set_ref(line[1], b"refs/heads/x"), flags=flags)
    answer = done(dialog.ask(request, graph))
    assert [outcome.status for outcome in answer.outcomes] == [Status.DONE] * 3
    assert msgspec.msgpack.decode(answer.outcomes[0].result, type=InsertPackResult).new == 2
    assert answer.state is not None
    assert served.files() == before
    assert served.refs() == {MAIN: line[3]}


def test_the_graph_of_a_check_may_come_in_pieces(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    graph = encode_graph([served.history.announced(each) for each in line[4:6]])
    number = dialog.begin(message(INSERT, set_ref(line[5]), flags=BODY | RequestFlag.CHECK_ONLY))
    for at in range(0, len(graph), 7):
        dialog.send(Body(number, graph[at : at + 7]))
    dialog.send(End(number, 0, len(graph)))
    assert isinstance(dialog.answer(number), Reply)


def test_a_check_of_a_creation(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    before = served.files()
    graph = encode_graph([served.history.announced(each) for each in line])
    request = message(CREATION, INSERT, set_ref(line[5]), path="new", flags=BODY | RequestFlag.CHECK_ONLY)
    answer = done(dialog.ask(request, graph))
    assert answer.state is None
    assert served.files() == before


def test_a_check_that_refuses(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    answer = dialog.ask(message(set_ref(line[1]), flags=RequestFlag.CHECK_ONLY))
    assert refused(answer).code == "diverged"
    assert isinstance(answer, Failure)
    assert answer.state is not None


def test_a_check_brings_no_segments(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    graph = encode_graph([served.history.announced(line[4])])
    flags = BODY | RequestFlag.CHECK_ONLY
    for extra in (served.history.segment(line[4]), b"\0", b"\0" * 100_000):
        answer = dialog.ask(message(INSERT, set_ref(line[4]), flags=flags), graph + extra, 1)
        assert refused(answer).code in ("corrupt-record", "limit-exceeded")


def test_a_check_without_its_graph(dialog: Dialog, line: list[bytes]) -> None:
    flags = BODY | RequestFlag.CHECK_ONLY
    assert refused(dialog.ask(message(INSERT, set_ref(line[4]), flags=flags))).code == "unsupported"


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
        message(PULL, path="../up"),
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
    assert answer.state.refs == {MAIN: [[line[3]]]}


def test_a_refusal_comes_without_the_state_where_that_cannot_be_read(
    dialog: Dialog, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise CorruptFile("project/tables/x", 0, "the content does not match its check")

    monkeypatch.setattr(RepositoryTransaction, "changes_since", damaged)
    answer = dialog.ask(message(set_ref(line[1])))
    assert refused(answer).code == "diverged"
    assert isinstance(answer, Failure)
    assert answer.state is None


# -- repeats


def test_a_repeat_gets_the_first_answer(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    request = message(set_ref(line[1], b"refs/heads/x"), request=numbered(7))
    first = done(dialog.ask(request))
    served.push([], {b"refs/heads/x": line[2]})
    again = done(dialog.ask(msgspec.structs.replace(request, age=500)))
    assert again.outcomes == first.outcomes
    assert served.refs()[b"refs/heads/x"] == line[2]


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


# -- upkeep


def test_repacking_comes_after_the_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    line = served.history.line(40, list(served.history.parents)[3], "more")
    dialog = Dialog(served.site)
    answered: list[bool] = []

    def tidied(repository: PackRepository) -> None:
        answered.append(dialog.answer(dialog._last) is not None)
        tidy(repository)

    monkeypatch.setattr(tidying, "tidy", tidied)
    for number, tip in enumerate(line):
        request = message(INSERT, set_ref(tip), request=numbered(100 + number), flags=BODY)
        assert done(dialog.ask(request, served.history.segment(tip), 1))
    assert answered == [True] * len(line)
    assert len(served.repository().snapshot().packs) < 20


def test_a_repack_that_fails_is_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(PackRepository):
        def repack_if_needed(self) -> bool:
            raise NoSpace("packs/x")

    tidy(Failing(served.transport, PATH))
    assert "tidying project: no space left" in caplog.text


@pytest.mark.parametrize(("path", "said"), [("a/b", "Server.info on 'a/b'"), ("", "Server.info")])
def test_a_request_in_short_for_a_log(served: Served, path: str, said: str) -> None:
    """The path of a request that is about no repository is empty."""
    prepared = prepare(message((server_info, InfoRequest()), path=path))
    assert RequestWork(served.site, invoking_user("ann"), prepared, lambda *_: None).description == said
