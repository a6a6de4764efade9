"""`BranchFiles` holds the files of a branch (tip, tags, options) in memory. A read gets their content from the server
if necessary, and a write sends it to the server."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Protocol

from breezy import errors
from breezy.transport.memory import MemoryTransport

from smartserver.plugins.breezy.change import OPTIONS_FILE, TAGS_FILE, TIP_FILE

FILES = (TIP_FILE, TAGS_FILE, OPTIONS_FILE)


class Owner(Protocol):
    """The branch that the files belong to."""

    url: str

    def look_to_read(self) -> None:
        """Get the state of the branch, and load the files."""

    def write(self, name: str, content: bytes) -> None:
        """Change a file."""


class BranchFiles(MemoryTransport):  # type: ignore[misc]  # Breezy is not typed.
    """The transport by which Breezy's own branch reads and writes its files."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self._owner: Owner = weakref.proxy(owner)

    def get(self, relpath: str) -> Any:
        """Read a file."""
        if relpath in FILES:
            self._owner.look_to_read()
        return super().get(relpath)

    def has(self, relpath: str) -> bool:
        """Tell whether a file exists."""
        if relpath in FILES:
            self._owner.look_to_read()
        return bool(super().has(relpath))

    def put_file(self, relpath: str, f: Any, mode: object = None) -> int:
        """Write a file of the branch, which is a request to the server.

        Raises:
            Outdated: the branch has changed since its state was received.
            TransportNotPossible: a server has no such file.
        """
        if relpath not in FILES:
            raise errors.TransportNotPossible(f"there are no files on an hpss:// server: {relpath}")
        content: bytes = f.read()
        self._owner.write(relpath, content)
        return len(content)

    def load(self, files: Mapping[str, bytes]) -> None:
        """Replace the content of files. The file of empty options is removed."""
        for name, content in files.items():
            if content or name != OPTIONS_FILE:
                super().put_file(name, BytesIO(content))
            elif super().has(name):
                self.delete(name)

    def clone(self, offset: str | None = None) -> MemoryTransport:
        """Return a folder below the branch, which has no files."""
        return MemoryTransport()

    def abspath(self, relpath: str) -> str:
        """Return the URL that a file of the branch would have."""
        return f"{self._owner.url}{relpath}"

    def external_url(self) -> str:
        """Return the URL of the branch."""
        return self._owner.url
