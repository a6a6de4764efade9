"""For each ban of the documents a talk in which it fires, at its last request, and one in which it does not."""

from __future__ import annotations

from collections.abc import Callable

from banned_talk import INCARNATION, Talk
from builders import History
from msgspec import Raw, msgpack

from smartserver.errors import BranchExists, KnownRevisions
from smartserver.records.bulk import SEGMENT_LEVEL, BulkWriter
from smartserver.records.segment import encode_graph
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, SetLastRevisionResult
from smartserver.verbs.declare import Arguments
from smartserver.verbs.repository_delete import DeleteRequest
from smartserver.verbs.repository_insert_pack import InsertPackRequest, InsertPackResult
from smartserver.verbs.repository_list import ListRequest, ListResult
from smartserver.verbs.repository_open import OpenRequest, OpenResult
from smartserver.verbs.repository_pack import PackRequest
from smartserver.verbs.repository_pull import PullRequest, PullResult
from smartserver.verbs.repository_read import ReadRequest, ReadResult
from smartserver.verbs.repository_stats import StatsRequest
from smartserver.verbs.server_ping import PingRequest, PingResult
from smartserver.verbs.vfs import BringRequest, GetResult, LookRequest, NoResult, PathRequest, RenameRequest
from smartserver.wire.events import End, GoAway, Reply
from smartserver.wire.messages import Outcome, RequestFlag, State, Status, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage
from transports.errors import PermissionDenied

Case = Callable[[Talk], None]

HISTORY = History()
LINE = HISTORY.line(4)
TIP, OTHER = LINE[3], b"o" * 20

PING = ("Server.ping", PingRequest())
PACK = ("Repository.pack", PackRequest())
NEXT_RECORD = ("get_published", LookRequest("log/0000000002", True))
NEWEST_RECORD = ("get_published", LookRequest("log/0000000001", True))
STATS = ("Repository.stats", StatsRequest())
OPEN = ("Repository.open", OpenRequest())
INSERT = ("Repository.insert_pack", InsertPackRequest())
DELETE = ("Branch.delete", BranchDeleteRequest(b"topic"))
SET = ("Branch.set_last_revision", SetLastRevisionRequest(b"main", TIP))
PULL = ("Repository.pull", PullRequest())
REFS = ("Repository.pull", PullRequest(refs=[]))
ANSWER = encode(ReplyMessage([]))
SET_DONE = SetLastRevisionResult([])
PULLED = PullResult()


def read_of(*items: object) -> tuple[str, ReadRequest]:
    return ("Repository.read", ReadRequest(msgpack.encode(items)))


def pull_of(*revisions: bytes) -> tuple[str, PullRequest]:
    return ("Repository.pull", PullRequest(refs=[], ids=list(revisions)))


def asks(*calls: tuple[str, Arguments], path: str = "project") -> Case:
    """One request of these calls."""

    def case(talk: Talk) -> None:
        talk.ask(*calls, path=path)

    return case


pack, pull, put = asks(PACK), asks(PULL), asks(("put", BringRequest("packs/a.pack", b"pack")))
read_log = asks(("get", LookRequest("log/0000000001")), path="/team/project/")
lock = asks(("rename", RenameRequest("lock/0123", "lock/held")), path="/team/project/")
reads_in_the_request_of_the_change = asks(SET, REFS)
asks_the_same_in_one_request = asks(pull_of(TIP), pull_of(TIP))


# -- read-back


def reads_its_own_ref(talk: Talk) -> None:
    talk.done(SET, results=[SET_DONE], version=2)
    talk.ask(("Repository.pull", PullRequest(refs=[b"main"])), known=2)


def reads_its_own_tip(talk: Talk) -> None:
    talk.done(SET, results=[SET_DONE], version=2)
    talk.ask(pull_of(OTHER, TIP), known=2)


def reads_all_refs_after_a_change(talk: Talk) -> None:
    talk.done(SET, results=[SET_DONE], version=2)
    talk.ask(REFS, known=2)


def reads_a_file_it_wrote(talk: Talk) -> None:
    talk.done(("put", BringRequest("a/b", b"text")), results=[NoResult()])
    talk.ask(("get", LookRequest("b")), path="project/a")


def reads_its_own_tip_by_a_selector(talk: Talk) -> None:
    talk.done(SET, results=[SET_DONE], version=2)
    talk.ask(read_of(0, TIP), known=2)


