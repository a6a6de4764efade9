"""server.tokens, access, request: what is kept of a token, whom it names, and the log of those that name nobody."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from access_rules import OPEN
from builders import MAIN
from dialogs import CREATE, Dialog, Served, message
from needs import needs
from session_calls import PULL
from sources import ROOT

from smartserver.errors import TOKEN_REFUSED, TOKEN_WANTED, AccessDenied, error_from_wire
from smartserver.server.access import TokenAdmission, by_token
from smartserver.server.rules import AccessFile
from smartserver.server.tokens import PREFIX, Token, TokenChanges, TokenFile, Tokens, TokensText, token_path
from smartserver.server.watched import UnusableFile
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import Permission
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_list import ListRequest, ListResult, repository_list
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.messages import Failure, named
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage

NOW = 1_800_000_000


@pytest.fixture
def access(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text("")
    path.chmod(0o640)
    return path


@pytest.fixture
def changes(access: Path) -> TokenChanges:
    return TokenChanges(access)


def create(changes: TokenChanges, user: str = "ci", path: str | None = None) -> tuple[str, str]:
    return changes.create(user, NOW, None, path, read_only=False)


def test_a_token_is_kept_as_a_hash(changes: TokenChanges, access: Path) -> None:
    token, token_id = changes.create("ci", NOW, NOW + 60, "project/**", read_only=True)
    assert re.fullmatch(r"hpss_[A-Za-z0-9_-]{43}", token)
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert token_id == digest[:8]
    assert changes.listing() == [Token(token_id, "ci", digest, NOW, NOW + 60, "project/**", True)]
    for each in access.parent.iterdir():
        assert token.removeprefix(PREFIX).encode() not in each.read_bytes()


def test_tokens_are_found_by_all_of_them(changes: TokenChanges, access: Path) -> None:
    made = [create(changes, user)[0] for user in ("anna", "ben", "ci")]
    tokens = TokenFile(token_path(access)).content
    for token, user in zip(made, ("anna", "ben", "ci"), strict=True):
        found = tokens.find(token)
        assert found is not None
        assert found.text.user == user
    for wrong in ("", made[0][:-1], made[0] + "x", made[0].swapcase(), "\u00e9"):
        assert tokens.find(wrong) is None


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_nobody_may_read_it_who_may_not_read_the_access_file(changes: TokenChanges, access: Path, mode: int) -> None:
    create(changes)
    access.chmod(mode)
    create(changes)
    found, of_access = token_path(access).stat(), access.stat()
    assert stat.S_IMODE(found.st_mode) == mode
    assert (found.st_uid, found.st_gid) == (of_access.st_uid, of_access.st_gid)


@needs("root")
def test_the_owner_of_the_access_file_may_read_it(changes: TokenChanges, access: Path) -> None:
    os.chown(access, 12345, 12346)
    create(changes)
    found = token_path(access).stat()
    assert (found.st_uid, found.st_gid) == (12345, 12346)


def test_changes_at_the_same_time_lose_nothing(access: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: create(TokenChanges(access), f"user{number}"), range(24)))
    found = TokenChanges(access).listing()
    assert {each.id for each in found} == {token_id for _, token_id in made}
    assert {each.user for each in found} == {f"user{number}" for number in range(24)}


def test_a_crash_leaves_what_was_there(changes: TokenChanges, access: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, _ = create(changes)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(UnusableFile, match=r"it cannot be changed: .*: No space left on device"):
            create(changes)
    (token_path(access).with_name("access.toml.tokens.new")).write_bytes(
        b"half"
    )  # As the death of a process leaves it.
    create(changes)
    assert TokenFile(token_path(access)).content.find(token) is not None
    assert sorted(each.name for each in access.parent.iterdir()) == [
        "access.toml", "access.toml.tokens", "access.toml.tokens.lock",
    ]  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"{", b'{"tokens": [', b'{"tokens": [{"id": "1"}]}', b'{"others": []}'])
def test_a_damaged_file_changes_nothing(
    changes: TokenChanges, access: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    token, _ = create(changes)
    file = TokenFile(token_path(access))
    token_path(access).write_bytes(content)
    assert file.content.find(token) is not None
    assert "is not used, the tokens stay as they were" in caplog.text
    with pytest.raises(UnusableFile):
        create(changes)  # It would lose whatever is in there.
    with pytest.raises(UnusableFile):
        TokenFile(token_path(access))


def test_no_file_is_no_tokens_and_a_missing_one_is_missed(
    changes: TokenChanges, access: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the clients would have their tools forget what is refused."""
    assert changes.listing() == []
    token, _ = create(changes)
    file = TokenFile(token_path(access))
    token_path(access).unlink()
    assert file.content.find(token) is not None
    assert "is not used, the tokens stay as they were: it was deleted" in caplog.text


