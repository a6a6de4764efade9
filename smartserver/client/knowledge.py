"""What is known of a remote: its refs as last seen, and a ring of tips ever seen. A hint: the server decides.

One file a URL in a folder of the user's. A file that is missing, damaged or of another repository costs one more
round trip and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable

import msgspec

from smartserver.records.model import RefValue, Tip
from smartserver.wire.limits import MAX_TIPS_KNOWN
from smartserver.wire.messages import Known, State


class Remembered(msgspec.Struct, array_like=True):
    """The content of a file; fields are only ever appended."""

    url: str
    incarnation: bytes = b""
    version: int = 0
    vcs: str = ""
    settings: dict[str, bytes] = {}
    refs: dict[bytes, list[list[object]]] = {}
    tips: list[bytes] = []
    capabilities: list[str] = []


_decoder = msgspec.msgpack.Decoder(Remembered)


class Knowledge:
    """What is known of one remote, kept in `folder` (nowhere when that is None)."""

    def __init__(self, folder: str | None, url: str) -> None:
        self._url = url
        self._folder = folder
        self.path = os.path.join(folder, hashlib.blake2b(url.encode(), digest_size=16).hexdigest()) if folder else None
        """The file it is kept in."""
        self._saved = Remembered(url)
        if self.path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                with open(self.path, "rb") as file:
                    found = _decoder.decode(file.read())
                if found.url == url:
                    self._saved = found

    @property
    def met(self) -> bool:
        """Whether a repository was seen there."""
        return bool(self._saved.incarnation)

    @property
    def known(self) -> Known | None:
        """The newest root seen."""
        return Known(self._saved.incarnation, self._saved.version) if self.met else None

    @property
    def vcs(self) -> str:
        """E.g. `git sha1`; empty where nothing is known."""
        return self._saved.vcs

    @property
    def settings(self) -> dict[str, bytes]:
        """The repository's settings as last seen."""
        return self._saved.settings

    def refs(self) -> dict[bytes, RefValue]:
        """The refs as last seen."""
        return {name: decode_ref(value) for name, value in self._saved.refs.items()}

    def ref(self, name: bytes) -> RefValue | None:
        """One ref as last seen."""
        value = self._saved.refs.get(name)
        return None if value is None else decode_ref(value)

    def tips(self) -> list[bytes]:
        """Every tip seen, those of the refs first, then the ring, newest first; each once."""
        current = [tip[0] for value in self._saved.refs.values() for tip in value]
        return list(dict.fromkeys([*_ids(current), *self._saved.tips]))

    def learn(self, state: State, capabilities: Iterable[str] = ()) -> None:
        """Take in what an answer said and keep it."""
        saved = self._saved
        if state.incarnation != saved.incarnation:
            saved = self._saved = Remembered(self._url, state.incarnation)
        unchanged = state.since == state.version == saved.version and not state.refs
        if state.since is None:
            saved.refs = {name: value for name, value in state.refs.items() if value is not None}
        else:
            for name, value in state.refs.items():
                if value is None:
                    saved.refs.pop(name, None)
                else:
                    saved.refs[name] = value
        saved.version = state.version
        if state.vcs:
            saved.vcs, saved.settings = state.vcs, dict(state.settings)
        if capabilities:
            saved.capabilities = list(capabilities)
        new = [tip[0] for value in state.refs.values() for tip in value or ()]
        saved.tips = list(dict.fromkeys([*_ids(new), *saved.tips]))[:MAX_TIPS_KNOWN]
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
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(msgspec.msgpack.encode(self._saved))
            os.replace(temporary, self.path)


def decode_ref(value: list[list[object]]) -> RefValue:
    """A ref's value as it travels, typed."""
    return tuple(msgspec.convert(tip, Tip) if len(tip) > 1 else Tip(_id(tip[0])) for tip in value)


def _id(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise msgspec.ValidationError(f"expected a binary id, got {value!r}")
    return value


def _ids(values: Iterable[object]) -> list[bytes]:
    return [value for value in values if isinstance(value, bytes)]
