"""server.work, context, store_errors: what is kept of a body, what a change does to the store and a check does not,
what a read tells, what decides behind a link, and the store's errors."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders import MAIN, check_whole, push
from calls import raising
from dialogs import PATH, Dialog, Served, message, numbered
from session_calls import BODY, CREATION, INSERT, PULL, done, known, refused, set_ref

from smartserver.errors import Banned, CorruptFile, CorruptRecord, LimitExceeded, NoSuchRepository
from smartserver.records.bulk import BulkWriter
from smartserver.records.segment import encode_graph
from smartserver.records.varint import Malformed
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.context import RequestContext
from smartserver.server.header import RequestFailure, check_header
from smartserver.server.progress import RequestProgress
from smartserver.server.site import RepositoryLocation, Site
from smartserver.server.store_errors import GONE, user_error
from smartserver.server.work import RequestWork
from smartserver.store import state as state_module
from smartserver.store.repository import PackRepository
from smartserver.store.state import State
from smartserver.vcs.git.format import COMMIT
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.repository_insert_pack import InsertPackResult
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.rules import Rule
from smartserver.wire.events import Body, End
from smartserver.wire.limits import BULK_ALLOWANCE, MAX_BULK_RATIO
from smartserver.wire.messages import Advice, Failure, KnownVersion, Reply, RequestFlag, Status, encode, named, raw
from transports.errors import NoSpace, NoSuchFile, TransportFailed
from transports.local import LocalTransport


def test_knowledge_of_what_never_was_counts_as_none(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    own = known(served).incarnation
    others = [(b"", 0), (b"x" * 16, 5), (b"y" * 5000, -3), (b"z", 1 << 62)]
    for incarnation, version in [*others, *[(own, version) for version in (-1, 0, 99, 1 << 62)]]:
        state = done(dialog.ask(message(PULL, known=KnownVersion(incarnation, version)))).state
        assert state is not None
        assert state.refs == {MAIN: raw([[line[3]]])}
        assert state.since is None or incarnation == own


# -- permissions


@pytest.mark.parametrize("flags", [BODY, BODY | RequestFlag.GRAPH_FIRST, BODY | RequestFlag.CHECK_ONLY])
def test_nothing_of_a_body_is_kept_for_who_may_not_write(served: Served, line: list[bytes], flags: RequestFlag) -> None:
    reader, before = Dialog(served.site, anonymous(Anonymous.READ, local=True)), served.files()
    number = reader.begin(message(INSERT, set_ref(line[5]), flags=flags))
    reader.send(Body(number, served.history.body(line[4:5], graph_first=bool(flags & ~BODY))))
    assert refused(reader.answer(number)).code == "access-denied"
    assert served.files() == before


def test_a_refusal_comes_without_the_state_where_that_cannot_be_read(
    dialog: Dialog, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(State, "changes_since", raising(CorruptFile("project/tables/x", 0, "it is damaged")))
    answer = dialog.ask(message(set_ref(line[1])))
    assert refused(answer).code == "diverged"
    assert isinstance(answer, Failure)
    assert answer.state is None


# -- upkeep


def receiving(served: Served, tip: bytes, flags: RequestFlag) -> RequestWork:
    header = check_header(message(INSERT, set_ref(tip), flags=RequestFlag.BODY | flags, request=numbered(7)))
    work = RequestWork(served.site, RequestProgress(served.site, lambda payload: None))
    user = anonymous(Anonymous.WRITE, local=True)
    work.running = RequestContext(served.site, user, header, lambda *_: None)
    return work


def test_an_announced_graph_is_judged_before_the_segments(served: Served, line: list[bytes]) -> None:
    other = served.history.line(1, None, "other")
    made = receiving(served, other[0], RequestFlag.GRAPH_FIRST)
    graph = encode_graph([served.history.announced(other[0])])
    made.take(graph[:-1])
    with pytest.raises(RequestFailure) as refused:
        made.take(graph[-1:])
    outcomes = [each.fault.code for each in refused.value.outcomes if each.fault is not None]
    assert outcomes == ["not-done", "diverged"]
    made.abandon()


def packed(*texts: bytes) -> bytes:
    writer = BulkWriter()
    return b"".join([writer.add(text) for text in texts]) + writer.finish()


def test_a_bulk_stream_must_be_whole(served: Served, line: list[bytes]) -> None:
    plain = served.history.body(line[4:6])
    body = packed(plain)
    for came in (b"", body[:-1], packed(served.history.body(line[4:6])[:-1])):
        made = receiving(served, line[5], RequestFlag.BULK)
        made.take(came)
        with pytest.raises((Malformed, CorruptRecord)):
            made.finish(2, len(came))
        made.abandon()
    for wrong in (body + b"x", plain, body[:30] + bytes([body[30] ^ 0x55]) + body[31:]):
        made = receiving(served, line[5], RequestFlag.BULK)
        with pytest.raises((Malformed, CorruptRecord)):  # noqa: PT012
            made.take(wrong)
            made.finish(2, len(wrong))
        made.abandon()
    for segments, size in ((2, len(plain)), (1, len(body))):
        made = receiving(served, line[5], RequestFlag.BULK)
        made.take(body)
        with pytest.raises(CorruptRecord, match="its end states"):
            made.finish(segments, size)
        made.abandon()


def test_little_that_says_much_is_refused(served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is kept: nothing of a stream is worth more than its bytes can be."""
    kept = 0

    def write(upload: object, content: bytes) -> None:
        nonlocal kept
        kept += len(content)

    monkeypatch.setattr("smartserver.store.upload.Upload.write", write)
    bomb = packed(*[bytes(1 << 20)] * 64)
    assert len(bomb) * 1000 < 64 << 20
    made = receiving(served, line[5], RequestFlag.BULK)
    with pytest.raises(LimitExceeded, match="that a bulk stream became"):
        made.take(bomb)
    assert kept <= (len(bomb) + BULK_ALLOWANCE) * MAX_BULK_RATIO
    made.abandon()


