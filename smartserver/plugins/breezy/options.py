"""The options of a branch on a server, to Breezy a file and a store of its own; a change of them is one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from breezy import config
from breezy.branch import Branch
from breezy.transport import NoSuchFile
from breezy.transport.memory import MemoryTransport

from smartserver.plugins.breezy import changes
from smartserver.plugins.breezy.effects import EffectiveConfig
from smartserver.plugins.breezy.remote import Remote

CONFIG_FILE = "branch.conf"


class OptionFile(MemoryTransport):  # type: ignore[misc]  # Breezy is not typed.
    """`branch.conf` of a branch on a server, to Breezy a file of its own."""

    def __init__(self, remote: Remote, url: str) -> None:
        super().__init__()
        self._remote = remote
        self._url = url

    def get_bytes(self, relpath: str) -> bytes:
        """Its content as it was read."""
        content = self._remote.state().config
        if not content:
            raise NoSuchFile(relpath)
        return content

    def put_file(self, relpath: str, f: Any, mode: object = None) -> None:
        """Replace it by what can be read.

        Raises:
            NotAsRemembered: it was remembered, and is another; what it is can be read now.
        """
        changes.set_config(self._remote, f.read())

    def external_url(self) -> str:
        """Whose it is."""
        return self._url


def options_of_new(parent: str) -> bytes:
    """The options of a new branch: the location it is made from."""
    place = MemoryTransport()
    store = config.TransportIniFileStore(place, CONFIG_FILE)
    store.get_mutable_section().set("parent_location", store.quote(parent))
    store.save()
    found: bytes = place.get_bytes(CONFIG_FILE)
    return found


class OptionStore(config.TransportIniFileStore):  # type: ignore[misc]
    """What `brz config` reads and writes of the branch."""

    def __init__(self, branch: Branch, remote: Remote) -> None:
        super().__init__(OptionFile(remote, branch.base), CONFIG_FILE)
        self.branch = branch
        self.id = "branch"

    def save_changes(self) -> None:
        """Write what was set; where the configuration is not what was remembered, into what it is."""
        dirty = self.dirty_sections.copy()
        try:
            super().save_changes()
        except changes.NotAsRemembered:
            self.unload()
            for section, changed in dirty.items():
                there = self.get_mutable_section(section)
                # Breezy warns of each option that is not what it was when it was changed.
                changed.orig = {name: there.get(name, config._NewlyCreatedOption) for name in changed.orig}
            self.apply_changes(dirty)
            self.save()


class OptionConfig(EffectiveConfig):
    """The same to what of Breezy's is older (`Branch.get_config`): each change of it is written at once."""

    def __init__(self, remote: Remote, url: str) -> None:
        super().__init__(OptionFile(remote, url), CONFIG_FILE)
        self._whole = config.TransportConfig(self._transport, CONFIG_FILE)
        """What a change is written into: options without an effect are kept."""

    def set_option(self, value: Any, name: str, section: str | None = None) -> None:
        """Set an option."""
        _again(lambda: self._whole.set_option(value, name, section))

    def remove_option(self, option_name: str, section_name: str | None = None) -> None:
        """Remove an option."""
        _again(lambda: self._whole.remove_option(option_name, section_name))


def _again(change: Callable[[], None]) -> None:
    """Make a change that reads what it changes; once more where that is not what was remembered, but known now."""
    try:
        change()
    except changes.NotAsRemembered:
        change()