def test_the_tokens_are_beside_the_file_that_a_link_leads_to(access: Path) -> None:
    link = access.with_name("link.toml")
    link.symlink_to(access)
    assert token_path(link) == token_path(access)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (Token("1", "a b", "", 0), "token '1': 'a b' is not a valid user name"),
        (Token("1", "a", "", 0, path="/x"), "token '1': path = '/x': a slash at its start"),
    ],
)
def test_tokens_that_are_refused(token: Token, why: str) -> None:
    with pytest.raises(UnusableFile) as wrong:
        Tokens(msgspec.json.encode(TokensText([token])))
    assert str(wrong.value).startswith(why)


@pytest.mark.parametrize(("user", "path"), [("a b", None), ("@core", None), ("", None), ("ci", "/x"), ("ci", "a/..")])
def test_tokens_that_are_not_made(changes: TokenChanges, access: Path, user: str, path: str | None) -> None:
    with pytest.raises(UnusableFile):
        create(changes, user, path)
    assert not token_path(access).exists()


@pytest.mark.parametrize(
    ("path", "asked", "permission", "why"),
    [
        (None, "any", Permission.FORCE, ""),
        ("team/**", "team/x", Permission.FORCE, ""),
        ("team/**", "teams", Permission.READ, "the token 1 is for the paths 'team/**' alone"),
        ("team/**", "Team/x", Permission.READ, "the token 1 is for the paths 'team/**' alone"),
        ("Team/**", "team/x", Permission.READ, "the token 1 is for the paths 'Team/**' alone"),
        ("Team/**", "Team/x", Permission.READ, ""),
        ("\u017f/**", "s/x", Permission.READ, "the token 1 is for the paths '\u017f/**' alone"),
        ("", "", Permission.READ, ""),
        ("", "x", Permission.READ, "the token 1 is for the paths '' alone"),
    ],
)
def test_the_paths_of_a_scope(path: str | None, asked: str, permission: Permission, why: str) -> None:
    (known,) = Tokens(msgspec.json.encode(TokensText([Token("1", "a", "", 0, path=path)]))).known
    assert known.objection(permission, asked) == why


def test_a_scope_of_reading() -> None:
    (known,) = Tokens(msgspec.json.encode(TokensText([Token("1", "a", "", 0, read_only=True)]))).known
    for permission in Permission:
        said = known.objection(permission, "x")
        assert said == ("" if permission is Permission.READ else "the token 1 is for reading alone")


PING = (server_ping, PingRequest())
LIST = (repository_list, ListRequest())