def reads_what_others_wrote(talk: Talk) -> None:
    talk.done(SET, DELETE, results=[SET_DONE, None], version=2)
    talk.done(("put", BringRequest("a/b", b"text")), results=[NoResult()])
    talk.done(("Repository.pull", PullRequest(refs=[b"topic"])), results=[PULLED], known=2)
    talk.done(("Repository.pull", PullRequest(haves=[TIP])), results=[PULLED], known=2)
    talk.done(pull_of(OTHER), results=[PULLED], known=2)
    talk.done(("get", LookRequest("a/c")), results=[GetResult(None)])
    talk.ask(("Repository.pull", PullRequest(refs=[b"main"])), path="another")


def reads_what_was_refused_and_what_it_has(talk: Talk) -> None:
    talk.refuse(talk.ask(("put", BringRequest("a", b"text"))), PermissionDenied("a"))
    talk.done(("get", LookRequest("a")), results=[GetResult(None)])
    talk.done(SET, results=[None])
    talk.done(("Repository.pull", PullRequest(refs=[b"main"])), results=[PULLED])
    talk.done(SET, results=[SET_DONE], version=2)
    talk.ask(("Repository.pull", PullRequest(refs=[], ids=[OTHER], haves=[TIP], absent=[TIP])), known=2)


# -- duplicate


def asks_the_same_twice(talk: Talk) -> None:
    talk.done(pull_of(TIP), results=[PULLED])
    talk.done(STATS, results=[], known=1)
    talk.ask(pull_of(TIP), known=1)


def asks_the_same_twice_and_changes_another(talk: Talk) -> None:
    talk.done(pull_of(TIP), results=[PULLED])
    talk.done(DELETE, results=[BranchDeleteResult([])], path="another")
    talk.ask(pull_of(TIP))


def asks_after_a_change_above(talk: Talk) -> None:
    talk.done(pull_of(TIP), results=[PULLED], path="team/project")
    talk.done(("rename", RenameRequest("team", "others")), results=[NoResult()], path="")
    talk.done(pull_of(TIP), results=[PULLED], path="team/project")
    talk.done(("rename", RenameRequest("project", "other")), results=[NoResult()], path="team")
    talk.ask(pull_of(TIP), path="team/project")


def asks_twice_with_reason(talk: Talk) -> None:
    talk.done(pull_of(TIP), results=[PULLED])
    talk.done(OPEN, pull_of(OTHER), results=[OpenResult("", "", ""), PULLED])
    talk.done(OPEN, pull_of(TIP, OTHER), results=[OpenResult("", "", ""), PULLED])
    talk.done(pull_of(TIP), results=[PULLED], path="another")
    for _ in range(3):
        talk.done(PING, results=[PingResult()])
    talk.done(DELETE, results=[BranchDeleteResult([])])
    talk.ask(pull_of(TIP))


def waits_for_a_file(talk: Talk) -> None:
    for _ in range(2):
        talk.done(NEXT_RECORD, NEWEST_RECORD, results=[GetResult(None), GetResult(1, b"r")])
    talk.ask(NEXT_RECORD, NEWEST_RECORD)


# -- reopen


def knows_nothing_again(talk: Talk) -> None:
    talk.done(STATS, results=[], version=1)
    talk.ask(PULL)


def opens_what_is_open(talk: Talk) -> None:
    talk.done(PULL, results=[PULLED], version=1)
    talk.ask(OPEN, known=1)


def opens_each_once(talk: Talk) -> None:
    talk.done(STATS, results=[], version=1)
    talk.done(OPEN, PULL, results=[OpenResult("", "", ""), PULLED], version=1, known=1)
    talk.done(OPEN, results=[OpenResult("", "", "")], path="another")
    talk.done(("Repository.delete", DeleteRequest()), results=[BranchDeleteResult([])], known=1)
    talk.ask(STATS)


def opens_another_connection_to_what_it_knows(talk: Talk) -> None:
    talk.done(STATS, results=[], version=1)
    talk.connect()
    talk.ask(PULL, known=1)


# -- per-item


def one_item_of_a_selector_for_each(talk: Talk) -> None:
    for number in range(3):
        talk.done(read_of(1, None, [[number]]), results=[ReadResult()])


def selectors_that_differ_in_more(talk: Talk) -> None:
    for number in range(3):
        talk.done(read_of(1, [number], [[number]]), results=[ReadResult()])


def one_request_for_each(talk: Talk) -> None:
    for revision in LINE[:2]:
        talk.done(pull_of(revision), results=[PULLED])
    talk.ask(pull_of(LINE[2]))