def test_a_stored_revision_may_come_but_once(served: Served, line: list[bytes]) -> None:
    """A stream that says one segment a million times is small; a list of them is not."""
    made = receiving(served, line[5], RequestFlag.BULK)
    with pytest.raises(CorruptRecord, match="twice"):
        made.take(packed(*[served.history.segment(line[2])] * 2))
    made.abandon()


ATOMIC = BODY | RequestFlag.ATOMIC | RequestFlag.GRAPH_FIRST


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
    served.site.tidies = False
    client = seen(dialog)
    push(elsewhere(served), served.history, [], {MAIN: line[2]})
    request = message(INSERT, set_ref(other), flags=ATOMIC, known=client)
    done(dialog.ask(request, served.history.body([other], graph_first=True), 1))
    assert served.refs() == {MAIN: other}


def test_a_body_on_its_way_refuses_nothing(served: Served, dialog: Dialog, line: list[bytes]) -> None:
    """It is no fast-forward of what was there when its body began, and is one of what is there when that is whole."""
    (other,) = served.history.line(1, line[2], "other")
    served.site.tidies = False
    body = served.history.body([other])
    number = dialog.begin(message(INSERT, set_ref(other), flags=BODY, known=seen(dialog)))
    dialog.send(Body(number, body[:-10]))
    push(elsewhere(served), served.history, [], {MAIN: line[2]})
    dialog.send(Body(number, body[-10:]))
    dialog.send(End(number, 1, len(body)))
    done(dialog.answer(number))
    assert served.refs() == {MAIN: other}


def test_what_was_seen_allows_nothing(served: Served, dialog: Dialog, line: list[bytes]) -> None:
    """It would be a fast-forward of what the client has seen, and is none of what is there: which he is told."""
    served.site.tidies = False
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


