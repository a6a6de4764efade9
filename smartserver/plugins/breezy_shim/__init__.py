"""The plugin `hpss` of Breezy. It registers hpss:// URLs, and imports the adapter when one is used.

It is loaded as `breezy.plugins.hpss` (`smartserver setup brz`). Every brz command loads this module, so it must be
imported quickly.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from types import NoneType
from typing import Any

from breezy.commands import Command, plugin_cmds
from breezy.controldir import ControlDirFormat, Prober
from breezy.errors import BzrError, NotBranchError
from breezy.hooks import install_lazy_named_hook
from breezy.pyutils import get_named_object
from breezy.transport import Transport, register_lazy_transport, register_transport_proto

for _name in ("breezy.plugins.hpss", "smartserver.plugins.breezy_shim"):
    sys.modules.setdefault(_name, sys.modules[__name__])  # One module, whichever name is imported first.

SCHEMES = ("hpss://", "hpss+tls://", "hpss+ssh://", "hpss+sftp://", "hpss+s3://", "hpss+vfs://")

CONTROLDIR = "smartserver.plugins.breezy.controldir"
REMOTES = "smartserver.plugins.breezy.remotes"

opened: list[weakref.ref[Any]] = []
"""The branches that this process has opened and that still exist as objects, the newest last. A server need not send
their revisions."""


class RunningCommand:
    """A running brz command and its parsed arguments. Aliases are expanded, and options have their full names."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.name = name
        self.arguments = arguments
        self.assumed: list[Any] = []
        """The branches on servers whose remembered state the command has assumed."""
        self.has_changed = False
        """True if the command has changed a branch on a server."""
        self._again = TRIES

    def is_outdated(self, error: Exception | None) -> bool:
        """Tell whether the command must run again, because a branch was not in the assumed state.

        A command that sent no request cannot have noticed a wrong assumption. So the server is asked now.
        """
        assumed, self.assumed = self.assumed, []
        if self.has_changed or not self._again:
            return False
        self._again -= 1
        if getattr(error, "is_outdated", False):
            return True
        return isinstance(error, (BzrError, NoneType)) and any(remote.confirm() for remote in assumed)


TRIES = 2
"""The most times that a command runs again."""

running: list[RunningCommand] = []
"""The running commands of this process, each started by the one before. The list is empty if a program calls Breezy."""


def directory_format() -> Any:
    """Import the adapter, which registers itself with Breezy, and return the class of control directories' formats."""
    return get_named_object(CONTROLDIR, "HpssDirFormat")


def _remember(branch: object) -> None:
    opened.append(weakref.ref(branch, opened.remove))


def _record(command: Command) -> None:
    run = command.run

    def recorded(*positional: object, **named: object) -> object:
        running.append(RunningCommand(command.name(), named))
        if named.get("create_branch") or command.name() == "clone":
            # These commands create a branch before they use the URL of one.
            directory_format()
        try:
            while True:
                try:
                    done = run(*positional, **named)
                except Exception as error:
                    if isinstance(error, RuntimeError) and isinstance(error.__cause__, KeyboardInterrupt):
                        raise error.__cause__ from None  # Python 3.11 raises it for ^C while it makes a class.
                    if running[-1].is_outdated(error):
                        continue
                    if REMOTES in sys.modules:
                        sys.modules[REMOTES].explain(error)
                    raise
                if not running[-1].is_outdated(None):
                    return done
        finally:
            running.pop()

    command.run = recorded


class HpssProber(Prober):
    """Recognizes our URLs by their scheme, without asking a server."""

    @classmethod
    def priority(cls, transport: Transport) -> int:
        """Return a priority: this prober is tried before those that read files if the URL has one of `SCHEMES`, else
        last."""
        return -100 if transport.base.startswith(SCHEMES) else 200

    def probe_transport(self, transport: Transport) -> object:
        """Return the format of the control directory at a transport of ours."""
        if not transport.base.startswith(SCHEMES):
            raise NotBranchError(path=transport.base)
        return directory_format()()

    @classmethod
    def known_formats(cls) -> list[object]:
        """Return no formats, because none can be requested by name."""
        return []


for scheme in SCHEMES:
    register_transport_proto(scheme, help="Each command one round trip (smartserver).", register_netloc=True)
    register_lazy_transport(scheme, CONTROLDIR, "HpssTransport")
ControlDirFormat.register_prober(HpssProber)
plugin_cmds.register_lazy("cmd_hpss_mirrors", [], "smartserver.plugins.breezy.hpss_mirrors")
install_lazy_named_hook("breezy.branch", "Branch.hooks", "open", _remember, "what hpss:// need not send")
install_lazy_named_hook("breezy.commands", "Command.hooks", "extend_command", _record, "what hpss:// is asked for")
