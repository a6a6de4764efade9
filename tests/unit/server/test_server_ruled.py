"""server.access, audit, sizes: what users of an access file may do and are told, and what the log says of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from access_rules import ADMIN
from builders import MAIN
from dialogs import CREATE, Dialog, Served, message
from session_calls import INSERT, PULL, code, done, refused, set_ref

from smartserver.errors import error_from_wire
from smartserver.server.access import RuledUser
from smartserver.server.audit import log as audit_log
from smartserver.server.rules import AccessFile, AccessRules
from smartserver.server.sizes import NO_LIMITS, SizeLimits, parse_size
from smartserver.server.watched import UnusableFile
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest, map_update
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_list import ListRequest, ListResult, repository_list
from smartserver.verbs.repository_open import OpenRequest, repository_open
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.events import Error
from smartserver.wire.messages import Failure, RequestFlag, named

RULES = f"""{ADMIN}
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
def served(line: list[bytes], served: Served) -> Served:
    for path in ("team/secret", "open"):
        served.push(line[:4], {MAIN: line[3]}, path)
    return served


@pytest.fixture
def history(served: Served) -> list[bytes]:
    return list(served.history.parents)


@pytest.fixture
def user(served: Served, tmp_path: Path) -> Callable[[str], Dialog]:
    (tmp_path / "access.toml").write_text(RULES)
    rules = AccessFile(tmp_path / "access.toml")
    return lambda name: Dialog(served.site, RuledUser(name, rules))


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
    assert code(user("carl").ask(message((server_ping, PingRequest()), path=""))) == "ok"


def test_a_refused_ref_is_in_the_log_however_little_is(
    user: Callable[[str], Dialog], history: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    calls = [moved(b"refs/tags/v1", history[1]), moved(b"refs/tags/v2", history[1])]
    answer = user("ben").ask(message(*calls, path="team/secret"))  # type: ignore[arg-type]
    assert code(answer) == "refused"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.partition("access-denied: ")[2] for line in lines] == [
        f"not allowed to create refs/tags/{name}: the server's access rules allow ben only read here; "
        "ask its administrator for more"
        for name in ("v1", "v2")
    ]


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


@pytest.mark.parametrize(
    ("text", "size"),
    [(17, 17), ("17", 17), ("17 B", 17), ("3KB", 3000), ("50 MB", 50_000_000), ("2 GiB", 2 << 30), ("1 TB", 10**12)],
)
def test_a_size(text: str | int, size: int) -> None:
    assert parse_size("max-file-size", text) == size


@pytest.mark.parametrize("text", ["", "many", "1.5 GB", "-1", "3 mb", "5 PB", -1])
def test_what_is_no_size(text: str | int) -> None:
    with pytest.raises(UnusableFile, match=r"max-file-size = .*: expected bytes, as 5000000"):
        parse_size("max-file-size", text)


def test_of_each_limit_the_first_entry_that_fits_counts() -> None:
    rules = AccessRules(
        f"""{ADMIN}
        [[limits]]
        path = "team/**"
        max-file-size = 10
        [[limits]]
        path = "**"
        max-file-size = "1 KB"
        max-repository-size = "1 MB"
        """.encode()
    )
    assert rules.sizes("team/one") == rules.sizes("Team/one") == SizeLimits(1_000_000, 10)
    assert rules.sizes("other") == SizeLimits(1_000_000, 1000)
    assert AccessRules(ADMIN.encode()).sizes("team/one") == NO_LIMITS


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ('path = "x"', "limit 1: expected max-repository-size, max-file-size, or both"),
        ('path = "x"\nmax-file-size = "much"', "limit 1: max-file-size = 'much': expected bytes"),
        ("max-file-size = 1", "Object missing required field `path` - at `limit 1`"),
    ],
)
def test_an_entry_that_is_wrong_is_named(entry: str, why: str) -> None:
    with pytest.raises(UnusableFile) as wrong:
        AccessRules(f"{ADMIN}[[limits]]\n{entry}\n".encode())
    assert why in str(wrong.value)


@pytest.mark.parametrize("graph_first", [False, True])
def test_a_push_beyond_a_limit_is_refused_by_name_and_leaves_nothing(
    served: Served, tmp_path: Path, graph_first: bool
) -> None:
    file = tmp_path / "access.toml"
    flags = RequestFlag.BODY | (RequestFlag.GRAPH_FIRST if graph_first else RequestFlag.NONE)
    history = served.history
    (first,) = history.line(1)
    served.push([first], {MAIN: first})
    # It is removed again by the next revision, and is a file of the history all the same.
    large = history.commit({**history.files(first), "assets/big.bin": b"0123456789" * 600}, (first,))
    last = history.commit({**history.files(first), "new": b"x\n"}, (large,))
    size = served.repository().snapshot().state.packs[0]
    stored = size.length + size.index_length
    body, before = history.body([large, last], graph_first=graph_first), served.files()

    def push(limits: str) -> object:
        file.write_text(f'{ADMIN}[[limits]]\npath = "project"\n{limits}\n')
        rules = AccessFile(file)
        served.site.sizes = rules.sizes
        dialog = Dialog(served.site, RuledUser("anna", rules))
        request = message(INSERT, set_ref(last), flags=flags)
        answer = dialog.ask(request, body, 2)
        if not isinstance(answer, Failure):
            return answer
        assert served.files() == before
        return str(refused(answer))

    said = push("max-file-size = 5999")
    assert said == "too many bytes of the file assets/big.bin (max-file-size): 6000, at most 5999 are allowed"
    said = push(f"max-repository-size = {stored + 100}")
    assert str(said).startswith("too many bytes of the repository project (max-repository-size): ")
    assert str(said).endswith(f", at most {stored + 100} are allowed")
    served.site.sizes = lambda path: NO_LIMITS
    assert not isinstance(push('max-file-size = 6000\nmax-repository-size = "1 MB"'), str)
    assert served.refs() == {MAIN: last}


def test_a_repository_over_its_limit_lets_refs_be_removed(served: Served) -> None:
    made = served.history.line(2)
    served.push(made, {MAIN: made[1], b"refs/heads/side": made[0]})
    served.site.sizes = lambda path: SizeLimits(1, 1)
    answer = Dialog(served.site).ask(message(set_ref(made[1])))
    assert not isinstance(answer, Failure)
