"""The knowledge of a remote: its refs as last seen, and the last tips seen there. It is a hint: the server decides.

Each repository has one file, named after its URL, in a folder of the user's. A file that is missing, damaged or about
another repository costs one more round trip and nothing else. A URL may lead below a repository, to a branch. Then the
file of the longest prefix that has one is used, until an answer says where the repository is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec

from smartserver.client.replace import new_file
from smartserver.records.model import RefValue, RevisionId, Tip
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_ENTRIES, MAX_TIPS, MAX_TIPS_KNOWN
from smartserver.wire.messages import KnownVersion, State, entries_of

if TYPE_CHECKING:
    from smartserver.verbs.repository_open import OpenResult

Value = Annotated[tuple[Tip, ...], msgspec.Meta(min_length=1, max_length=MAX_TIPS)]

DIGEST = 16
"""Bytes of the BLAKE2b digest at the start of a file, over the rest of the file."""


class KnowledgeFile(msgspec.Struct, array_like=True):
    """The content of a knowledge file. Fields are only ever appended."""

    url: str
    incarnation: bytes = b""
    version: int = 0
    vcs: str = ""
    settings: dict[str, bytes] = {}
    refs: dict[bytes, Value] = {}
    tips: list[bytes] = []
    capabilities: list[str] = []
    mark: int = 0
    maps: dict[str, dict[bytes, bytes]] = {}


_decoder = msgspec.msgpack.Decoder(KnowledgeFile)
_encoder = msgspec.msgpack.Encoder()
_tips: msgspec.msgpack.Decoder[RefValue | None] = msgspec.msgpack.Decoder(Value | None)


def cache_folder(environment: Mapping[str, str]) -> str | None:
    """Return the folder for the knowledge, in XDG's cache folder, or None if the user has no home."""
    base = environment.get("XDG_CACHE_HOME")
    if not base or not os.path.isabs(base):
        home = environment.get("HOME")
        if not home:
            return None
        base = os.path.join(home, ".cache")
    return os.path.join(base, "smartserver", "remotes")


def decode(content: bytes | bytearray, url: str) -> KnowledgeFile:
    """Decode the content of a file about the remote at `url`. If it is damaged, or about another remote, the result is
    empty."""
    digest, payload = content[:DIGEST], content[DIGEST:]
    with contextlib.suppress(msgspec.DecodeError):
        if digest == _digest(payload):
            found = _decoder.decode(payload)
            if found.url == url:
                return found
    return KnowledgeFile(url)


def encode(remembered: KnowledgeFile) -> bytearray:
    """Encode the content of a file."""
    content = bytearray(DIGEST)
    _encoder.encode_into(remembered, content, DIGEST)
    content[:DIGEST] = _digest(memoryview(content)[DIGEST:])
    return content


def _digest(payload: bytes | bytearray | memoryview) -> bytes:
    return hashlib.blake2b(payload, digest_size=DIGEST).digest()


