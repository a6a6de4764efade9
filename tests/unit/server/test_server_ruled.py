"""server.access, server.audit: users of an access file: what they may do, what they are told, and what the log says."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders import MAIN
from dialogs import CREATE, Dialog, Served, message
from session_calls import PULL, done, set_ref

from smartserver.errors import error_from_wire
from smartserver.server.access import RuledUser
from smartserver.server.audit import log as audit_log
from smartserver.server.rules import AccessFile
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest, map_update
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_list import ListRequest, ListResult, repository_list
from smartserver.verbs.repository_open import OpenRequest, repository_open
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.events import Error
from smartserver.wire.messages import Failure, RequestFlag, named

RULES = """
[[rules]]
who = ["anna"]
path = "**"
may = "admin"

[[rules]]
who = ["ben"]
path = "team/**"
refs = ["refs/heads/*"]
may = "create"

[[rules]]
who = ["ben"]
path = "team/**"
may = "read"

[[rules]]
who = ["carl"]
path = "team/secret/below"
may = "create"

[[rules]]
who = ["carl"]
path = "open"
may = "read"
"""

LIST = (repository_list, ListRequest())
OPEN = (repository_open, OpenRequest())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(RULES)
    return path


@pytest.fixture
def served(line: list[bytes], served: Served) -> Served:
    for path in ("team/secret", "open"):
        served.push(line[:4], {MAIN: line[3]}, path)
    return served


@pytest.fixture
def history(served: Served) -> list[bytes]:
    return list(served.history.parents)


@pytest.fixture
def user(served: Served, file: Path) -> Callable[[str], Dialog]:
    rules = AccessFile(file)
    return lambda name: Dialog(served.site, RuledUser(name, rules))


def code(answer: object) -> str:
    return answer.fault.code if isinstance(answer, Failure) else ""


def moved(ref: bytes, tip: bytes, rule: Rule = Rule.FF) -> tuple[object, object]:
    return branch_set_last_revision, SetLastRevisionRequest(ref, tip, rule)


def test_a_user_who_may_not_read_cannot_tell_what_is_there(served: Served, user: Callable[[str], Dialog]) -> None:
    """Each answer is the same, byte for byte: of a repository, of nothing, below a repository, and above one."""
    said: dict[str, set[bytes]] = {}
    served.site.find("team/secret").repository.begin()  # It is open, and the next one would be quick.
    for path in ("team/secret", "team/nothing", "team/secret/x", "team"):
        for name, call, flags in (
            ("pull", PULL, RequestFlag.NONE),
            ("open", OPEN, RequestFlag.NONE),
            ("below", PULL, RequestFlag.BELOW),
            ("create", (repository_create, CREATE), RequestFlag.NONE),
            ("refs", set_ref(b"x" * 20), RequestFlag.NONE),
        ):
            dialog = user("carl")
            answer = dialog.ask(message(call, path=path, flags=flags))
            assert code(answer) == "access-denied", (path, name)
            (event,) = (each for each in dialog.heard if isinstance(each, Error))
            said.setdefault(name, set()).add(event.payload)
    assert all(len(each) == 1 for each in said.values()), said


def test_nesting_names_only_what_may_be_read(user: Callable[[str], Dialog]) -> None:
    answer = user("carl").ask(message((repository_create, CREATE), path="team/secret/below"))
    assert code(answer) == "access-denied"
    assert isinstance(answer, Failure)
    assert "secret'" not in str(error_from_wire(answer.fault.code, named(answer.fault)))
    answer = user("anna").ask(message((repository_create, CREATE), path="team/secret/below"))
    assert code(answer) == "nested-repository"


def test_a_list_has_what_may_be_read(user: Callable[[str], Dialog]) -> None:
    for name, paths in (("anna", ["open", "project", "team/secret"]), ("ben", ["team/secret"]), ("carl", ["open"])):
        answer = done(user(name).ask(message(LIST, path="")))
        found = msgspec.msgpack.decode(answer.outcomes[0].result, type=ListResult).repositories
        assert [each.path for each in found] == paths
    assert code(user("dora").ask(message(LIST, path=""))) == "access-denied"
    assert code(user("dora").ask(message((server_ping, PingRequest()), path=""))) == "access-denied"
    assert code(user("carl").ask(message((server_ping, PingRequest()), path=""))) == ""


def test_each_changed_ref_is_judged(served: Served, user: Callable[[str], Dialog], history: list[bytes]) -> None:
    ben, anna = user("ben"), user("anna")

    def ask(dialog: Dialog, *calls: object) -> str:
        return code(dialog.ask(message(*calls, path="team/secret", request=os.urandom(16))))  # type: ignore[arg-type]

    assert ask(ben, moved(b"refs/heads/new", history[1])) == ""
    assert ask(ben, moved(b"refs/heads/new", history[2])) == ""
    assert ask(ben, moved(b"refs/heads/new", history[0], Rule.FORCE)) == "access-denied"
    assert ask(ben, (branch_delete, BranchDeleteRequest(b"refs/heads/new"))) == "access-denied"
    assert ask(ben, moved(b"refs/tags/v1", history[1])) == "access-denied"
    assert ask(ben, (repository_configure, ConfigureRequest({"HEAD": MAIN}))) == "access-denied"
    tag = EntryChange(b"v1", history[0])
    assert ask(ben, (map_update, MapUpdateRequest("tags", MapKind.IDS, [tag], b"refs/heads/new"))) == ""
    moves = EntryChange(b"v1", history[1], How.SET)
    assert ask(ben, (map_update, MapUpdateRequest("tags", MapKind.IDS, [moves], b"refs/heads/new"))) == "access-denied"
    assert ask(ben, (map_update, MapUpdateRequest("notes", MapKind.OPAQUE, [tag]))) == "access-denied"
    assert ask(anna, (branch_delete, BranchDeleteRequest(b"refs/heads/new"))) == ""
    assert served.refs("team/secret") == {MAIN: history[3]}


def test_a_refused_ref_is_in_the_log_however_little_is(
    user: Callable[[str], Dialog], history: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    calls = [moved(b"refs/tags/v1", history[1]), moved(b"refs/tags/v2", history[1])]
    answer = user("ben").ask(message(*calls, path="team/secret"))  # type: ignore[arg-type]
    assert code(answer) == "refused"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.partition("access-denied: ")[2] for line in lines] == [
        f"not allowed: create refs/tags/{name}: the server's access rules give ben read and no more here"
        for name in ("v1", "v2")
    ]


def test_a_changed_rule_counts_from_the_next_request_of_a_connection(user: Callable[[str], Dialog], file: Path) -> None:
    carl = user("carl")
    assert code(carl.ask(message(PULL, path="open"))) == ""
    file.write_text(RULES.replace('path = "open"', 'path = "closed"'))
    assert code(carl.ask(message(PULL, path="open"))) == "access-denied"


def test_a_line_for_each_change(
    user: Callable[[str], Dialog], history: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit_log.name)
    first, second = history[1].hex(), history[2].hex()

    def ask(*calls: object, path: str = "team/secret") -> list[str]:
        caplog.clear()
        user("anna").ask(message(*calls, path=path, request=os.urandom(16)))  # type: ignore[arg-type]
        return [record.getMessage() for record in caplog.records if record.name == audit_log.name]

    start = 'change user=anna from="a test" path=team/secret'
    strange = "refs/heads/a\u00e9".encode()
    assert ask(moved(b"refs/heads/new", history[1])) == [f"{start} ref=refs/heads/new new={first} outcome=done"]
    assert ask(moved(b"refs/heads/new", history[1])) == []
    assert ask(moved(b"refs/heads/new", history[2]), moved(MAIN, history[0]), moved(strange, history[1])) == [
        f"{start} verb=Branch.set_last_revision ref=refs/heads/main outcome=diverged",
        f"{start} ref=refs/heads/new old={first} new={second} outcome=done",
        f'{start} ref="refs/heads/a\\u00e9" new={first} outcome=done',
    ]
    tag = (map_update, MapUpdateRequest("tags", MapKind.IDS, [EntryChange(b"v1", history[0])], MAIN))
    assert ask(tag) == [f"{start} ref=refs/heads/main entry=tags/v1 new={history[0].hex()} outcome=done"]
    assert ask((branch_delete, BranchDeleteRequest(b"refs/heads/new"))) == [
        f"{start} ref=refs/heads/new old={second} outcome=done"
    ]
    assert ask((repository_configure, ConfigureRequest({"description": b"a b"}))) == [
        f'{start} setting=description new="a b" outcome=done'
    ]
    assert ask((repository_create, CREATE), path="other") == [
        'change user=anna from="a test" path=other repository=created outcome=done'
    ]