def one_file_for_each(talk: Talk) -> None:
    for name in "ab":
        talk.done(("put", BringRequest(name, b"text")), results=[NoResult()])
    talk.ask(("put", BringRequest("c", b"text")))


def others_between_two_that_are_alike(talk: Talk) -> None:
    for name in "abc":
        talk.done(("mkdir", PathRequest(name)), results=[NoResult()])
        talk.done(("rename", RenameRequest(name, f"{name}/target")), results=[NoResult()])
        talk.done(pull_of(name.encode()), results=[PULLED])


def one_file_of_its_own_content_for_each(talk: Talk) -> None:
    for name in "abc":
        talk.ask(("put", BringRequest(name, name.encode())))


def some_for_good_reasons(talk: Talk) -> None:
    talk.done(*map(pull_of, LINE), results=[PULLED] * 4)
    talk.done(pull_of(LINE[0]), results=[PULLED])
    talk.done(pull_of(LINE[1]), results=[PULLED])
    talk.done(SET, results=[SET_DONE])
    for name, target in (("a", "1"), ("b", "2"), ("c", "3")):
        talk.done(("rename", RenameRequest(name, target)), results=[NoResult()])
    for page in "abcd":
        talk.done(("Repository.list", ListRequest(page)), results=[ListResult([], more=page != "d")])


def differs_in_one_and_then_in_another(talk: Talk) -> None:
    for change in (("a", b"1"), ("b", b"1"), ("b", b"2"), ("c", b"2")):
        talk.done(("put", BringRequest(*change)), results=[NoResult()])


def one_request_for_each_of_several_repositories(talk: Talk) -> None:
    for number, revision in enumerate(LINE):
        talk.done(pull_of(revision), results=[PULLED], path=f"project{number % 2}")


# -- resend


def sends_what_it_was_told(talk: Talk) -> None:
    talk.done(REFS, results=[PULLED], version=1, tips=[LINE[1]])
    number = talk.ask(INSERT, SET, known=1, flags=RequestFlag.BODY | RequestFlag.GRAPH_FIRST)
    talk.body(number, encode_graph([HISTORY.announced(each) for each in LINE[1:]]))


def sends_in_bulk_what_was_refused_as_known(talk: Talk) -> None:
    number = talk.ask(INSERT, SET, flags=RequestFlag.BODY)
    talk.body(number, HISTORY.segment(TIP))
    talk.refuse(number, KnownRevisions([TIP]))
    number = talk.ask(INSERT, DELETE, flags=RequestFlag.BODY | RequestFlag.BULK)
    writer = BulkWriter(SEGMENT_LEVEL)
    talk.body(number, writer.add(HISTORY.segment(TIP)) + writer.finish())


def sends_twice(talk: Talk) -> None:
    number = talk.ask(INSERT, SET, flags=RequestFlag.BODY)
    talk.body(number, HISTORY.segment(TIP))
    talk.answer(number, InsertPackResult(1), SET_DONE, version=2)
    number = talk.ask(INSERT, DELETE, known=2, flags=RequestFlag.BODY)
    talk.body(number, HISTORY.segment(TIP))


def copies_by_a_detour(talk: Talk) -> None:
    talk.done(("get", LookRequest("packs/a")), results=[GetResult(80, b"pack" * 20)])
    talk.ask(("put", BringRequest("packs/b", b"pack" * 20)))


def copies_what_was_published(talk: Talk) -> None:
    talk.done(("get_published", LookRequest("log/1")), results=[GetResult(80, b"text" * 20)])
    talk.ask(("put", BringRequest("new", b"text" * 20)))


def sends_what_is_new(talk: Talk) -> None:
    talk.done(REFS, results=[PULLED], version=1, tips=[LINE[1]])
    number = talk.ask(INSERT, SET, known=1, flags=RequestFlag.BODY | RequestFlag.GRAPH_FIRST)
    talk.body(number, encode_graph([HISTORY.announced(each) for each in LINE[2:]]) + b"whatever follows")
    talk.refuse(number, BranchExists(b"main", TIP))
    number = talk.ask(INSERT, SET, known=1, flags=RequestFlag.BODY)
    talk.body(number, HISTORY.segment(TIP))
    number = talk.ask(INSERT, SET, path="another", flags=RequestFlag.BODY)
    talk.body(number, HISTORY.segment(LINE[1]) + b"\xff" * 99)
    talk.done(("get", LookRequest("a")), results=[GetResult(5, b"short")])
    talk.done(("put", BringRequest("b", b"short")), results=[NoResult()])
    talk.ask(("put", BringRequest("c", b"other" * 20)))


