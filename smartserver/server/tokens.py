"""Tokens: secrets that identify users over TCP. The server keeps the hash of each in a file beside the access file.

A token is 256 random bits, so one round of SHA-256 hides it: trying all values is impossible. The scope of a token
limits the rights that the access file gives its user, and never adds to them.

`smartserver token` replaces the file as a whole, by a rename. The lock is a separate file that is never replaced, so
that concurrent changes wait for each other and none is lost. A crash leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from smartserver.server.patterns import NamePattern, check_pattern, folded
from smartserver.server.rules import is_user_name
from smartserver.server.watched import MAX_FILE, UnusableFile, WatchedFile
from smartserver.verbs.declare import Permission

PREFIX = "hpss_"
"""The prefix of every token, by which tools that search for secrets recognize it."""

RANDOM_BYTES = 32

ID_DIGITS = 8
"""The number of hex digits of a token's hash that are its id in lists and logs."""


T = TypeVar("T")


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token in the file. A file with an unknown field is not used, because the field may limit the token."""

    id: str
    user: str
    sha256: str
    created: int
    """Seconds since the epoch, like `expires`."""
    expires: int | None = None
    path: str | None = None
    read_only: bool = False

    def has_expired(self, now: float) -> bool:
        """Return True if the token has expired at a time in seconds since the epoch."""
        return self.expires is not None and now >= self.expires


class TokensText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a token file."""

    tokens: list[Token] = []


class KnownToken:
    """A token of the file, with its scope."""

    def __init__(self, text: Token) -> None:
        self.text = text
        self._path = None if text.path is None else NamePattern(text.path)

    def objection(self, permission: Permission, path: str) -> str:
        """Return the reason why the scope excludes a permission for a repository; empty if the scope includes it."""
        if self.text.read_only and permission is not Permission.READ:
            return f"the token {self.text.id} is for reading alone"
        pattern = self._path
        if pattern is None:
            return ""
        if pattern.matches(path, folds=False) and pattern.matches(folded(path), folds=True):
            return ""
        return f"the token {self.text.id} is for the paths {self.text.path!r} alone"


class Tokens:
    """All tokens of a file."""

    def __init__(self, content: bytes = b"") -> None:
        """Parse a file. Empty content is a file without tokens."""
        try:
            texts = msgspec.json.decode(content, type=TokensText).tokens if content else []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnusableFile(str(error)) from None
        for text in texts:
            if not is_user_name(text.user):
                raise UnusableFile(f"token {text.id!r}: {text.user!r} is not a valid user name")
            if text.path is not None:
                check_pattern(f"token {text.id!r}: path", text.path)
        self.known = [KnownToken(each) for each in texts]

    def find(self, token: str) -> KnownToken | None:
        """Return the known token that equals `token`, or None. All known tokens are compared, in constant time, so that
        the time reveals nothing."""
        digest = _digest(token)
        found: KnownToken | None = None
        for each in self.known:
            if hmac.compare_digest(each.text.sha256.encode(), digest.encode()):
                found = each
        return found


class TokenFile(WatchedFile[Tokens]):
    """The tokens in a file, read again whenever it has changed."""

    what = "tokens"

    def parse(self, content: bytes) -> Tokens:
        """Return the tokens. An empty file is an error, because `TokenChanges` never writes one."""
        if not content:
            raise UnusableFile("it is empty")
        return Tokens(content)

    def absent(self) -> Tokens:
        """Return no tokens if no valid file was read so far. Otherwise raise an error, so that the previous tokens stay
        in force."""
        if self.was_read:
            raise UnusableFile("it was deleted")
        return Tokens()

    def count(self, content: Tokens) -> int:
        """Return the number of tokens."""
        return len(content.known)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def token_path(access: Path) -> Path:
    """Return the path of the token file of an access file."""
    whole = access.resolve()
    return whole.with_name(f"{whole.name}.tokens")


