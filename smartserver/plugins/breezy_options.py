"""The options of a branch on a server, to Breezy a file and a store of its own; a change of them is one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from breezy import config
from breezy.transport import NoSuchFile
from breezy.transport.memory import MemoryTransport

from smartserver.plugins import breezy_changes, breezy_remembered

if TYPE_CHECKING:
    from smartserver.plugins.breezy_branch import HpssBranch

CONFIG_FILE = "branch.conf"


class OptionFile(MemoryTransport):  # type: ignore[misc]  # Breezy is not typed.
    """`branch.conf` of a branch on a server, to Breezy a file of its own."""

    def __init__(self, branch: HpssBranch) -> None:
        super().__init__()
        self._branch = branch

    def get_bytes(self, relpath: str) -> bytes:
        """Its content as it was read."""
        content = self._branch.remote.state().config
        if not content:
            raise NoSuchFile(relpath)
        return content

    def put_bytes(self, relpath: str, raw_bytes: bytes, mode: object = None) -> None:
        """Replace it."""
        breezy_changes.set_config(self._branch.remote, raw_bytes)

    def put_file(self, relpath: str, f: Any, mode: object = None) -> None:
        """Replace it by what can be read."""
        self.put_bytes(relpath, f.read())

    def external_url(self) -> str:
        """Whose it is."""
        return self._branch.base


class OptionStore(config.TransportIniFileStore):  # type: ignore[misc]
    """What `brz config` reads and writes of the branch."""

    def __init__(self, branch: HpssBranch) -> None:
        super().__init__(OptionFile(branch), CONFIG_FILE)
        self.branch = branch
        self.id = "branch"

    def save_changes(self) -> None:
        """Write what was set; where the configuration is not what was remembered, into what it is."""
        changes = self.dirty_sections.copy()
        try:
            super().save_changes()
        except breezy_remembered.NotAsRemembered:
            self.apply_changes(changes)
            self.save()