def sends_what_was_not_stored_again(talk: Talk) -> None:
    for version in (2, 3):
        number = talk.ask(INSERT, SET, DELETE, known=version - 1, flags=RequestFlag.BODY)
        talk.body(number, HISTORY.segment(TIP))
        talk.answer(number, InsertPackResult(0), None, BranchDeleteResult([]), version=version)


def sends_what_is_no_refs_tip(talk: Talk) -> None:
    refs = {b"a": raw([[LINE[1], TIP]]), b"b": raw([[[TIP]]]), b"c": Raw(b"\x91\x91\xa1\xff"), b"d": raw(None)}
    state = State(INCARNATION, 1, None, refs)
    talk.down(Reply(talk.ask(REFS), encode(ReplyMessage([Outcome(Status.DONE, raw(PULLED))], state))))
    number = talk.ask(INSERT, SET, known=1, flags=RequestFlag.BODY)
    talk.body(number, HISTORY.segment(TIP))


def sends_it_to_one_made_anew(talk: Talk) -> None:
    talk.done(REFS, results=[PULLED], version=1, tips=[TIP])
    talk.done(("Repository.delete", DeleteRequest()), results=[BranchDeleteResult([])], known=1)
    number = talk.ask(INSERT, SET, flags=RequestFlag.BODY)
    talk.body(number, HISTORY.segment(TIP))


# -- extra-connection


def connects_again_for_nothing(talk: Talk) -> None:
    talk.done(PING, results=[PingResult()])
    talk.connect()
    talk.ask(PING)


def connects_again_after_a_body(talk: Talk) -> None:
    number = talk.ask(PULL)
    talk.down(Reply(number, ANSWER, body=True), End(number, 0, 0))
    talk.connect()
    talk.ask(STATS)


def connects_again_where_it_must(talk: Talk) -> None:
    talk.ask(PING)  # Nobody answers.
    talk.connect()
    talk.done(PING, results=[PingResult()])
    talk.down(GoAway(b"restarting"))
    talk.connect()
    number = talk.ask(PING)
    talk.down(GoAway(b"restarting"))
    talk.answer(number, PingResult())
    talk.connect()
    talk.connect()
    talk.down(Reply(talk.ask(PULL), ANSWER, body=True))  # Its body breaks off.
    talk.connect()
    talk.ask(STATS)


FIRES: dict[str, list[Case]] = {
    "vfs:*:*/log/*": [read_log],
    "vfs:put": [put],
    "rpc:Repository.pack": [pack],
    "read-back": [
        reads_its_own_ref,
        reads_its_own_tip,
        reads_its_own_tip_by_a_selector,
        reads_all_refs_after_a_change,
        reads_a_file_it_wrote,
    ],
    "duplicate": [asks_the_same_twice, asks_the_same_in_one_request, asks_the_same_twice_and_changes_another],
    "reopen": [knows_nothing_again, opens_what_is_open],
    "per-item": [
        one_request_for_each,
        one_file_for_each,
        one_file_of_its_own_content_for_each,
        one_item_of_a_selector_for_each,
    ],
    "resend": [
        sends_what_it_was_told,
        sends_in_bulk_what_was_refused_as_known,
        sends_twice,
        copies_by_a_detour,
        copies_what_was_published,
    ],
    "extra-connection": [connects_again_for_nothing, connects_again_after_a_body],
    "silly": [reads_its_own_ref, asks_the_same_twice, one_request_for_each, connects_again_for_nothing],
}

SILENT: dict[str, list[Case]] = {
    "vfs:*:*/log/*": [put, pull, lock],
    "vfs:put": [lock, pack],
    "rpc:Repository.pack": [pull, put],
    "read-back": [
        reads_what_others_wrote,
        reads_in_the_request_of_the_change,
        reads_what_was_refused_and_what_it_has,
    ],
    "duplicate": [asks_twice_with_reason, asks_after_a_change_above, waits_for_a_file],
    "reopen": [opens_each_once, opens_another_connection_to_what_it_knows],
    "per-item": [
        some_for_good_reasons,
        differs_in_one_and_then_in_another,
        others_between_two_that_are_alike,
        selectors_that_differ_in_more,
        one_request_for_each_of_several_repositories,
    ],
    "resend": [
        sends_what_is_new,
        sends_what_was_not_stored_again,
        sends_what_is_no_refs_tip,
        sends_it_to_one_made_anew,
    ],
    "extra-connection": [connects_again_where_it_must],
    "silly": [pack, put, reads_what_others_wrote],
}