class TokenPlace(Protocol):
    """A store of tokens that can be changed."""

    def tokens(self) -> Tokens:
        """Return the current tokens."""

    def changing(self) -> AbstractContextManager[tuple[bytes | None, Callable[[bytes], object]]]:
        """Lock the tokens. The context's value is the content of their file and a function that replaces it."""


class TokenChanges:
    """Creates and revokes tokens."""

    def __init__(self, place: Path | TokenPlace) -> None:
        """`place`: the path of the access file next to which the tokens are stored, or another store of tokens."""
        self._place = TokensBesideFile(place) if isinstance(place, Path) else place

    def listing(self) -> Sequence[Token]:
        """Return all tokens."""
        return [each.text for each in self._place.tokens().known]

    def create(self, user: str, now: int, expires: int | None, path: str | None, *, read_only: bool) -> tuple[str, str]:
        """Create a token. Return the token, which is stored nowhere, and its id."""
        if not is_user_name(user):
            raise UnusableFile(f"{user!r} is not a valid user name: use letters, digits and _.@+-")
        if path is not None:
            check_pattern("path", path)

        def added(tokens: Sequence[Token]) -> tuple[Sequence[Token], tuple[str, str]]:
            taken = {each.id for each in tokens}
            token = _new_token()
            while (digest := _digest(token))[:ID_DIGITS] in taken:
                token = _new_token()
            made = Token(digest[:ID_DIGITS], user, digest, now, expires, path, read_only)
            return [*tokens, made], (token, made.id)

        return self._change(added)

    def revoke(self, token_id: str) -> Token:
        """Revoke a token, and return its entry."""

        def left(tokens: Sequence[Token]) -> tuple[Sequence[Token], Token]:
            found = next((token for token in tokens if token.id == token_id), None)
            if found is None:
                raise UnusableFile(f"there is no token {token_id!r}")
            return [each for each in tokens if each is not found], found

        return self._change(left)

    def _change(self, change: Callable[[Sequence[Token]], tuple[Sequence[Token], T]]) -> T:
        with self._place.changing() as (before, replace):
            tokens, result = change([each.text for each in Tokens(before or b"").known])
            content = msgspec.json.format(msgspec.json.encode(TokensText(list(tokens)))) + b"\n"
            if len(content) > MAX_FILE:
                raise UnusableFile(f"with that token it has {len(content)} bytes, expected at most {MAX_FILE}")
            replace(content)
        return result


class TokensBesideFile:
    """The tokens in a file next to the access file; implements `TokenPlace`."""

    def __init__(self, access: Path) -> None:
        self._access = access
        self._path = token_path(access)

    def tokens(self) -> Tokens:
        """Return the current tokens."""
        return TokenFile(self._path).content

    @contextmanager
    def changing(self) -> Iterator[tuple[bytes | None, Callable[[bytes], object]]]:
        """Lock the file, and yield its content and a function that replaces it."""
        try:
            owner = os.stat(self._access)
            with self._locked(owner):
                self.tokens()  # A damaged file is not replaced.
                content = self._path.read_bytes() if self._path.exists() else None
                yield content, lambda content: self._replace(content, owner)
        except OSError as error:
            raise UnusableFile(f"it cannot be changed: {error.filename or self._path}: {error.strerror}") from None

    @contextmanager
    def _locked(self, owner: os.stat_result) -> Iterator[None]:
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _give(lock, owner)
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _replace(self, content: bytes, owner: os.stat_result) -> None:
        """Replace the file. Every server that can read the access file can read the new file."""
        new = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()  # A crash left it.
        try:
            with open(new, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
                _give(file.fileno(), owner)
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), stat.S_IMODE(owner.st_mode) & 0o666)
                os.fsync(file.fileno())
            os.replace(new, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _give(file: int, owner: os.stat_result) -> None:
    """Change the owner and group of a file to those of another file."""
    found = os.fstat(file)
    if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
        os.fchown(file, owner.st_uid, owner.st_gid)


def _new_token() -> str:
    return f"{PREFIX}{secrets.token_urlsafe(RANDOM_BYTES)}"