class World:
    """A server with two repositories, its access file, and a client of it."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served = served
        self.path = folder / "access.toml"
        self.path.write_text(OPEN)
        self.changes = TokenChanges(self.path)
        self.file, self.tokens = AccessFile(self.path), TokenFile(token_path(self.path))
        self.now = float(NOW)
        self.dialog = self.connect(private=True)

    def connect(self, *, private: bool) -> Dialog:
        return Dialog(self.served.site, TokenAdmission(self.file, self.tokens, private, lambda: self.now))

    def create(self, user: str = "anna", expires: int | None = None, path: str | None = None) -> str:
        return self.changes.create(user, NOW, expires, path, read_only=False)[0]

    def ask(
        self, *calls: object, token: object = None, path: str = "secret", dialog: Dialog | None = None
    ) -> ReplyMessage | Failure:
        request: RequestMessage = message(*calls, path=path, request=os.urandom(16))  # type: ignore[arg-type]
        return (dialog or self.dialog).ask(with_token(request, token))


def with_token(request: RequestMessage, token: object) -> RequestMessage:
    extras = {} if token is None else {"token": msgspec.Raw(msgspec.msgpack.encode(token))}
    return msgspec.structs.replace(request, extras=extras)


def denied(answer: object) -> AccessDenied:
    assert isinstance(answer, Failure), answer
    found = error_from_wire(answer.fault.code, named(answer.fault))
    assert isinstance(found, AccessDenied), found
    return found


@pytest.fixture
def world(line: list[bytes], served: Served, tmp_path: Path) -> World:
    for path in ("secret", "open", "Secret/inner"):
        served.push(line[:2], {MAIN: line[1]}, path)
    return World(served, tmp_path)


def test_one_is_wanted_where_there_are_some(world: World) -> None:
    assert denied(world.ask(PULL)).token == ""
    world.create()
    for asked in (PULL, (repository_create, CREATE)):
        assert denied(world.ask(asked)).token == TOKEN_WANTED
    assert denied(world.ask(PULL, dialog=world.connect(private=False))).token == TOKEN_WANTED
    world.path.write_text(OPEN.replace('"*"', '"anna"'))
    assert denied(world.ask(PING, path="")).token == TOKEN_WANTED


def test_what_a_user_with_a_token_may_not_is_no_matter_of_tokens(world: World) -> None:
    assert denied(world.ask(PULL, token=world.create("ben"))).token == ""


@pytest.mark.parametrize("token", ["hpss_unknown", "", 7, b"hpss_x"])
def test_another_token_is_refused(world: World, caplog: pytest.LogCaptureFixture, token: object) -> None:
    world.create()
    refused = denied(world.ask(PULL, path="open", token=token))
    assert (refused.what, refused.token) == ("log in", TOKEN_REFUSED)
    why = "the token is unknown" if isinstance(token, str) else "the token is not text"
    assert f"refused log-in from=a test: {why}" in caplog.messages


def test_each_request_is_judged(world: World) -> None:
    """A connection that was let in is asked again."""
    token = world.create(expires=NOW + 60)
    _, other_id = world.changes.create("anna", NOW, None, None, read_only=False)
    assert isinstance(world.ask(PULL, token=token), ReplyMessage)
    world.now = NOW + 59.9
    assert isinstance(world.ask(PULL, token=token), ReplyMessage)
    world.changes.revoke(other_id)
    assert isinstance(world.ask(PULL, token=token), ReplyMessage)
    world.now = NOW + 60
    assert denied(world.ask(PULL, token=token)).why.endswith("has expired")
    revoked, revoked_id = world.changes.create("anna", NOW, None, None, read_only=False)
    assert isinstance(world.ask(PULL, token=revoked), ReplyMessage)
    world.changes.revoke(revoked_id)
    assert denied(world.ask(PULL, token=revoked)).why == "the token is unknown"


def test_a_scope_narrows_what_the_rules_give(world: World, line: list[bytes]) -> None:
    token = world.create(path="secret/**")
    moved = (branch_set_last_revision, SetLastRevisionRequest(b"refs/heads/new", line[0]))
    assert isinstance(world.ask(moved, token=token), ReplyMessage)
    assert "is for the paths 'secret/**' alone" in denied(world.ask(PULL, path="open", token=token)).why
    assert "is for the paths" in denied(world.ask((repository_create, CREATE), path="SECRET/new", token=token)).why
    widest = world.create("ben", path="**")
    assert (
        denied(world.ask(PULL, token=widest)).why
        == "the server's access rules allow ben nothing here; ask its administrator for more"
    )
    answer = world.ask(LIST, path="", token=token)
    assert isinstance(answer, ReplyMessage)
    found = msgspec.msgpack.decode(answer.outcomes[0].result, type=ListResult).repositories
    assert [each.path for each in found] == ["secret"]


def test_a_token_that_others_could_read_is_refused(world: World, caplog: pytest.LogCaptureFixture) -> None:
    token, token_id = world.changes.create("anna", NOW, None, None, read_only=False)
    said = set()
    for each in (token, "hpss_unknown"):
        refused = denied(world.ask(PULL, token=each, dialog=world.connect(private=False)))
        said.add((refused.why, refused.token))
    assert said == {
        ("the token was sent without encryption, so others may have read it: have it revoked", TOKEN_REFUSED)
    }
    assert f"the token {token_id} of anna came without encryption: revoke it" in caplog.messages
    admit = by_token(world.file, world.tokens)
    assert [admit("192.0.2.7", private).private for private in (False, True)] == [False, True]


def test_no_part_of_a_token_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [world.create(), world.create(expires=NOW), "hpss_unknown"]
    for private in (False, True):
        dialog = world.connect(private=private)
        for token in tokens:
            world.ask(PULL, token=token, dialog=dialog)
    assert sum("refused log-in" in each for each in caplog.messages) == 5
    for token in tokens:
        assert token.removeprefix("hpss_") not in caplog.text.replace("the token is unknown", "")


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("WARNING refused log-in from=192.0.2.7:50412: the token is unknown", "192.0.2.7"),
        ("WARNING refused log-in from=[2001:db8::7]:50412: the token 12 has expired", "2001:db8::7"),
        ("WARNING 192.0.2.7:1: PULL on 'refused log-in from=192.0.2.9:1: x': access-denied: no", None),
    ],
)
def test_a_program_that_bans_addresses_finds_them(line: str, address: str | None) -> None:
    """By the line of the how-to, which is about a line of this form (`test_another_token_is_refused`)."""
    text = (ROOT / "doc/howto/serve_for_a_team.md").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"^failregex = (.*)$", text, re.MULTILINE)
    found = re.search(pattern.replace("<ADDR>", r"(?P<address>[0-9a-f.:]+)"), f" {line}")
    assert (found and found["address"]) == address
