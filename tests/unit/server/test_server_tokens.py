"""server.tokens: what is kept of a token, who may read it, and changes at the same time."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from needs import needs

from smartserver.server.tokens import PREFIX, Token, TokenChanges, TokenFile, Tokens, TokensText, token_path
from smartserver.server.watched import UnusableFile
from smartserver.verbs.declare import Permission

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


def test_a_revoked_token_is_gone(changes: TokenChanges, access: Path) -> None:
    file = TokenFile(token_path(access))
    kept, _ = create(changes)
    token, token_id = create(changes)
    assert file.content.find(token) is not None
    assert changes.revoke(token_id).user == "ci"
    assert file.content.find(token) is None
    assert file.content.find(kept) is not None
    with pytest.raises(UnusableFile, match=f"there is no token '{token_id}'"):
        changes.revoke(token_id)


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
    assert "is not used, the tokens stay as they were: it is gone" in caplog.text


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


@pytest.mark.parametrize(("expires", "now", "expired"), [(None, 9e9, False), (10, 9.9, False), (10, 10.0, True)])
def test_when_a_token_expires(expires: int | None, now: float, expired: bool) -> None:
    assert Token("1", "a", "", 0, expires).has_expired(now) is expired


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
