"""What is known of a remote: its refs as last seen, and a ring of tips ever seen. A hint: the server decides.

One file a URL in a folder of the user's. A file that is missing, damaged or of another repository costs one more
round trip and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from typing import Annotated

import msgspec

from smartserver.records.model import RefValue, Tip
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_TIPS_KNOWN
from smartserver.wire.messages import Known, State

Value = Annotated[tuple[Tip, ...], msgspec.Meta(min_length=1)]

DIGEST = 16
"""Bytes of BLAKE2b at the start of a file, over what follows them."""


class Remembered(msgspec.Struct, array_like=True):
    """The content of a file; fields are only ever appended."""

    url: str
    incarnation: bytes = b""
    version: int = 0
    vcs: str = ""
    settings: dict[str, bytes] = {}
    refs: dict[bytes, Value] = {}
    tips: list[bytes] = []
    capabilities: list[str] = []
    mark: int = 0


_decoder = msgspec.msgpack.Decoder(Remembered)


def decode(content: bytes, url: str) -> Remembered:
    """What a file says of the remote at `url`; nothing where it is damaged or another's."""
    digest, payload = content[:DIGEST], content[DIGEST:]
    with contextlib.suppress(msgspec.DecodeError):
        if digest == _digest(payload):
            found = _decoder.decode(payload)
            if found.url == url:
                return found
    return Remembered(url)


def encode(remembered: Remembered) -> bytes:
    """The content of a file."""
    payload = msgspec.msgpack.encode(remembered)
    return _digest(payload) + payload


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=DIGEST).digest()


class Knowledge:
    """What is known of one remote, kept in `folder` (nowhere when that is None)."""

    def __init__(self, folder: str | None, url: str) -> None:
        self._url = url
        self._folder = folder
        self.path = os.path.join(folder, hashlib.blake2b(url.encode(), digest_size=16).hexdigest()) if folder else None
        """The file it is kept in."""
        self._saved = Remembered(url)
        if self.path is not None:
            with contextlib.suppress(OSError), open(self.path, "rb") as file:
                self._saved = decode(file.read(), url)

    @property
    def met(self) -> bool:
        """Whether a repository was seen there."""
        return bool(self._saved.incarnation)

    @property
    def known(self) -> Known | None:
        """The newest root seen."""
        return Known(self._saved.incarnation, self._saved.version, self._saved.mark) if self.met else None

    @property
    def vcs(self) -> str:
        """E.g. `git sha1`; empty where nothing is known."""
        return self._saved.vcs

    @property
    def settings(self) -> dict[str, bytes]:
        """The repository's settings as last seen."""
        return self._saved.settings

    def refs(self) -> dict[bytes, RefValue]:
        """The refs as last seen, each with one tip or more."""
        return dict(self._saved.refs)

    def ref(self, name: bytes) -> RefValue | None:
        """One ref as last seen."""
        return self._saved.refs.get(name)

    def tips(self) -> list[bytes]:
        """Every tip seen, those of the refs first, then the ring, newest first; each once."""
        current = [tip.id for value in self._saved.refs.values() for tip in value]
        return list(dict.fromkeys([*current, *self._saved.tips]))

    def learn(self, state: State, capabilities: Iterable[str] = ()) -> None:
        """Take in what an answer said and keep it.

        Raises:
            RemoteProtocolError: a ref it names has no tip that can be one.
        """
        changes = {name: _value(name, value) for name, value in state.refs.items()}
        saved = self._saved
        if state.incarnation != saved.incarnation:
            saved = self._saved = Remembered(self._url, state.incarnation)
        unchanged = state.since == state.version == saved.version and state.mark == saved.mark and not changes
        refs = {} if state.since is None else saved.refs
        for name, value in changes.items():
            if value is None:
                refs.pop(name, None)
            else:
                refs[name] = value
        saved.refs = refs
        saved.version, saved.mark = state.version, state.mark
        if state.vcs:
            saved.vcs, saved.settings = state.vcs, dict(state.settings)
        if capabilities:
            saved.capabilities = list(capabilities)
        new = [tip.id for value in changes.values() for tip in value or ()]
        saved.tips = list(dict.fromkeys([*new, *saved.tips]))[:MAX_TIPS_KNOWN]
        if not unchanged:
            self._save()

    def forget(self) -> None:
        """Nothing is known any more: the repository is gone."""
        self._saved = Remembered(self._url)
        if self.path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def _save(self) -> None:
        if self.path is None or self._folder is None:
            return
        temporary = f"{self.path}.{os.getpid()}"
        # Knowledge is a hint: a full or read-only disk must not fail the command that gained it.
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(encode(self._saved))
            os.replace(temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _value(name: bytes, value: list[list[object]] | None) -> RefValue | None:
    """A ref's value as it travels, typed."""
    if value is None:
        return None
    try:
        tips: RefValue = msgspec.convert(value, Value, builtin_types=(bytes,))  # A str is not taken for base64.
    except msgspec.ValidationError as wrong:
        raise RemoteProtocolError(f"expected tips of {name!r}, got {value!r}: {wrong}") from None
    return tips