def test_a_change_without_a_body_is_charged_by_what_is_stored(
    dialog: Dialog, served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It walks the stored graph, which it may whatever it sent."""
    served.push([], {b"refs/heads/x": line[0]})
    request = message(set_ref(line[3], b"refs/heads/x"))
    for limit in ("STEPS", "STEPS_OF_BYTE"):
        monkeypatch.setattr(f"smartserver.store.allowance.{limit}", 0)
    with monkeypatch.context() as patched:
        patched.setattr("smartserver.store.allowance.STEPS_OF_STORED", 0)
        assert isinstance(refused(dialog.ask(request)), LimitExceeded)
    done(dialog.ask(request))
    assert served.refs()[b"refs/heads/x"] == line[3]


def test_what_a_refused_ref_alone_brought_is_not_stored(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """Anybody could fetch it by its id. What it shares with another ref is."""
    shared = served.history.commit({"shared": b"x\n"}, line[:1], "shared")
    wrong = served.history.commit({"secret": b"hunter2\n"}, (shared,), "wrong")
    right = served.history.commit({"public": b"y\n"}, (shared,), "right")
    side, body = b"refs/heads/side", served.history.body([shared, wrong, right])
    answer = done(dialog.ask(message(INSERT, set_ref(wrong), set_ref(right, side), flags=BODY), body, 3))
    assert [each.status for each in answer.outcomes] == [Status.DONE, Status.REFUSED, Status.DONE]
    assert answer.outcomes[0].result == raw(InsertPackResult(2))
    snapshot = check_whole(served.repository(), served.history)
    assert [snapshot.ordinal(each) is not None for each in (shared, wrong, right)] == [True, False, True]
    assert served.refs() == {MAIN: line[3], side: right}
    pull = (repository_pull, PullRequest(refs=[], ids=[wrong]))
    assert refused(dialog.ask(message(pull, request=numbered(2)))).code == "missing-revision"
    move = (branch_set_last_revision, SetLastRevisionRequest(MAIN, wrong, Rule.FORCE))
    done(dialog.ask(message(INSERT, move, flags=BODY, request=numbered(3)), served.history.body([wrong]), 1))
    assert served.refs()[MAIN] == wrong
    check_whole(served.repository(), served.history)


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


def test_a_refusal_is_not_kept(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """Nothing was changed, so the repeat is decided again."""
    request = message(set_ref(line[1]), request=numbered(9))
    assert refused(dialog.ask(request)).code == "diverged"
    served.push([], {MAIN: line[0]})
    assert done(dialog.ask(msgspec.structs.replace(request, age=500)))
    assert served.refs() == {MAIN: line[1]}


@pytest.mark.parametrize(
    "call",
    [
        lambda line: (branch_set_last_revision, SetLastRevisionRequest(MAIN, line[3])),
        lambda line: (branch_set_last_revision, SetLastRevisionRequest(MAIN, line[3], Rule.NEW)),
        lambda line: (branch_set_last_revision, SetLastRevisionRequest(MAIN, line[3], Rule.LEASE, expected=line[0])),
        lambda line: (branch_delete, BranchDeleteRequest(b"refs/heads/y", b"")),
    ],
)
def test_what_has_a_condition_writes_nothing_in_vain(
    dialog: Dialog, served: Served, line: list[bytes], call: Callable[[list[bytes]], tuple[AnyVerb, Arguments]]
) -> None:
    before = known(served)
    answer = done(dialog.ask(message(call(line))))
    assert (answer.counters.bytes_written, answer.counters.syncs) == (0, 1)  # The record that another process wrote.
    answer = done(dialog.ask(message(call(line))))
    assert (answer.counters.bytes_written, answer.counters.syncs) == (0, 0)
    assert known(served) == before


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
    assert refused(dialog.answer(number)).code == "missing-parents"
    assert served.refs() == ({} if creating else {MAIN: other[0]})
    again = dialog.ask(message(CREATION, *calls[-2:], flags=BODY, request=numbered(91)), body, 4)
    assert done(again)
    assert served.repository().verify().problems == ()


@pytest.mark.parametrize("moment", ["begin", "commit", "receive"])
def test_a_bug_is_internal_and_leaks_nothing(
    dialog: Dialog,
    served: Served,
    line: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    moment: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PackRepository, moment, raising(ZeroDivisionError("a secret of the server")))
        body = served.history.body(line[4:6])
        answer = dialog.ask(message(INSERT, set_ref(line[5]), flags=BODY), body, 2)
    error = refused(answer)
    assert error.code == "internal"
    assert set(error.wire_arguments()) == {"reference"}
    assert b"secret" not in bytes(dialog.raw)
    assert "a secret of the server" in caplog.text
    assert str(error.wire_arguments()["reference"]) in caplog.text


def test_a_check_brings_no_segments(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    graph = encode_graph([served.history.announced(line[4])])
    flags = BODY | RequestFlag.CHECK_ONLY
    for extra in (served.history.segment(line[4]), b"\0", b"\0" * 100_000):
        answer = dialog.ask(message(INSERT, set_ref(line[4]), flags=flags), graph + extra, 1)
        assert refused(answer).code in ("corrupt-record", "limit-exceeded")


def test_a_check_without_its_graph(dialog: Dialog, line: list[bytes]) -> None:
    flags = BODY | RequestFlag.CHECK_ONLY
    assert refused(dialog.ask(message(INSERT, set_ref(line[4]), flags=flags))).code == "unsupported"


def test_ten_requests_with_long_names_of_refs_leave_a_repository_that_can_be_read(
    dialog: Dialog, served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that would make the state larger than a reply is refused, with one line; all before it are there."""
    monkeypatch.setattr(state_module, "MAX_STATE", 600 << 10)
    answers = [
        dialog.ask(
            message(
                *[set_ref(line[1], b"refs/tags/%d/%03d-" % (batch, number) + b"x" * 230) for number in range(280)],
                request=numbered(10 + batch),
            )
        )
        for batch in range(10)
    ]
    refusals = [answer for answer in answers if isinstance(answer, Failure)]
    taken = len(answers) - len(refusals)
    assert taken in range(5, 10)
    assert answers[:taken] == [answer for answer in answers if isinstance(answer, Reply)]
    for each in refusals:
        assert each.fault.code == "limit-exceeded"
        assert named(each.fault)["limit"] == 600 << 10
        assert each.state is None  # It was told before, and is large.
    assert len(served.refs()) == 1 + 280 * taken
    assert len(encode(done(dialog.ask(message(PULL, request=numbered(30)))))) < 600 << 10
    # Less is always taken.
    gone = branch_delete, BranchDeleteRequest(b"refs/tags/0/000-" + b"x" * 230)
    done(dialog.ask(message(gone, request=numbered(31))))


def test_faults_that_are_taken_are_said_in_the_answer(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    history = served.history
    text = history.objects[line[3]].text
    tree = text.split(b"\n")[0]
    odd = history.add(COMMIT, tree + b"\nauthor A <a@b> 1 +051800\ncommitter A <a@b> 1 +0000\n\nodd\n")
    history.parents[odd] = ()
    brought = [odd, *dict.fromkeys(history.closure(bytes.fromhex(tree[5:].decode())))]
    history.introduced[odd] = [(key, b"") for key in brought]
    request = message(INSERT, set_ref(odd, b"refs/heads/odd"), flags=BODY)
    answer = done(dialog.ask(request, history.body([odd]), 1))
    assert [each for each in answer.advice if each.kind == "faults"] == [
        Advice("faults", raw({"faults": {"badTimezone": [1, odd.hex()]}}))
    ]


@pytest.mark.parametrize("lost", ["pack", "pack and index"])
def test_a_pack_that_is_gone_is_damage(served: Served, caplog: pytest.LogCaptureFixture, lost: str) -> None:
    """Location when the body is read, or when the repository is opened."""
    (pack,) = [path for path in served.files() if path.endswith(".pack")]
    served.transport.delete(pack)
    if lost == "pack and index":
        served.transport.delete(pack.replace(".pack", ".idx"))
    answer = Dialog(Site(served.transport)).ask(message(PULL))
    error = refused(answer)
    assert isinstance(error, CorruptFile)
    assert (error.path, error.offset, error.why) == (pack.removeprefix(f"{PATH}/"), 0, "the file is missing")
    assert f"damage in {PATH}: {error.path} is damaged at byte 0" in caplog.text


@pytest.mark.parametrize(("name", "found"), [("HEAD", "a git repository"), (".hg", "a Mercurial repository")])
def test_what_is_there_instead_is_told(served: Served, name: str, found: str) -> None:
    for place in ("other", f"other/{name}", "other/objects"):
        served.transport.make_directory(place)
    error = refused(Dialog(served.site).ask(message(PULL, path="/other")))
    assert isinstance(error, NoSuchRepository)
    assert error.found == found
    nobody = Dialog(served.site, anonymous(Anonymous.NONE, local=True))
    assert refused(nobody.ask(message(PULL, path="/other"))).code == "access-denied"


def test_what_is_banned_while_it_is_looked_for_is_told_as_that(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The served files may be those of another server: it is no bug of this one."""
    monkeypatch.setattr(PackRepository, "describe_place", raising(Banned("list_dir", "per-item")))
    assert refused(Dialog(served.site).ask(message(PULL, path="/other"))).code == "banned"
    assert not caplog.text


def test_what_else_goes_wrong_is_sent_as_it_is(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    found = served.site.find(PATH)
    missing = NoSuchFile(f"{PATH}/packs/x.pack")
    for error, where in [
        (NoSpace(f"{PATH}/packs/x.pack"), found),
        (NoSuchFile(f"{PATH}/incoming/x"), found),
        (NoSuchFile("packs/x.pack"), None),
        (missing, None),
        (missing, RepositoryLocation(found.repository, False)),
        (NoSuchRepository("another"), found),
    ]:
        assert user_error(error, where, "it") is error
    assert not caplog.text


def test_a_store_that_fails_and_a_refused_user_are_logged_with_the_refusal(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line each; other refusals are not."""
    (pack,) = [path for path in served.files() if path.endswith(".pack")]
    for error in (NoSpace(pack), TransportFailed(pack, os.strerror(errno.EMFILE))):
        with monkeypatch.context() as patch:
            patch.setattr(PackRepository, "begin", raising(error))
            assert refused(Dialog(served.site).ask(message(PULL))).code == error.code
        assert caplog.messages == [f"a test: Repository.pull on '{PATH}': {error.code}: {error}"]
        assert error.code in caplog.records[0].msg  # It is of a kind of its own: a log bounds each.
        caplog.clear()
    nobody = Dialog(served.site, anonymous(Anonymous.NONE, local=True))
    assert refused(nobody.ask(message(PULL))).code == "access-denied"
    why = "access-denied: not allowed to read: this server admits no anonymous users (`serve --anonymous none`)"
    assert caplog.messages == [f"a test: Repository.pull on '{PATH}': {why}"]
    caplog.clear()
    assert refused(Dialog(served.site).ask(message(PULL, path="absent"))).code == "no-such-repository"
    assert not caplog.messages
    caplog.set_level(logging.ERROR, "smartserver.refusals")  # As where the one user is told.
    assert refused(nobody.ask(message(PULL))).code == "access-denied"
    assert not caplog.messages
    caplog.set_level(logging.INFO, "smartserver")
    assert refused(nobody.ask(message(PULL))).code == "access-denied"
    (line,) = caplog.messages
    assert line.startswith(f'request user=anonymous from="a test" path={PATH} verbs=Repository.pull ')
    assert line.endswith(" outcome=access-denied")
    caplog.clear()
    caplog.set_level(logging.WARNING, "smartserver.refusals")
    caplog.set_level(logging.INFO, "smartserver")
    assert refused(nobody.ask(message(PULL))).code == "access-denied"
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_damage_of_the_served_folder_itself(caplog: pytest.LogCaptureFixture) -> None:
    damage = CorruptFile("root", 0, "the content does not match its check")
    assert user_error(damage, Served().site.find(""), "it") is damage
    assert "damage in the served folder: root is damaged at byte 0" in caplog.text


@pytest.mark.parametrize("path", ["gone", PATH])
def test_a_served_folder_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str) -> None:
    """It is told where a repository is to be made there, and where one was there a moment ago."""
    site = Site(LocalTransport(tmp_path / "root"))
    dialog, words = Dialog(site), f"{site.name} {GONE}"
    create = (repository_create, CreateRequest("git sha1", [KindField("object", "git-sha1", True)]))
    for call in (PULL, create):
        error = refused(dialog.ask(message(call, path=path)))
        assert str(error) == words
        assert caplog.text.count(words) == 1
        assert f"on '{path}': transport-failed: {words}" in caplog.text
        caplog.clear()