class Knowledge:
    """The knowledge of one remote. It is stored in `folder`, or only in memory if `folder` is None."""

    def __init__(self, folder: str | None, url: str, below: str | None = None) -> None:
        """`below`: the end of the URL, if it may point below a repository, else None."""
        self._folder = folder
        self._below = below
        self._root = url.removesuffix(below or "")
        self._url = url
        self.at: str | None = None
        """The path of the repository if the URL may point below it and the path is known, else None."""
        self.branch = b""
        """The ref that `.` meant in the last answer that reported it; empty before."""
        self.inner = ""
        """The part of the path below the branch: a file or a folder."""
        self._saved = KnowledgeFile(url)
        if below is None:
            self._saved = self._load(url)
            return
        parts = below.strip("/").split("/")
        for count in range(len(parts), -1, -1):
            at = "/".join(parts[:count])
            found = self._load(self._root + at)
            if found.incarnation:
                self.at, self._url, self._saved = at, self._root + at, found
                break

    @property
    def path(self) -> str | None:
        """The path of the file with this knowledge; None if there is no folder, or the path of the repository is
        unknown."""
        return None if self._below is not None and self.at is None else self._file(self._url)

    def _file(self, url: str) -> str | None:
        name = hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
        return os.path.join(self._folder, name) if self._folder else None

    def _load(self, url: str) -> KnowledgeFile:
        path = self._file(url)
        if path is not None:
            with contextlib.suppress(OSError), open(path, "rb") as file:
                return decode(file.read(), url)
        return KnowledgeFile(url)

    @property
    def named(self) -> bytes | None:
        """The branch that `.` means in a change: the whole path below the repository. None if the repository's path is
        unknown."""
        if self._below is None or self.at is None:
            return None
        return self._below.strip("/")[len(self.at) :].strip("/").encode() or b"."

    @property
    def met(self) -> bool:
        """True if a repository was seen at the URL."""
        return bool(self._saved.incarnation)

    @property
    def known(self) -> KnownVersion | None:
        """The newest known version, or None if no repository is known."""
        return KnownVersion(self._saved.incarnation, self._saved.version, self._saved.mark) if self.met else None

    @property
    def vcs(self) -> str:
        """The name of the repository's version-control system; empty if unknown."""
        return self._saved.vcs

    @property
    def settings(self) -> dict[str, bytes]:
        """The last known settings of the repository."""
        return self._saved.settings

    def refs(self) -> dict[bytes, RefValue]:
        """Return the last known refs, each with one tip or more."""
        return dict(self._saved.refs)

    def ref(self, name: bytes) -> RefValue | None:
        """Return the last known value of a ref, or None."""
        return self._saved.refs.get(name)

    def maps(self) -> list[str]:
        """Return the names of the last known maps."""
        return list(self._saved.maps)

    def map(self, name: str, of: bytes | None = None) -> dict[bytes, bytes]:
        """Return the last known entries of a map. With `of`, return only those of that ref, without the ref in their
        keys."""
        entries = self._saved.maps.get(name, {})
        if of is None:
            return dict(entries)
        first = of + b"\0"
        return {key[len(first) :]: value for key, value in entries.items() if key.startswith(first)}

    def beside(self, below: str) -> Knowledge:
        """Return the knowledge of the path `below` on the same server.

        If the path is below the same repository, the result shares this knowledge in memory, because the file may be
        older (on a full disk).
        """
        other = Knowledge(self._folder, self._root + below, below)
        if self.at is None or not (self.at == "" or f"{below}/".startswith(f"{self.at}/")):
            return other
        if other.at is None or len(other.at) <= len(self.at):  # Else another repository is between them.
            other.at, other._url, other._saved = self.at, self._url, self._saved
        return other

    def tips(self) -> list[bytes]:
        """Return all known tips, each once: the tips of the refs first, then those seen earlier, newest first."""
        current = [tip.id for value in self._saved.refs.values() for tip in value]
        return list(dict.fromkeys([*current, *self._saved.tips]))

    def learn(self, state: State, capabilities: Iterable[str] = (), opened: OpenResult | None = None) -> None:
        """Store the state from an answer, and save it to the file. `opened`: the answer's result about the path.

        The refs are removed from `state`, so that half a million of them are never in memory twice.

        Raises:
            RemoteProtocolError: a ref's tips are invalid, there are too many tips, or the maps are malformed or too
                long.
        """
        entries_by_map = entries_of(state)
        changed: dict[bytes, RefValue] = {}
        gone: list[bytes] = []
        tips = 0
        unchanged = not state.refs
        for name in list(state.refs):
            value = _value(name, state.refs.pop(name))
            if value is None:
                gone.append(name)
                continue
            changed[name] = value
            tips += len(value)
            if tips > MAX_ENTRIES:
                raise RemoteProtocolError(f"expected at most {MAX_ENTRIES} tips of refs, got {tips}")
        moved = opened is not None and self._placed(opened, state)
        saved = self._saved
        if state.incarnation != saved.incarnation:
            saved = self._saved = KnowledgeFile(self._url, state.incarnation)
            if opened is None:
                self.at = None  # A refusal does not say where its repository is.
        unchanged = unchanged and state.since == state.version == saved.version and state.mark == saved.mark
        maps = {} if state.since is None else saved.maps
        for word, entries in entries_by_map.items():
            kept = maps.setdefault(word, {})
            for key, entry in entries.items():
                if entry is None:
                    kept.pop(key, None)
                else:
                    kept[key] = entry
        saved.maps = maps
        if state.since is None:
            saved.refs = changed
        else:
            for name in gone:
                saved.refs.pop(name, None)
            saved.refs.update(changed)
        saved.version, saved.mark = state.version, state.mark
        if state.vcs:
            saved.vcs, saved.settings = state.vcs, dict(state.settings)
        if capabilities:
            saved.capabilities = list(capabilities)
        new: dict[RevisionId, None] = {}
        for value in changed.values():
            new.update(dict.fromkeys([tip.id for tip in value]))
            if len(new) >= MAX_TIPS_KNOWN:
                break
        saved.tips = list(new | dict.fromkeys(saved.tips))[:MAX_TIPS_KNOWN]
        if moved or not unchanged:
            self._save()

    def _placed(self, opened: OpenResult, state: State) -> bool:
        """Store the path of the repository. Return True if it differs from the path known before."""
        self.branch, self.inner = opened.branch, opened.inner
        if self._below is None or opened.at == self.at:
            return False
        if self.at is not None and len(opened.at) < len(self.at):
            self._unlink()  # Else the file of the longer path would be found first each time.
        self.at, self._url = opened.at, self._root + opened.at
        if state.since is None and self._saved.incarnation != state.incarnation:
            self._saved = self._load(self._url)
        self._saved.url = self._url
        return True

    def forget(self) -> None:
        """Delete the cached knowledge of the repository, because it is no longer valid."""
        self._unlink()
        self.at = None
        self._saved = KnowledgeFile(self._url)

    def _unlink(self) -> None:
        if self.path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def _save(self) -> None:
        if self.path is None or self._folder is None:
            return
        # Knowledge is a hint: a full or read-only disk must not fail the command that gained it.
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with new_file(self.path) as file:
                file.write(encode(self._saved))


def _value(name: bytes, value: msgspec.Raw) -> RefValue | None:
    """Decode the value of a ref; None if the ref was deleted."""
    try:
        return _tips.decode(value)
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"expected tips of {name!r}, got {bytes(value)[:100]!r}: {error}") from None
